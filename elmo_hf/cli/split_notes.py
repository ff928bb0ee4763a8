"""The note of a command that may have split a text into the wrong words."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..text.first_look import are_wrapped, looks_split, num_ends
from .errors import counted, say

if TYPE_CHECKING:
    from ..tokenizer.tokenization_elmo import ElmoTokenizer

# The effect of each word splitter.
SPLITS = {"whitespace": "at blanks", "ptb": "by Penn Treebank rules"}
OPTIONS = {"whitespace": "--words whitespace", "ptb": "--words ptb"}
# A larger share of unknown words is worth a note.
MOST_UNKNOWN = 0.1


def say_split(
    name: str, texts: Sequence[str], splitter: str, unknown: float = 0.0, options: dict[str, str] = OPTIONS
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
    """
    if are_wrapped(texts):
        say(
            f"Note: most lines of {name} end within a sentence; each line was read as one. Write one sentence a line, "
            "for example with spaCy's sentencizer, to read whole sentences.",
            is_error=True,
        )
    elif texts and sorted(map(num_ends, texts))[(len(texts) - 1) // 2]:
        say(
            f"Note: most lines of {name} have several sentences; each line was read as one. Write one sentence a line, "
            "for example with spaCy's sentencizer, to read them apart.",
            is_error=True,
        )
    other = next(each for each in SPLITS if each != splitter)
    found = ["looks split into words already"] if looks_split(texts) else []
    found += [f"has {unknown:.0%} unknown words"] if texts and unknown > MOST_UNKNOWN else []
    if found and other in options:
        note = f"Note: {name} {' and '.join(found)}; it was split {SPLITS[splitter]}."
        say(f"{note} {options[other]} splits it {SPLITS[other]}.", is_error=True)


def look_at(name: str, tokenizer: "ElmoTokenizer") -> Callable[[list[str]], None]:
    """A function of the first raw texts of an input that prints the notes on how the tokenizer reads them."""

    def look(texts: list[str]) -> None:
        say_split(name, texts, tokenizer.word_splitter, options={"whitespace": "--split-into-words"})
        list(note_cut(map(tokenizer.tokenize, texts), tokenizer, " at the beginning"))

    return look


def is_cut(word: str, tokenizer: "ElmoTokenizer") -> bool:
    """Whether a word is longer than the model reads."""
    most = tokenizer.max_word_length - 2
    if 4 * len(word) <= most:  # at most 4 bytes a character
        return False
    letters = word if tokenizer.alphabet == "code_points" else word.encode("utf-8", "ignore")
    return len(letters) > most


def note_cut(texts: Iterable[Sequence[str]], tokenizer: "ElmoTokenizer", where: str = "") -> Iterator[Sequence[str]]:
    """Gives lists of words; after the last list, prints to standard error how many words were cut."""
    cut = total = 0
    for words in texts:
        total += len(words)
        cut += sum(is_cut(word, tokenizer) for word in words)
        yield words
    if cut and tokenizer.token_encoder == "char_cnn":
        most = tokenizer.max_word_length - 2
        unit = "characters" if tokenizer.alphabet == "code_points" else "bytes"
        note = (
            f"Note: {cut:,} of {counted(total, 'word')}{where} have more than {most} {unit}, of which {most} are read."
        )
        say(f"{note} Put blanks between words, such as Chinese ones, that have none.", is_error=True)
