"""Embed three sentences, and compare the word "left" in them, layer by layer.

python examples/embed_sentence.py            # the small model that comes with the package
python examples/embed_sentence.py MODEL      # a folder, a Hub name, or a published model, such as original
"""

import torch
import typer

from elmo_hf import load
from elmo_hf.cli.arguments import Model
from elmo_hf.cli.errors import Command

app = typer.Typer(add_completion=False)


@app.command(cls=Command)
def main(model_name: Model = "tiny") -> None:
    """Embed three sentences, and compare the word "left" in them, layer by layer."""
    model, tokenizer = load(model_name)
    sentences = [
        "He turned to the left.",
        "He wore the ring on his left hand.",
        "She didn't know why he left the room.",
    ]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)

    texts, positions, size = outputs.last_hidden_state.shape
    print(f"last_hidden_state  {texts} texts x {positions} positions x {size} numbers: the ELMo vector of each word")
    print(f"pooler_output      {texts} texts x {size} numbers: the mean over the words of each text")
    print("positions of the third text:", " ".join(inputs.tokens(2)))

    layers = [("the word alone", outputs.hidden_states[0])]
    layers += [(f"biLM layer {number}", layer) for number, layer in enumerate(outputs.hidden_states) if number > 0]
    layers += [("ELMo, their mix", outputs.last_hidden_state)]
    side, hand, went = (inputs.tokens(row).index("left") for row in range(3))
    print(
        '\nHow near is "left" in the first text to "left" in the others? (cosine: 1 is the same direction, 0 unrelated)'
    )
    print(f"{'':16}  his left hand  he left the room")
    for name, layer in layers:
        near = torch.cosine_similarity(layer[0, side], layer[1, hand], dim=0)
        far = torch.cosine_similarity(layer[0, side], layer[2, went], dim=0)
        print(f"{name:16}  {near:13.2f}  {far:16.2f}")
    print(
        "The word alone has one vector. The biLM reads the sentence too, so a direction and a verb get different ones."
    )


if __name__ == "__main__":
    app()
