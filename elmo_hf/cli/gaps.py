"""The command `elmo-hf fill`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from ..folder.model_names import refuse_unknown
from ..text.sentences import Sentence, read_sentences
from .arguments import Encoding, InputFormat, Model, load_on_gpu
from .errors import say
from .split_notes import are_unknown, note_cut

if TYPE_CHECKING:
    from ..language_model.cloze import PredictedWord
    from ..public import ElmoTokenizer


def fill(
    model: Model,
    text: Annotated[
        str, Argument(metavar="TEXT", help="A sentence with ___ in place of a word, or a file of such sentences.")
    ],
    top_k: Annotated[int, Option("--top-k", help="How many words.", min=1)] = 5,
    candidates: Annotated[
        list[str] | None,
        Option(metavar="WORDS", help="Choose from these words, with blanks between them; may be repeated."),
    ] = None,
    direction: Annotated[
        Literal["both", "forward", "backward"],
        Option(help="Words before the gap (forward), behind it (backward), or both."),
    ] = "both",
    input_format: InputFormat = None,
    encoding: Encoding = "utf-8",
) -> None:
    """Print the words that fit each gap of TEXT.

    The probability of both directions is their normalised product, printed beside each direction's own. A file is
    text, .jsonl or .conllu, plain or .gz. MODEL needs its softmax; `elmo-hf info` shows whether it has one.
    """
    refuse_unknown(model)
    from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words

    sentences: list[Sentence] = [text]
    if os.path.exists(text) and not os.path.isdir(text):  # `Path.exists` raises an error if a text is too long
        lines = read_sentences(Path(text), encoding=encoding, input_format=input_format)
        sentences = [sentence for sentence in lines if sentence]
    else:
        _refuse_without_gap(text)
    language_model, tokenizer = load_on_gpu(model)
    chosen = " ".join(candidates or []).split()
    split = (tokenizer.tokenize(sentence) if isinstance(sentence, str) else sentence for sentence in sentences)
    texts = list(note_cut(split, tokenizer))
    places = [gaps(words) for words in texts]  # a sentence without a gap is refused before anything is printed
    _refuse_commas(chosen, tokenizer)
    for sentence, words, places_of_text in zip(sentences, texts, places, strict=True):
        log_probs = gap_log_probs(language_model, tokenizer, words, places_of_text)
        say(sentence if isinstance(sentence, str) else " ".join(words))
        for ranked in rank_words(log_probs, tokenizer, top_k, chosen, direction):
            _say_words(ranked, direction)


def _refuse_without_gap(text: str) -> None:
    """Refuses a TEXT that is neither a file nor a sentence with a gap, before a model is loaded."""
    from elmo_hf.language_model.cloze import GAP

    if GAP.search(text) is None:
        raise ValueError(
            f"there is no gap in {text[:80]!r}, and no file has this name: write ___ in place of the word to predict."
        )


def _refuse_commas(candidates: list[str], tokenizer: "ElmoTokenizer") -> None:
    """Refuses candidates with commas between them; a comma may be a candidate, or part of one, such as 1,000."""
    if not candidates:
        return
    for word, is_unknown in zip(candidates, are_unknown(candidates, tokenizer), strict=True):
        parts = [part for part in word.split(",") if part]
        if is_unknown and len(parts) > 1:
            raise ValueError(
                f"--candidates has blanks between words, because a comma may be a word, but {word!r} is not a word of "
                f"the softmax; write {' '.join(parts)!r} if these are several words."
            )


def _say_words(ranked: list["PredictedWord"], direction: str) -> None:
    """Prints the words for a gap, each with its probability in the chosen direction, and in the others."""
    width = max(len("word"), *(len(prediction.word) for prediction in ranked))
    others = ["forward", "backward"]
    if ranked[0].backward is None:
        others.remove("backward")
    if direction in others:
        others.remove(direction)
    header = "".join(f"  {name:>8}" for name in (direction, *others))
    say(f"  {'word':{width}}{header}")
    for prediction in ranked:
        numbers = [prediction.probability, *(getattr(prediction, name) for name in others)]
        cells = "".join(f"  {number:8.4f}" for number in numbers)
        say(f"  {prediction.word:{width}}{cells}")
