"""The words that `elmo-hf vectors` takes, and the names of layers; a light module, so that refusals come at once."""

from pathlib import Path
from typing import NamedTuple

from .sentences import CONLLU_SUFFIX, read_sentences, storable, suffix_of


class WordList(NamedTuple):
    """The words of a file, each once, in their order; and how many lines were blank or repeated a word."""

    words: list[str]
    num_blank: int
    num_repeated: int


def read_words(path: Path, encoding: str = "utf-8") -> WordList:
    """Reads words: a line of text is one word; sentences of JSON lines and CoNLL-U are lists of words.

    Raises:
        ValueError: with the line, of CoNLL-U the sentence, if a word has a blank inside; if there are no words; or if
            the file cannot be read.
        OSError: if the file cannot be opened.
    """
    words: dict[str, None] = {}
    num_blank = num_repeated = 0
    unit = "sentence" if suffix_of(path) == CONLLU_SUFFIX else "line"
    for number, sentence in enumerate(read_sentences(path, encoding=encoding), start=1):
        for word in [sentence] if isinstance(sentence, str) else sentence:
            word = storable(word.strip())
            num_blank += not word
            num_repeated += word in words
            if word:
                words[checked_word(word, f"{path}, {unit} {number}: ")] = None
    if not words:
        raise ValueError(f"{path} has no words; give one word a line.")
    return WordList([*words], num_blank, num_repeated)


def check_layer(layer: str) -> None:
    """Checks the name of a layer.

    Raises:
        ValueError: if it is not `token`, `mix` or a number from 1.
    """
    if layer not in ("token", "mix") and not (layer.isdecimal() and int(layer) > 0):
        raise ValueError(f"`layer` must be token, mix or a number from 1, found {layer!r}.")


def checked_word(word: str, where: str) -> str:
    """The word; raises ValueError if it is empty or has a blank."""
    if word.split() != [word]:
        raise ValueError(
            f"{where}a word must not have blanks, because blanks separate the numbers of its vector, found "
            f"{word[:80]!r}; join its parts (New_York), or leave it out."
        )
    return word
