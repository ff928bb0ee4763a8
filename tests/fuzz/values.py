"""Changes of content that is no container: bytes, JSON, lines of text. All decisions are those of one input's dice."""

import json
import random
from typing import Any, TypeVar

Choice = TypeVar("Choice", bound=str)


class Dice(random.Random):
    """Seeded by the run's seed, the target and the input's number.

    Attributes:
        notes: what was changed, for the report.
    """

    def __init__(self, seed: str) -> None:
        """Takes any string."""
        super().__init__(seed)
        self.notes: list[str] = []

    def choose(self, *names: Choice) -> Choice:
        """Chooses one of some names, and notes it."""
        name = self.choice(names)
        self.notes.append(name)
        return name


# Numbers that sizes and offsets are compared with.
EXTREMES = (0, 1, -1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63))


def change_bytes(content: bytes, dice: Dice) -> bytes:
    """What a bad disk, a broken download or a careless editor does."""
    data = bytearray(content)
    if not data:
        return dice.randbytes(dice.randrange(1, 64))
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + int(2 ** dice.uniform(0, 12)))
    kind = dice.choose("flip", "flip", "truncate", "splice", "duplicate", "cut", "zero", "insert", "extreme", "append")
    if kind == "flip":
        for _ in range(dice.choice([1, 1, 2, 8])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == "truncate":
        del data[dice.choice([start, len(data) - dice.randrange(1, 1 + min(64, len(data))), 0]) :]
    elif kind == "splice":
        place = dice.randrange(len(data))
        data[place : place + end - start] = data[start:end]
    elif kind == "duplicate":
        data[end:end] = data[start:end]
    elif kind == "cut":
        del data[start:end]
    elif kind == "zero":
        data[start:end] = bytes(end - start)
    elif kind == "insert":
        data[start:start] = dice.randbytes(dice.randrange(1, 100))
    elif kind == "append":
        data += dice.choice([b"\0" * 512, content[:100], dice.randbytes(50), b"\n"])
    else:
        overwrite_number(data, dice)
    return bytes(data)


def overwrite_number(data: bytearray, dice: Dice) -> None:
    """Puts an extreme number in place of some bytes."""
    size = dice.choice([2, 4, 8])
    number = dice.choice(EXTREMES) % 256**size
    place = dice.randrange(max(1, len(data) - size + 1))
    data[place : place + size] = number.to_bytes(size, dice.choice(["little", "little", "big"]))


MARK, TWICE = "\x01literal:", "\x01twice"
# What JSON can say and a Python value cannot, or only slowly.
LITERALS = {
    "1e400": "1e400",
    "-1e400": "-1e400",
    "NaN": "NaN",
    "-Infinity": "-Infinity",
    "1e-400": "1e-400",
    "10^30": "1" + "0" * 30,
    "5000 digits": "9" * 5000,
    "deep list": "[" * 100_000 + "]" * 100_000,
    "deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "200 deep": "[" * 200 + "]" * 200,
    "half a pair": '"\\ud800"',
    "a comment": "/* */ 1",
    "python": "None",
}
TEXTS = (
    "",
    " ",
    "a\0b",
    "\x1b[31mred",
    "é日本",
    "../x",
    "/etc/passwd",
    "C:\\x",
    "x" * 100_000,
    "a\nb",
    "1",
    "true",
    "<S>",
)
ANYTHING: tuple[Any, ...] = (None, True, False, 0, 1, -1, 1.5, [], {}, [None], {"": None}, [[]], *TEXTS)


def change_json(content: bytes, dice: Dice) -> bytes:
    """Changes JSON at one place: another value, a key missing, unknown or twice; the rest stays valid."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return change_bytes(content, dice)
    places = list(paths(value))
    if places:
        path = dice.choice(places)
        dice.notes.append(".".join(map(str, path)))
        change_member(at(value, path[:-1]), path[-1], value, dice)
    else:
        value = replacement(value, dice)
    text = json.dumps(value, indent=2, ensure_ascii=True)
    for name, literal in LITERALS.items():
        text = text.replace(json.dumps(MARK + name), literal)
    return text.replace(json.dumps(TWICE)[1:-1], "").encode()


def change_member(parent: Any, key: Any, root: Any, dice: Dice) -> None:
    """Changes one value of a list or an object, or its key."""
    kind = dice.choose("value", "value", "value", "literal", "missing", "other's value", "new key", "twice")
    if kind == "value":
        parent[key] = replacement(parent[key], dice)
        dice.notes.append(repr(parent[key])[:60])
    elif kind == "literal":
        parent[key] = MARK + dice.choose(*LITERALS)
    elif kind == "missing":
        del parent[key]
    elif kind == "other's value":  # a copy, so that nothing holds itself
        parent[key] = json.loads(json.dumps(at(root, dice.choice(list(paths(root))))))
    elif isinstance(parent, list):
        parent *= 2
    elif kind == "new key":
        parent[dice.choose("unknown", "", "a\0b", str(key).upper(), f"{key}s", "x" * 1000)] = parent.pop(key)
    else:
        parent[f"{key}{TWICE}"] = replacement(parent[key], dice)


def replacement(value: Any, dice: Dice) -> Any:
    """Another value: sometimes of any type, mostly of the same and wrong but plausible."""
    if value is None or dice.random() < 0.3:
        return dice.choice(ANYTHING)
    if isinstance(value, bool):
        return dice.choice([not value, int(value), str(value), None])
    if isinstance(value, (int, float)):
        near = [value + 1, value - 1, -value, value * 2, value + 0.5, float(value), str(value), [value], {"a": value}]
        return dice.choice([*near, 0, True, 10**4, 50_000_000, 10**9, 2**31, 2**63, 10**30, 1e300, 1e-40, None])
    if isinstance(value, str):
        return dice.choice([value.upper(), value[:-1], value + "x", value * 2, [value], *TEXTS])
    if isinstance(value, list):
        return dice.choice([[], value * 2, value[::-1], value * 1000, [value], value[1:], {"0": value}, None])
    return dice.choice([{}, [], None, list(value.items()), {key: {} for key in value}])


def paths(value: Any, path: tuple = ()) -> Any:
    """The path of every value inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def at(value: Any, path: tuple) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value


ODD_LINES = (
    *(
        b"",
        b"\0",
        b"a\0b c",
        b"\xff\xfe",
        b"caf\xe9",
        b"\xed\xa0\x80",
        b"\t" * 9,
        b"\t" * 10,
        b" \xc2\xa0 \xe3\x80\x80",
    ),
    *("\ufeffx \u2028 y \x85 z \x1c w".encode(), b"<S>", b"</S>", b"<UNK>", b"<pad>", b"!!!MAXTERMID", b"\x1b[2J"),
    *(b"x" * 70_000, b"word " * 3_000, "\U0010ffff\U0001f600 \u202e".encode(), b"1\t2\t3", b"-1", b"#", b'"'),
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
        cut = dice.randrange(len(lines[place]) + 1)
        lines[place] = lines[place][:cut] + dice.choice(ODD_LINES) + lines[place][cut:]
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
