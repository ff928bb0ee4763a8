"""Lines of a file of text, decoded, with errors that name file and line.

A line feed ends a line, with or without a carriage return before it. If the beginning of a file has carriage returns
and no line feed, as old Macintosh files do, carriage returns end its lines.
"""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from . import encodings
from .encodings import MARK
from .notes import note
from .opened_files import OpenedFile, opened

# text8, a corpus on one line, has 100 million characters and 17 million words; JSON and CoNLL-U take more memory.
MAX_CHARACTERS, MAX_BLANKS = 1 << 27, 20_000_000
# A word or cell of several lines counts as its characters and so many more, which its memory takes.
WORD_COST = 64
TOO_LONG = f"a row, sentence or protein of more than {MAX_CHARACTERS:,} characters, with {WORD_COST} for each word."
# With so many characters beyond ASCII, all of them UTF-8, a file is UTF-8 whatever follows.
ENOUGH_UTF8 = 10
# What reading and decoding raise if a file is damaged, or not in its encoding.
UNREADABLE = (LookupError, RecursionError, ValueError, EOFError, gzip.BadGzipFile, zlib.error)


class TextFile:
    """A file of text that is read line by line, once.

    Attributes:
        path: the file, for messages.
        name: the last part of its name.
        codec: the codec of its encoding.
        beginning: its first characters, with line feeds between lines.
        is_whole: whether `beginning` is all of it.
    """

    def __init__(self, file: OpenedFile, encoding: str) -> None:
        """Finds out encoding and line ends.

        Raises:
            ValueError: if Python has no such encoding, the file's mark contradicts it, or the file's beginning shows
                that it is UTF-8 and not the encoding; the message names the file.
        """
        self.path = file.path
        self.name = file.name
        self.is_whole = file.is_whole
        self._head = file.head
        self._content = file.content
        self._has_noted_controls = False
        self._utf8_seen = ""  # the lines beyond ASCII that were read, as UTF-8, if all of them are
        try:
            self.codec = encodings.codec_of(file.path, file.head, encoding)
            head = io.TextIOWrapper(io.BytesIO(file.head), self.codec, errors="replace", newline="")
            text = head.read().removeprefix(MARK)
            self._may_be_utf8 = encodings.is_single_byte(self.codec)
            self._refuse_utf8_head()
        except UNREADABLE as error:
            raise self.fault(error) from error
        if not self.is_whole:
            text = text.removesuffix("\r")  # a line feed may follow
        self._newline: str | None = "\n"
        if "\r" in text.rstrip("\r\n") and "\n" not in text:
            self._newline = None
            note(f"{self.path} has carriage returns in place of line feeds; each ends a line.")
            text = text.replace("\r", "\n")
        self.beginning = text

    def first_lines(self, most: int) -> list[str]:
        """The first lines without their ends, as far as `beginning` has them whole."""
        lines = self.beginning.split("\n")
        if lines[-1] == "" or not self.is_whole:
            lines.pop()
        return [line.rstrip("\r") for line in islice(lines, most)]

    def lines(self, are_joined: bool = True) -> Iterator[str]:
        """Every line with its line feed; the mark that a file begins with is dropped.

        Args:
            are_joined: whether files may have been joined, so that a mark at the beginning of a line is dropped too.

        Raises:
            ValueError: if bytes are illegal in the encoding, a gzipped file is damaged, a line is too long or has
                characters that no text contains, or the file is UTF-8 and not in the encoding.
        """
        number = 0
        is_ascii = True
        try:
            stream = io.TextIOWrapper(self._content, self.codec, newline=self._newline)
            for line in iter(partial(stream.readline, MAX_CHARACTERS), ""):
                number += 1
                if are_joined or number == 1:
                    line = line.lstrip(MARK)
                if line == "":  # nothing but a mark
                    continue
                if "\0" in line or _is_too_long(line):
                    raise ValueError(self._fault_of_size())
                if not line.isascii():
                    self._check_utf8(line)
                    self._check_controls(line, number)
                    if is_ascii:
                        self._note_encoding(line)
                    is_ascii = False
                yield line
        except UnicodeDecodeError as error:
            raise self._fault_of_byte(error, number, is_ascii) from error
        except UNREADABLE as error:
            raise self.fault(error, number) from error
        if self._utf8_seen:
            raise self.fault(encodings.fault_of_utf8(self._utf8_seen, self.codec))

    def fault(self, reason: object, number: int = 0) -> ValueError:
        """An error that names the file, and its line if the number is not 0."""
        place = f", line {number}" if number else ""
        return ValueError(f"{self.path}{place}: {reason}")

    def _fault_of_byte(self, error: UnicodeDecodeError, num_before: int, is_ascii: bool) -> ValueError:
        """The error for an illegal byte, behind so many lines that were read, of which all are ASCII or not."""
        if self._may_be_utf8:
            text = encodings.utf8_text(error.object, is_begun=True, is_cut=True)
            if text is not None and not (self._utf8_seen + text).isascii():
                return self.fault(encodings.fault_of_utf8(self._utf8_seen + text, self.codec))
        before = error.object[: error.start]
        # Lines are decoded many at a time, so some before the illegal byte were not read yet.
        number = num_before + 1 + before.count(b"\n")
        is_utf8 = codecs.lookup(self.codec).name in ("utf-8", "utf-8-sig")
        shown = "UTF-8" if is_utf8 else self.codec.upper()
        is_utf8_before = is_utf8 and not (is_ascii and before.isascii())
        advice = encodings.advice(error.object, error.start, is_utf8_before)
        return self.fault(f"not {shown} (byte 0x{error.object[error.start]:02x}). {advice}", number)

    def _fault_of_size(self) -> str:
        wide = encodings.without_mark(self._head)
        advice = "export its text" if wide is None else f"give `encoding='{wide}'`"
        return (
            f"holds the character 0, or more than {MAX_CHARACTERS - 1:,} characters or {MAX_BLANKS:,} blanks; {advice}."
        )

    def _refuse_utf8_head(self) -> None:
        """Raises ValueError if the first bytes show that a file is UTF-8 and not in its encoding."""
        if not self._may_be_utf8:
            return
        text = encodings.utf8_text(self._head, is_cut=not self.is_whole)
        least = 1 if self.is_whole else ENOUGH_UTF8
        if text is None:
            self._may_be_utf8 = False
        elif encodings.count_beyond_ascii(text) >= least:
            raise ValueError(encodings.fault_of_utf8(text, self.codec))

    def _note_encoding(self, line: str) -> None:
        """Notes how the first line beyond ASCII is read in an encoding other than Unicode.

        Whatever its encoding, a text may be read in another one without an error; only its user sees whether the
        letters are right.
        """
        if not encodings.is_unicode(self.codec):
            shown = encodings.beyond_ascii(line)
            note(
                f"{self.path} is read in {self.codec}, its first letters beyond ASCII as {shown!r}. If they are wrong, "
                "give another encoding (`encoding='NAME'`).",
                argument="encoding",
            )

    def _check_utf8(self, line: str) -> None:
        """Raises ValueError if the lines so far show that a file is UTF-8 and not in its encoding."""
        if not self._may_be_utf8:
            return
        text = encodings.utf8_text(line.encode(self.codec, "replace"))
        if text is None:
            self._may_be_utf8 = False
            self._utf8_seen = ""
            return
        self._utf8_seen += text
        has_controls = encodings.CONTROLS.search(line) is not None
        if has_controls or encodings.count_beyond_ascii(self._utf8_seen) >= ENOUGH_UTF8:
            raise ValueError(encodings.fault_of_utf8(self._utf8_seen, self.codec))

    def _check_controls(self, line: str, number: int) -> None:
        fault = encodings.fault_of_controls(line, self.codec)
        if fault is not None:
            raise ValueError(fault)
        control = encodings.CONTROLS.search(line)
        if control is not None and not self._has_noted_controls:
            self._has_noted_controls = True
            note(
                f"{self.path}, line {number} holds U+{ord(control[0]):04X}, a control character that a wrong "
                "conversion of Windows-1252 leaves behind; it is kept."
            )


def _is_too_long(line: str) -> bool:
    if len(line) <= MAX_BLANKS:
        return False
    return len(line) == MAX_CHARACTERS or sum(map(str.isspace, line)) > MAX_BLANKS


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """Reads a file of text, gzipped or not, line by line, each with its line feed.

    Args:
        path: the file.
        encoding: the file's encoding, by its name in Python; the mark of a Unicode encoding is dropped.

    Raises:
        ValueError: as `TextFile.lines` does; the message names file and line.
        OSError: if the file cannot be opened.
    """
    with opened(path) as file:
        yield from TextFile(file, encoding).lines(are_joined=False)
