"""Finds the encoding of a file, by its mark or as its user says, and advises where bytes do not fit.

A mark (U+FEFF in UTF-8, UTF-16 or UTF-32) at the beginning decides the encoding, and is dropped. Without one the
encoding is the user's, UTF-8 by default. If bytes are illegal in it, another one is proposed where the bytes around the
first illegal one are evidence for it (`proposed_encoding`). A wrong proposal would be silent harm, so mostly there is
none: charset-normalizer cannot tell encodings of Latin letters apart by a few of them.

Windows-1252 has quotes, dashes and other marks at the bytes 0x80 to 0x9F, where ISO-8859-1 and its relatives have the
control characters U+0080 to U+009F (C1). These are never text. So a file that has them in an encoding of one byte a
character is refused; in Unicode, where they are the traces of a wrong conversion, they are noted.

UTF-8 can be read in most encodings of one byte a character, without an error and wrongly: `café` becomes `cafÃ©`.
A text in such an encoding hardly ever is UTF-8, because all its bytes beyond ASCII would have to be in pairs such as
`Ã©`. So a file whose user names such an encoding is refused if all its characters beyond ASCII are UTF-8.
"""

import codecs
import re

from .notes import note

# The marks, longer ones first, each with its encoding and the names of encodings that agree with it.
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig", ("utf-8", "utf-8-sig")),
    (codecs.BOM_UTF32_LE, "utf-32-le", ("utf-32", "utf-32-le")),
    (codecs.BOM_UTF32_BE, "utf-32-be", ("utf-32", "utf-32-be")),
    (codecs.BOM_UTF16_LE, "utf-16-le", ("utf-16", "utf-16-le")),
    (codecs.BOM_UTF16_BE, "utf-16-be", ("utf-16", "utf-16-be")),
)
MARK = "\ufeff"
NO_CHARACTER = "\ufffd"  # what decoding has in place of an illegal byte
CONTROLS = re.compile("[\x80-\x9f]")
UNICODE = re.compile(r"utf-|gb18030")
# How many bytes before and behind an illegal byte are looked at.
BEFORE, BEHIND = 2_000, 8_000
# What a text in Windows-1252 has besides ASCII: letters of western Europe, and marks. Letters of Iceland, and s and z
# with a caron, are left out: more often they are letters of Turkish, Polish or Czech, or of MacRoman.
WESTERN = re.compile(
    "[\x00-\x7f\u00c0-\u00cf\u00d1-\u00d6\u00d8-\u00dc\u00df-\u00ef\u00f1-\u00f6\u00f8-\u00fc\u00ff"
    "Œœ‘’“”„‚‹›«»–—…•€£§©®°·¿¡ªº\u00a0]*"
)
# What a text of western Europe does not have, and another encoding's text has in Windows-1252.
LETTER = r"[^\W\d_]"
ODD = re.compile(
    f"{LETTER}[“”„‚‹›«»¿¡§£€©®°ªº•\u00a0]{LETTER}"  # a mark between letters, such as MacRoman's ß
    f"|{LETTER}[„‚¿¡£§©]|{LETTER}\u00a0\\s|€{LETTER}"  # a mark that begins, at an end; or MacRoman's Ä
    r"|[¿¡](?!\w)|\d\s*[¡ø]|œ(?!\w)|œ\d"  # the degrees, pounds and ends of words of other encodings
    "|[a-z\u00df-\u00ff][\u00c0-\u00de]"  # a capital behind a small letter, such as MacRoman's apostrophe
    r"|(?<!\w)[ÑÒÔÕ](?!\w)|[.,!?][ÒÓÔÕ]|[ÒÔ][A-Z][a-z]"  # a letter in a place of MacRoman's quotes and dashes
)
# Hungarian has õ and û in Windows-1252, which are other letters, beside letters that no language has beside them.
HUNGARIAN = (frozenset("õûÕÛ"), frozenset("öüÖÜ"), frozenset("áíóúÁÍÓÚ"))
# The largest share of letters beyond ASCII in Windows-1252: of any language, and of one such as English or German.
MANY_LETTERS, FEW_LETTERS = 0.2, 0.05
# Where charset-normalizer recognises a language: the least coherence (frequent letters), and the most chaos (odd ones).
LEAST_COHERENCE, MOST_CHAOS = 0.25, 0.1
# Languages of western Europe, and those of other scripts, which one encoding of one byte a character alone shows well.
# fmt: off
WESTERN_LANGUAGES = frozenset([
    "English", "German", "French", "Dutch", "Italian", "Spanish", "Portuguese", "Swedish", "Norwegian", "Danish",
    "Finnish",
])
OTHER_SCRIPTS = frozenset([
    "Russian", "Ukrainian", "Bulgarian", "Serbian", "Greek", "Hebrew", "Arabic", "Farsi", "Thai", "Chinese",
    "Japanese", "Korean",
])
# fmt: on


