"""Changes texts line by line: vocabularies, lexicons, corpora, CoNLL-U, JSON lines."""

from .dice import Dice
from .json_values import change_json
from .raw import change_bytes

ODD_LINES = (
    b"",
    b"\0",
    b"a\0b c",
    b"\xff\xfe",
    b"caf\xe9",
    b"\xed\xa0\x80",
    b"\t" * 9,
    b"\t" * 10,
    b" \xc2\xa0 \xe3\x80\x80",
    "\ufeffx \u2028 y \x85 z \x1c w".encode(),
    b"<S>",
    b"</S>",
    b"<UNK>",
    b"<pad>",
    b"!!!MAXTERMID",
    b"\x1b[2J",
    b"x" * 70_000,
    b"word " * 3_000,
    "\U0010ffff\U0001f600 \u202e".encode(),
    b"1\t2\t3",
    b"-1",
    b"#",
    b'"',
)


def change_text(content: bytes, dice: Dice) -> bytes:
    """Changes one line, or how all lines end or are encoded."""
    lines = content.split(b"\n")
    place = dice.randrange(len(lines))
    kind = dice.choose(
        "odd line", "odd line", "within", "lost", "twice", "moved", "joined", "ends", "encoding", "bytes"
    )
    if kind == "odd line":
        lines.insert(place, dice.choice(ODD_LINES))
    elif kind == "within":
        odd = dice.choice(ODD_LINES)
        cut = dice.randrange(len(lines[place]) + 1)
        lines[place] = lines[place][:cut] + odd + lines[place][cut:]
    elif kind == "lost":
        del lines[place]
    elif kind == "twice":
        lines[place:place] = [lines[place]] * dice.choice([1, 1, 500])
    elif kind == "moved":
        lines.insert(dice.randrange(len(lines)), lines.pop(place))
    elif kind == "joined":
        lines[place : place + 2] = [dice.choice([b"", b" ", b"\t"]).join(lines[place : place + 2])]
    elif kind == "ends":
        return dice.choice([b"\r\n", b"\r", b"\n\n", b"\x0c", b" \n"]).join(lines)
    elif kind == "encoding":
        text = content.decode("utf-8", "replace")
        return text.encode(dice.choose("utf-16", "utf-8-sig", "utf-32", "utf-7"), "replace")
    else:
        return change_bytes(content, dice)
    return b"\n".join(lines)


def change_lines(content: bytes, dice: Dice) -> bytes:
    """Changes the JSON of one line, or the lines."""
    if dice.random() < 0.3:
        return change_text(content, dice)
    lines = content.split(b"\n")
    place = dice.randrange(len(lines))
    lines[place] = change_json(lines[place], dice).replace(b"\n", b"")
    return b"\n".join(lines)
