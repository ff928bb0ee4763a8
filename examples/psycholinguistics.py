"""Surprisal of words for reading experiments, for the library surprisal, and for the scorers of minicons.

python examples/psycholinguistics.py            # the small model that comes with the package
python examples/psycholinguistics.py MODEL      # a folder, a Hub name, or a published model, with its softmax

Both libraries are optional: `pip install surprisal minicons`. They need one id for each word, but ELMo reads a row of
characters. minicons gives a model all that the tokenizer returns, so `WordIds` returns both. surprisal gives the model
only `input_ids`, so `ElmoSurprisal` calls `model.score`; it takes the direction too, `"forward"` or `"backward"`. Both
return natural logarithms, `model.score` returns bits.
"""

import math
import sys
from typing import Any

import numpy as np
import typer
from transformers import BatchEncoding

from elmo_hf import ElmoForPreTraining, ElmoTokenizer, load
from elmo_hf.cli.arguments import Model as ModelArgument
from elmo_hf.cli.errors import Command

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


class WordIds(ElmoTokenizer):
    """A tokenizer for minicons: `IncrementalLMScorer(causal_lm, "cpu", tokenizer=WordIds(tokenizer))`.

    `input_ids` `(B, T)` are the places of `<S>` and the words in the logits of `ElmoForCausalLM`, `token_encoder_ids`
    `(B, T, C)` the same words as the model reads them. There is no `</S>`, so a text's beginning has the beginning of
    its ids, as with GPT-2.
    """

    def __init__(self, tokenizer: ElmoTokenizer, word_splitter: str | None = None) -> None:
        """Takes the model's tokenizer, and how raw text becomes words; None: as that tokenizer splits it."""
        vocab = {"<pad>": 0} | {word: number for number, word in enumerate(tokenizer.predicted_words, 1)}
        super().__init__("word_embedding", word_splitter=word_splitter or tokenizer.word_splitter, vocab=vocab)
        self.of_model = tokenizer

    def _encode_plus(self, text: str | list[str], add_special_tokens: bool = True, **kwargs: Any) -> BatchEncoding:
        words: Any
        if isinstance(text, str):
            words = self._words(text, add_special_tokens)
        else:
            words = [self._words(part, add_special_tokens) for part in text]
        kwargs |= {"text": words, "is_split_into_words": True, "add_special_tokens": False}
        if not kwargs.get("padding_side"):
            kwargs["padding_side"] = self.padding_side
        encoded = super()._encode_plus(**kwargs)
        encoded["token_encoder_ids"] = self.of_model._encode_plus(**kwargs)["input_ids"]
        return encoded

    def _words(self, text: str, has_begin: bool) -> list[str]:
        """The words of a text, after `<S>` if the text has a begin."""
        words = [word for word, _ in self.split_text(text)]
        return ["<S>", *words] if has_begin else words


app = typer.Typer(add_completion=False)


@app.command(cls=Command)
def main(name: ModelArgument = "tiny") -> None:
    """Print the surprisal of each word of two texts in both directions, then those of the library."""
    model, tokenizer = load(name, ElmoForPreTraining)
    for text, *both in zip(PAIR, *(bits(model, tokenizer, PAIR, d) for d in ("forward", "backward")), strict=True):
        print(f"{'word':>10}  forward  backward (bits)")
        for word, forward, backward in zip(tokenizer.tokenize(text), *both, strict=True):
            print(f"{word:>10}  {forward:7.2f}  {backward:8.2f}")
    if "ElmoSurprisal" in globals():
        for text in ElmoSurprisal(model, tokenizer).surprise(PAIR):
            print(f"surprisal, natural logarithm: {float(text[5, 'word']):.2f} for {text[5, 'word'].text!r}")


if __name__ == "__main__":
    app()