def codec_of(path: object, head: bytes, encoding: str) -> str:
    """The codec that reads a file, by its first bytes and the encoding that a user gave.

    Raises:
        LookupError: if Python has no such encoding.
        ValueError: if the file's mark contradicts the encoding.
    """
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise LookupError(
            f'unknown encoding: {encoding}. Use a name such as utf-8, cp1252 (Windows, "ANSI") or utf-16.'
        ) from None
    for mark, codec, agreeing in MARKS:
        if head.startswith(mark):
            if name in agreeing:
                return codec
            if name == "utf-8":  # the default, so nothing contradicts the mark
                note(f"{path} begins with the mark of {codec.upper()}, and is read in this encoding.")
                return codec
            if name in ("utf-16-le", "utf-16") and codec == "utf-32-le":  # its mark may be followed by U+0000
                continue
            shown = codec.removesuffix("-sig")
            raise ValueError(f"begins with the mark of {shown.upper()}; give `encoding='{shown}'`, not {encoding}.")
    if name == "utf-8":
        return "utf-8-sig"
    return encoding


def is_unicode(codec: str) -> bool:
    """Whether a codec can encode all characters."""
    return UNICODE.match(codecs.lookup(codec).name) is not None


def is_single_byte(codec: str) -> bool:
    """Whether a codec has one byte for each character, ASCII among them, and characters beyond ASCII.

    The bytes are decoded alone and together: a codec with escapes or states, or with two bytes for some characters, has
    other characters for them together, or none for bytes from 0x80.
    """
    if is_unicode(codec):
        return False
    ascii_bytes = bytes(range(0x20, 0x7F))
    other_bytes = bytes(range(0x80, 0x100))
    for plain in (ascii_bytes, rb"\u0041"):
        if _characters_alone(plain, codec) != list(plain.decode("ascii")):
            return False
        if plain.decode(codec, "replace") != plain.decode("ascii"):
            return False
    alone = _characters_alone(other_bytes, codec)
    if set(alone) == {NO_CHARACTER}:
        return False
    return list(other_bytes.decode(codec, "replace")) == alone


def _characters_alone(content: bytes, codec: str) -> list[str]:
    """What each byte is if it is decoded by itself."""
    return [bytes([byte]).decode(codec, "replace") for byte in content]


def utf8_text(content: bytes, *, is_begun: bool = False, is_cut: bool = False) -> str | None:
    """The text of bytes that are UTF-8; None if they are not.

    Args:
        content: bytes of a file.
        is_begun: whether they may begin within a character, which is then left out.
        is_cut: whether they may end within a character, which is then left out.
    """
    if is_begun:
        content = content.lstrip(bytes(range(0x80, 0xC0)))
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content, final=not is_cut)
    except UnicodeDecodeError:
        return None


def count_beyond_ascii(text: str) -> int:
    """How many characters of a text are not ASCII."""
    return sum(not character.isascii() for character in text)


def beyond_ascii(text: str) -> str:
    """The first word of a text with a character beyond ASCII; of a long word, what is around this character."""
    shown = re.search(r"\S{0,20}[^\x00-\x7f]\S{0,20}", text)
    assert shown is not None, "Callers give a text with a character beyond ASCII."
    return shown[0]


def fault_of_utf8(text: str, codec: str) -> str:
    """What is wrong with a file that is UTF-8, and was to be read in an encoding of one byte a character.

    Args:
        text: text of the file with a character beyond ASCII.
        codec: the encoding that its user named.
    """
    shown = beyond_ascii(text)
    wrong = shown.encode("utf-8").decode(codec, "replace")
    return (
        f"is UTF-8, not {codec}, in which {shown!r} would be read as {wrong!r}. Give no encoding, because UTF-8 "
        f"is the default; if the text is in {codec} nevertheless, convert the file to UTF-8 first."
    )


