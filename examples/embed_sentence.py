"""Embed two sentences, and compare the word "bank" in both, layer by layer.

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

texts, positions, size = outputs.last_hidden_state.shape
print(f"last_hidden_state  {texts} texts x {positions} positions x {size} numbers: the ELMo vector of each word")
print(f"pooler_output      {texts} texts x {size} numbers: the mean over the words of each text")
print("Positions of the second text:", " ".join(inputs.tokens(1)))

layers = [("the word alone", outputs.hidden_states[0])]
layers += [(f"biLM layer {number}", layer) for number, layer in enumerate(outputs.hidden_states) if number > 0]
layers += [("ELMo, their mix", outputs.last_hidden_state)]
first, second = (inputs.tokens(row).index("bank") for row in (0, 1))
print('\nHow alike are the two vectors of "bank"? (cosine: 1 for the same direction, 0 for unrelated ones)')
for name, layer in layers:
    print(f"  {name:16} {torch.cosine_similarity(layer[0, first], layer[1, second], dim=0):.2f}")
print("The word alone has one vector. The biLM reads the sentence too, so each bank gets a vector of its own.")
