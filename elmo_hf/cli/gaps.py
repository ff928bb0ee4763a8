"""The command `elmo-hf fill`."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..text.sentences import Sentence, read_sentences
from .arguments import Encoding, Model
from .devices import load_on_gpu
from .errors import say

if TYPE_CHECKING:
    from ..language_model.cloze import PredictedWord

GAP = re.compile("_{3}")


# Which language models predict.
Direction = Literal["both", "forward", "backward"]


def fill(
    model: Model,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="A sentence with ___ in place of a word, or a file of such sentences.")
    ],
    top_k: Annotated[int, typer.Option("--top-k", help="How many words.", min=1)] = 5,
    candidates: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Choose from these words, with blanks between them.")
    ] = None,
    direction: Annotated[
        Direction, typer.Option(help="Words before the gap (forward), behind it (backward), or both.")
    ] = "both",
    encoding: Encoding = "utf-8",
) -> None:
    """Print the words that fit each gap of TEXT, with their probabilities.

    Of both directions, the probability is their product, normalised; each alone is beside it. A file is text, .jsonl or
    .conllu, plain or .gz. MODEL needs its softmax; `elmo-hf info` says whether it has one.
    """
    sentences = _sentences(text, encoding)
    from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words

    language_model, tokenizer = load_on_gpu(model)
    chosen = None if candidates is None else candidates.split()
    texts = [tokenizer.tokenize(each) if isinstance(each, str) else each for each in sentences]
    places = [gaps(words) for words in texts]
    for sentence, words, found in zip(sentences, texts, places, strict=True):
        log_probs = gap_log_probs(language_model, tokenizer, words, found)
        say(sentence if isinstance(sentence, str) else " ".join(words))
        for ranked in rank_words(log_probs, tokenizer, top_k, chosen, direction):
            say(_table(ranked, direction))


def _sentences(text: str, encoding: str) -> list[Sentence]:
    """The text itself if it has a gap, else the sentences of the file that it names, without blank ones."""
    if GAP.search(text):
        return [text]
    if not os.path.isfile(text):  # unlike `Path.is_file`, it takes a text that is too long for a name
        raise ValueError(f"{text[:80]!r} has no gap ___ and is no file. Write ___ in place of the word to predict.")
    return [sentence for sentence in read_sentences(Path(text), encoding=encoding) if sentence]


def _table(ranked: list["PredictedWord"], direction: str) -> str:
    width = max(len("word"), *(len(each.word) for each in ranked))
    names = [name for name in ("forward", "backward") if getattr(ranked[0], name) is not None]
    lines = [f"  {'word':{width}}  {direction:>8}" + "".join(f"  {name:>8}" for name in names if name != direction)]
    for each in ranked:
        others = [getattr(each, name) for name in names if name != direction]
        lines.append(f"  {each.word:{width}}" + "".join(f"  {number:8.4f}" for number in (each.probability, *others)))
    return "\n".join(lines)