def without_mark(head: bytes) -> str | None:
    """The name of the UTF-16 or UTF-32 that bytes without a mark are in, if zeros show that they are; else None."""
    sample = head[: len(head) // 4 * 4]
    for codec, width, low in (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1)):
        places = [sample[place::width] for place in range(width)]
        zeros = [part.count(0) for part in places]
        is_text = zeros[low] == 0 and sum(zeros) - zeros[low] > len(sample) // 4
        if is_text and _decoded(sample, codec) is not None:
            return codec
    return None


def advice(content: bytes, place: int, is_utf8_before: bool) -> str:
    """What to do about an illegal byte, as a sentence.

    Args:
        content: bytes of a file.
        place: the place of the illegal byte in them.
        is_utf8_before: whether the text before the illegal byte is UTF-8 with letters beyond ASCII.
    """
    start = content.rfind(b"\n", 0, max(0, place - BEFORE)) + 1
    sample = content[start : place + BEHIND]
    if place + BEHIND < len(content):
        sample = sample[: max(sample.rfind(b"\n"), sample.rfind(b" "), place - start) + 1]  # no character is cut
    if is_utf8_before:
        return (
            "The text before it is UTF-8, so this byte is damaged, or another file was joined to it: repair the file."
        )
    wide = without_mark(sample)
    if wide is not None:
        return f"Give `encoding='{wide}'`."
    proposed = proposed_encoding(sample)
    if proposed is None:
        return (
            "Find out its encoding, give it (`encoding='NAME'`), and see whether the text is read well; or export it "
            "as UTF-8."
        )
    return f"It looks like {proposed}: give `encoding='{proposed}'`, and see whether the text is read well."


def proposed_encoding(sample: bytes) -> str | None:
    """The encoding that bytes which are not UTF-8 certainly have, as far as their text reads well; None: unknown.

    A few letters or quotes look well in many encodings of one byte a character. So Windows-1252, by far the most
    frequent, is proposed for what can be a text of western Europe; another encoding only if charset-normalizer
    recognises a language of another script in it. Between encodings of other letters in Latin script it cannot tell.
    """
    from charset_normalizer import from_bytes

    matches = from_bytes(sample, enable_fallback=False)
    western = _decoded(sample, "cp1252")
    if western is not None and _is_western(western):
        most = MANY_LETTERS
        recognised = [match for match in matches if match.coherence > 0]
        if recognised and not any(
            match.language in WESTERN_LANGUAGES and str(match) == western for match in recognised
        ):
            most = FEW_LETTERS
        if _share_of_letters(western) <= most:
            return "cp1252"
    best = matches.best()
    if best is None or best.language not in OTHER_SCRIPTS:
        return None
    text = _decoded(sample, best.encoding)
    if text is None or best.coherence < LEAST_COHERENCE or best.chaos > MOST_CHAOS:
        return None
    num_letters = sum(map(str.isalpha, text))
    if _share_of_letters(text) * len(text) < num_letters / 2:
        return None
    return best.encoding


def _is_western(text: str) -> bool:
    """Whether a text that was read as Windows-1252 may be a text of western Europe."""
    is_hungarian = all(not letters.isdisjoint(text) for letters in HUNGARIAN)
    return WESTERN.fullmatch(text) is not None and ODD.search(text) is None and not is_hungarian


def _share_of_letters(text: str) -> float:
    """The share of letters beyond ASCII in a text."""
    return sum(not character.isascii() and character.isalpha() for character in text) / max(1, len(text))


def fault_of_controls(line: str, codec: str) -> str | None:
    """What is wrong with a line in an encoding of one byte a character that has control characters, or None."""
    control = CONTROLS.search(line)
    if control is None or is_unicode(codec):
        return None
    shown = f"holds U+{ord(control[0]):04X}, a control character in {codec}, which no text contains"
    western = _decoded(line.encode(codec, "replace"), "cp1252")
    if western is None:
        return f"{shown}; give the file's own encoding."
    meant = western[control.start()]
    return f"{shown}. In cp1252 this byte is {meant}: give `encoding='cp1252'`."


def _decoded(sample: bytes, codec: str) -> str | None:
    """The text of bytes without control characters, or None; a character that is cut off at the end may be missing."""
    try:
        text = codecs.getincrementaldecoder(codec)().decode(sample)
    except (UnicodeError, LookupError):
        return None
    if CONTROLS.search(text) or "\0" in text:
        return None
    return text
