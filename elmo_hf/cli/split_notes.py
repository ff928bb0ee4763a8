"""The note of a command that may have split a text into the wrong words."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..text.first_look import looks_split, num_ends
from .errors import counted, say

if TYPE_CHECKING:
    from ..tokenizer.tokenization_elmo import ElmoTokenizer

# How a text with one word a row is read as sentences, in commands that cannot join rows.
JOIN_ROWS = "Join the words of a sentence in one line or row."
# The effect of each word splitter.
SPLITS = {"whitespace": "at blanks", "ptb": "by Penn Treebank rules"}
OPTIONS = {"whitespace": "--words whitespace", "ptb": "--words ptb"}
# What was read if most lines, or texts out of rows, have several sentences, and how they are read apart.
SEVERAL_IN_LINES = (
    "most lines of {name} have several sentences; each line was read as one. Write one sentence a line, for example "
    "with spaCy's sentencizer, to read them apart."
)
SEVERAL_IN_ROWS = (
    "most texts of {name} have several sentences; each text was read as one. If a column numbers sentences, give it as "
    "the last --by, to read them apart."
)
# Of fewer texts, nothing is said of single words; a longer text without blanks may be one of Chinese or Thai.
FEWEST_TEXTS, LONGEST_WORD = 5, 12
# A larger share of unknown words is worth a note.
MOST_UNKNOWN = 0.1


def say_split(
    name: str,
    texts: Sequence[str],
    splitter: str,
    unknown: float = 0.0,
    options: dict[str, str] = OPTIONS,
    several: str = SEVERAL_IN_LINES,
) -> None:
    """Prints to standard error which split was used, and the option for the other, if the split may be wrong.

    The split may be wrong if the text looks split already, or if more than a tenth of its words are unknown, unless the
    text came as lists of words.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text.
        splitter: the word splitter that was used.
        unknown: share of the text's words that are unknown to the softmax.
        options: the command's option for each word splitter.
        several: the note if most texts have several sentences.
    """
    if texts and sorted(map(num_ends, texts))[(len(texts) - 1) // 2]:
        say(f"Note: {several.format(name=name)}", is_error=True)
    other = next(each for each in SPLITS if each != splitter)
    found = ["looks split into words already"] if looks_split(texts) else []
    found += [f"has {unknown:.0%} unknown words"] if texts and unknown > MOST_UNKNOWN else []
    if found and other in options:
        note = f"Note: {name} {' and '.join(found)}; it was split {SPLITS[splitter]}."
        say(f"{note} {options[other]} splits it {SPLITS[other]}.", is_error=True)


def note_single_words(name: str, texts: Sequence[str], cure: str) -> None:
    """Prints to standard error that lines or rows were read as sentences, if most of them have one word.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text.
        cure: a sentence that says how a text with one word a row is read.
    """
    filled = [text.strip() for text in texts if text.strip()]
    if len(filled) < FEWEST_TEXTS:
        return
    num_single = sum(len(text.split()) == 1 for text in filled)
    median_length = sorted(map(len, filled))[len(filled) // 2]
    if 2 * num_single > len(filled) and median_length <= LONGEST_WORD:
        say(
            f"Note: most lines or rows of {name} have one word, and each was read as a sentence of its own. {cure}",
            is_error=True,
        )


def note_cut(texts: Iterable[Sequence[str]], tokenizer: "ElmoTokenizer", where: str = "") -> Iterator[Sequence[str]]:
    """Gives lists of words; after the last list, prints to standard error how many words were cut."""
    most, cut, total = tokenizer.max_word_length - 2, 0, 0
    is_code_points = tokenizer.alphabet == "code_points"
    for words in texts:
        total += len(words)
        long = [word for word in words if 4 * len(word) > most]  # at most 4 bytes a character
        cut += sum(len(word if is_code_points else word.encode("utf-8", "ignore")) > most for word in long)
        yield words
    if cut and tokenizer.token_encoder == "char_cnn":
        unit = "characters" if is_code_points else "bytes"
        note = (
            f"Note: {cut:,} of {counted(total, 'word')}{where} have more than {most} {unit}, of which {most} are read."
        )
        say(f"{note} Put blanks between words, such as Chinese ones, that have none.", is_error=True)
