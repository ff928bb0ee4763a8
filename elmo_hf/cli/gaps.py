"""The command `elmo-hf fill`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from typer import Argument, Option

from ..folder.model_names import refuse_unknown
from ..text.first_look import is_blank
from ..text.formats import SUFFIXES
from ..text.opened_files import suffix_of
from ..text.sentences import Sentence, read_sentences, storable
from .arguments import Column, Encoding, InputFormat, ScoringModel, check_new_table, load_on_gpu
from .errors import refuse_alone, say
from .split_notes import are_unknown, note_cut

if TYPE_CHECKING:
    from ..language_model.cloze import PredictedWord
    from ..public import ElmoTokenizer

Direction = Literal["both", "forward", "backward"]
# Smaller probabilities are printed with an exponent, because four digits behind the point would hide them.
LEAST_DECIMAL = 0.001


class _Gap(NamedTuple):
    """A gap of a text, and the words that fit it."""

    sentence: int  # the number of the sentence in the text, from 0
    position: int  # the place of the gap in the sentence; 0 is `<S>`
    predictions: list["PredictedWord"]  # the best first


def fill(
    model: ScoringModel,
    text: Annotated[
        str,
        Argument(
            metavar="TEXT", help="A sentence with ___ in place of a word, or a file of such sentences, such as a table."
        ),
    ],
    top_k: Annotated[int, Option("--top-k", help="How many words.", min=1)] = 5,
    candidates: Annotated[
        list[str] | None,
        Option(metavar="WORDS", help="Choose from these words, with blanks between them; may be repeated."),
    ] = None,
    direction: Annotated[
        Direction, Option(help="Words before the gap (forward), behind it (backward), or both.")
    ] = "both",
    input_format: InputFormat = None,
    encoding: Encoding = "utf-8",
    column: Column = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="OUT", help="Write the words to this new table too: .parquet, .csv or .tsv."),
    ] = None,
) -> None:
    """Print the words that fit each gap of TEXT.

    The probability of both directions is their normalised product, printed beside each direction's own. A file is
    text, JSON lines, a table, Parquet or words in columns, plain or .gz. MODEL needs its softmax; `elmo-hf info` shows
    whether it has one.
    """
    is_file = os.path.exists(text) and not os.path.isdir(text)  # `Path.exists` raises an error if a text is too long
    refuse_alone("a file as TEXT", is_file or _names_file(text), column=column)
    if output is not None:
        check_new_table("--output", output)
    refuse_unknown(model)
    from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words

    numbered: dict[int, Sentence] = {0: text}
    if is_file:
        lines = read_sentences(Path(text), encoding=encoding, column=column, input_format=input_format)
        numbered = {number: sentence for number, sentence in enumerate(lines) if not is_blank(sentence)}
        if not numbered:
            raise ValueError(f"{text} has no sentences; give a file that has sentences.")
    else:
        _refuse_without_gap(text)
    language_model, tokenizer = load_on_gpu(model)
    chosen = " ".join(candidates or []).split()
    split = (tokenizer.tokenize(line) if isinstance(line, str) else line for line in numbered.values())
    texts = list(note_cut(split, tokenizer))
    places = [gaps(words) for words in texts]  # a sentence without a gap is refused before anything is printed
    _refuse_commas(chosen, tokenizer)
    filled: list[_Gap] = []
    for (number, sentence), words, places_of_text in zip(numbered.items(), texts, places, strict=True):
        log_probs = gap_log_probs(language_model, tokenizer, words, places_of_text)
        say(sentence if isinstance(sentence, str) else " ".join(words))
        predictions = rank_words(log_probs, tokenizer, top_k, chosen, direction)
        for place, ranked in zip(places_of_text, predictions, strict=True):
            _say_words(ranked, direction)
            filled.append(_Gap(number, place + 1, ranked))
    if output is not None:
        _write_table(output, filled, direction)


def _names_file(text: str) -> bool:
    """Whether a TEXT looks like the name of a file with sentences."""
    return " " not in text and suffix_of(Path(text)) in SUFFIXES


def _refuse_without_gap(text: str) -> None:
    """Refuses a TEXT that is neither a file nor a sentence with a gap, before a model is loaded."""
    from elmo_hf.language_model.cloze import GAP

    if GAP.search(text) is not None:
        return
    if os.path.isdir(text):
        raise ValueError(f"{text} is a folder; give a file of sentences, or a sentence, with ___ in place of a word.")
    if _names_file(text):
        raise ValueError(
            f"there is no file {text}; give a file of sentences, or a sentence, with ___ in place of a word."
        )
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


def _say_words(ranked: list["PredictedWord"], direction: Direction) -> None:
    """Prints the words for a gap, each with its probability in the chosen direction, and in the others."""
    width = max(len("word"), *(len(prediction.word) for prediction in ranked))
    columns = _probabilities(ranked, direction)
    header = "".join(f"  {name:>8}" for name in columns)
    say(f"  {'word':{width}}{header}")
    for prediction, numbers in zip(ranked, zip(*columns.values(), strict=True), strict=True):
        cells = "".join(f"  {_shown(number):>8}" for number in numbers)
        say(f"  {prediction.word:{width}}{cells}")


def _shown(probability: float) -> str:
    """A probability as it is printed, such as `0.0801` or `4.7e-06`."""
    if probability < LEAST_DECIMAL:
        return f"{probability:.1e}"
    return f"{probability:.4f}"


def _probabilities(predictions: list["PredictedWord"], direction: Direction) -> dict[str, list[Any]]:
    """The probabilities of the predictions by direction: the chosen one first, then those of single models."""
    columns: dict[str, list[Any]] = {direction: [prediction.probability for prediction in predictions]}
    if direction != "forward":
        columns["forward"] = [prediction.forward for prediction in predictions]
    has_backward = predictions[0].backward is not None
    if direction != "backward" and has_backward:
        columns["backward"] = [prediction.backward for prediction in predictions]
    return columns


def _write_table(path: Path, filled: list[_Gap], direction: Direction) -> None:
    """Writes a row for each gap and each of its words, with the probabilities that are printed, and says so."""
    import pyarrow as pa

    from elmo_hf.disk.tables import save_table

    rows = [(gap, prediction) for gap in filled for prediction in gap.predictions]
    columns: dict[str, Any] = {
        "sentence": [gap.sentence for gap, _ in rows],
        "position": [gap.position for gap, _ in rows],
        "word": [storable(prediction.word) for _, prediction in rows],
    }
    columns |= _probabilities([prediction for _, prediction in rows], direction)
    save_table(path, pa.table(columns))
    say(f"Wrote {path}.")
