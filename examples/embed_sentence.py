"""Embed two sentences and compare the word "bank" in both, layer by layer.

python examples/embed_sentence.py            # the small model that comes with the package
python examples/embed_sentence.py FOLDER     # a folder from `elmo-hf convert` or `elmo-hf pretrain`, or a Hub name
"""

import sys

import torch
from transformers import AutoModel, AutoTokenizer

from elmo_hf import tiny_model, tiny_tokenizer

if len(sys.argv) > 1:
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
    model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
else:
    tokenizer, model = tiny_tokenizer(), tiny_model()

sentences = ["We sat on the bank of the river.", "The bank doesn't open on Sundays."]
inputs = tokenizer(sentences, padding=True, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs, output_hidden_states=True)

vectors = outputs.elmo_representations[0]
print(f"{'word':>10}  ELMo vector, {vectors.shape[-1]} numbers")
for word, vector in zip(inputs.tokens(0), vectors[0], strict=True):
    print(f"{word:>10}  {' '.join(f'{number:6.2f}' for number in vector[:6].tolist())} ...")

places = [inputs.tokens(row).index("bank") for row in (0, 1)]
for name, layer in zip(("token", "layer 1", "layer 2"), outputs.hidden_states, strict=False):
    similarity = torch.cosine_similarity(layer[0, places[0]], layer[1, places[1]], dim=0)
    print(f"similarity of the two banks, {name:>7}: {similarity:.3f}")
