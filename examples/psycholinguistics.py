"""Surprisal of words for reading experiments, and a model for the library surprisal.

python examples/psycholinguistics.py            # the small model that comes with the package
python examples/psycholinguistics.py FOLDER     # a folder or Hub name of a model with its softmax

The library is optional: `pip install surprisal`. Its own models pass only one id for each word to a model, but ELMo
reads characters, so the short class below calls `model.score`. The class returns natural logarithms, `model.score`
returns bits. It also takes the direction, `"forward"` or `"backward"`, which other models do not have.
"""

import math
import sys

import numpy as np

from elmo_hf import ElmoForPreTraining, ElmoTokenizer, tiny_model, tiny_tokenizer

PAIR = ["The keys to the cabinet are on the table.", "The keys to the cabinet is on the table."]


def bits(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, texts: list[str], direction: str) -> list[np.ndarray]:
    """The surprisal of each word of each text, in bits, given the words before it, or with "backward" behind it."""
    scores = model.score([tokenizer.tokenize(text) for text in texts], tokenizer)
    both = [scores.surprisals(index) for index in range(len(texts))]
    # Besides the words, each direction predicts the boundary that it reads last.
    return [forward[:-1] if direction == "forward" else backward[1:] for forward, backward in both]


try:
    from surprisal.interface import CustomEncoding, Model
    from surprisal.surprisal import HuggingFaceSurprisal
except ImportError:
    print("Without the library surprisal: `pip install surprisal`.", file=sys.stderr)
else:

    class ElmoSurprisal(Model):
        """A model of surprisal: `[text] = model.surprise("...")`, then `text[0:9]` and `text[0:2, "word"]`."""

        def __init__(self, model: ElmoForPreTraining, tokenizer: ElmoTokenizer, direction: str = "forward") -> None:
            """Keeps the arguments."""
            super().__init__(model.name_or_path)
            self.model, self.tokenizer, self.direction = model, tokenizer, direction

        def surprise(self, textbatch: list[str] | str) -> list[HuggingFaceSurprisal]:
            """The surprisal of each word of each text."""
            texts = [textbatch] if isinstance(textbatch, str) else list(textbatch)
            rows = self.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            words = [CustomEncoding(self.tokenizer.tokenize(t), s, t) for t, s in zip(texts, rows, strict=True)]
            found = bits(self.model, self.tokenizer, texts, self.direction)
            return [HuggingFaceSurprisal(w, b * math.log(2)) for w, b in zip(words, found, strict=True)]


def main(name: str | None = None) -> None:
    """Prints the surprisal of each word of two texts in both directions, then those of the library."""
    if name is None:
        model, tokenizer = tiny_model(ElmoForPreTraining), tiny_tokenizer()
    else:
        model, tokenizer = ElmoForPreTraining.from_pretrained(name).eval(), ElmoTokenizer.from_pretrained(name)
    for text, *both in zip(PAIR, *(bits(model, tokenizer, PAIR, d) for d in ("forward", "backward")), strict=True):
        print(f"{'word':>10}  forward  backward (bits)")
        for word, forward, backward in zip(tokenizer.tokenize(text), *both, strict=True):
            print(f"{word:>10}  {forward:7.2f}  {backward:8.2f}")
    if "ElmoSurprisal" in globals():
        for text in ElmoSurprisal(model, tokenizer).surprise(PAIR):
            print(f"surprisal, natural logarithm: {float(text[5, 'word']):.2f} for {text[5, 'word'].text!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
