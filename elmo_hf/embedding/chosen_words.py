"""The words whose vectors are kept: from a list, or matched as a whole by a regular expression."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..text.sentences import read_lines


class ChosenWords:
    """Words as the model's tokenizer splits them; capitals matter.

    Attributes:
        found: whether any sentence so far had a chosen word; None before the first sentence.
    """

    def __init__(self, source: str | re.Pattern[str]) -> None:
        """Reads a file with a word on each line, or takes a regular expression, compiled or not.

        Raises:
            FileNotFoundError: if `source` looks like the name of a file that does not exist.
            ValueError: if `source` is neither a file nor a regular expression, if the file is not UTF-8, or if
                `source` is the name of a folder, which may be meant as an expression.
        """
        self._pattern: re.Pattern[str] | None = None
        self._listed: set[str] = set()
        self.found: bool | None = None
        if isinstance(source, str) and os.path.isdir(source):
            raise ValueError(
                f"{source} is a folder, but the words to keep are a file with one on each line, or a regular "
                f"expression. Give a file in the folder; or if you mean the expression, write it as '({source})'."
            )
        if isinstance(source, str) and _names_file(source):
            words = [line.strip() for line in read_lines(Path(source))]
            self._listed = {word for word in words if word}
            content = "\n".join(sorted(self._listed))
        else:
            try:
                self._pattern = re.compile(source)
                content = f"/{self._pattern.pattern}/"
            except re.error as error:
                raise ValueError(f"{source!r} is neither a file of words nor a regular expression: {error}.") from error
        self.digest = hashlib.sha256(content.encode()).hexdigest()

    def positions(self, words: Sequence[str]) -> np.ndarray:
        """The places of the chosen words in a sentence, from 0."""
        places = [place for place, word in enumerate(words) if self._is_chosen(word)]
        if places or self.found is None:
            self.found = len(places) > 0
        return np.array(places, dtype=np.int32)

    def _is_chosen(self, word: str) -> bool:
        if self._pattern is None:
            return word in self._listed
        return self._pattern.fullmatch(word) is not None


def _names_file(source: str) -> bool:
    """Whether a string is the name of a file, or looks like one."""
    # Unlike `Path.is_file`, this takes a string that is too long for a name.
    return os.path.isfile(source) or "/" in source or source.endswith((".txt", ".tsv", ".csv"))
