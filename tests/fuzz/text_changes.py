"""Changes of bytes, texts, JSON and cards, decided by dice."""

import json
import random
from collections.abc import Iterator
from typing import Any


class Dice(random.Random):
    """Seeded by the run's seed, the target and the input's number.

    Attributes:
        notes: what was changed, for the report.
    """

    def __init__(self, seed: str) -> None:
        """Takes any string."""
        super().__init__(seed)
        self.notes: list[str] = []

    def choose(self, *names: str) -> str:
        """Chooses one of some names, and notes it."""
        name = self.choice(names)
        self.notes.append(repr(name)[1:60].rstrip("'"))
        return name


# --- values: one table for strings of JSON and names of arrays, tensors and members -----------------------------------

# Numbers that sizes and offsets are compared with.
EXTREMES = (0, 1, -1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63))
TEXTS = (
    *("", " ", "unknown", "1", "true", "<S>", "é日本", "a\0b", "a\nb", "\x1b[31mred", "x" * 300, "x" * 100_000),
    *("../x", "/etc/passwd", "a/../../evil", "..", ".", "./config.json", "config.json/", "a/b/c", "a//b", "~/evil"),
    *("C:\\x", "C:evil", "a\\b", "\\\\host\\evil", "a:b", "NUL", "a/" * 200 + "b"),
)
ANYTHING: tuple[Any, ...] = (None, True, False, 0, 1, -1, 1.5, [], {}, [None], {"": None}, [[]], *TEXTS)
# What JSON can say and a Python value cannot, or only slowly.
LITERALS = {
    **{text: text for text in ("1e400", "-1e400", "NaN", "-Infinity", "1e-400", "/* */ 1", "None", '"\\ud800"')},
    "10^30": "1" + "0" * 30,
    "5000 digits": "9" * 5000,
    "deep list": "[" * 100_000 + "]" * 100_000,
    "deep object": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "200 deep": "[" * 200 + "]" * 200,
}
MARK = "\x01literal"
ODD_LINES = (
    *(b"", b"\0", b"a\0b c", b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\t" * 9, b"\t" * 10, "\xa0 \u3000".encode()),
    *("\ufeffx \u2028 y \x85 z \x1c w".encode(), b"<S>", b"</S>", b"<UNK>", b"<pad>", b"!!!MAXTERMID", b"\x1b[2J"),
    *(b"x" * 70_000, b"word " * 3_000, "\U0010ffff\U0001f600 \u202e".encode(), b"1\t2\t3", b"-1", b"#", b'"'),
)


def change_bytes(content: bytes, dice: Dice) -> bytes:
    """What a bad disk, a broken download or a careless editor does."""
    start = dice.randrange(len(content) + 1)
    end = min(len(content), start + int(2 ** dice.uniform(0, 12)))
    before, middle, after = content[:start], content[start:end], content[end:]
    size = dice.choice([2, 4, 8])
    number = (dice.choice(EXTREMES) % 256**size).to_bytes(size, dice.choice(["little", "little", "big"]))
    flipped = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 8]) if content else 0):
        flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    changed = {
        "flipped": bytes(flipped),
        "flipped again": bytes(flipped),
        "truncated": dice.choice([before, content[: -dice.randrange(1, 65)], b""]),
        "cut": before + after,
        "twice": before + middle + middle + after,
        "moved": middle + before + after,
        "zeros": before + bytes(len(middle)) + after,
        "inserted": before + dice.randbytes(dice.randrange(1, 100)) + middle + after,
        "a number": before + number + content[start + size :],
        "longer": content + dice.choice([b"\0" * 512, content[:100], dice.randbytes(50), b"\n"]),
    }
    return changed[dice.choose(*changed)]


def change_json(content: bytes, dice: Dice) -> bytes:
    """Changes JSON at one place: another value, a key missing, unknown or twice; the rest stays valid."""
    root = json.loads(content)
    parent, key = dice.choice([*members(root)])
    dice.notes.append(str(key))
    kind = dice.choose("value", "value", "value", "literal", "missing", "another's value", "new key", "twice")
    old, new = f"{json.dumps(key)}: ", replacement(parent[key], dice)
    if kind == "value":
        parent[key] = new
        dice.notes.append(repr(new)[:60])
    elif kind == "literal":
        parent[key] = MARK
        return json.dumps(root, indent=2).replace(json.dumps(MARK), LITERALS[dice.choose(*LITERALS)]).encode()
    elif kind == "missing":
        del parent[key]
    elif kind == "another's value":
        other, its_key = dice.choice([*members(root)])
        parent[key] = json.loads(json.dumps(other[its_key]))  # a copy, so that nothing holds itself
    elif isinstance(parent, list):
        parent *= 2
    elif kind == "new key":
        parent[dice.choose(*TEXTS, str(key).upper(), f"{key}s")] = parent.pop(key)
    else:
        return json.dumps(root, indent=2).replace(old, f"{old}{json.dumps(new)}, {old}", 1).encode()
    return json.dumps(root, indent=2).encode()


def members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside a value, as what holds it and its key there."""
    for key, inner in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
        yield value, key
        if isinstance(inner, (dict, list)):
            yield from members(inner)


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


def change_text(content: bytes, dice: Dice) -> bytes:
    """Changes one line, or how all lines end or are encoded."""
    lines, odd = content.split(b"\n"), dice.choice(ODD_LINES)
    place = dice.randrange(len(lines))
    before, line, after = lines[:place], lines[place], lines[place + 1 :]
    cut, text = dice.randrange(len(line) + 1), content.decode("utf-8", "replace")
    encoding = dice.choice(["utf-16", "utf-8-sig", "utf-32", "utf-7"])
    changed = {
        "odd line": [*before, odd, line, *after],
        "odd end": [*lines, odd],
        "odd text within": [*before, line[:cut] + odd + line[cut:], *after],
        "lost": before + after,
        "twice": [*before, *[line] * dice.choice([2, 2, 501]), *after],
        "moved": [*after, line, *before],
        "joined": [*before, dice.choice([b"", b" ", b"\t"]).join([line, *after[:1]]), *after[1:]],
        "ends": [dice.choice([b"\r\n", b"\r", b"\n\n", b"\x0c", b" \n"]).join(lines)],
        encoding: [text.encode(encoding, "replace")],
        "bytes": [change_bytes(content, dice)],
    }
    return b"\n".join(changed[dice.choose(*changed)])


def change_json_lines(content: bytes, dice: Dice) -> bytes:
    """Changes the JSON of one line, or the lines."""
    if dice.random() < 0.3:
        return change_text(content, dice)
    lines = content.split(b"\n")
    place = dice.randrange(len(lines))
    lines[place] = change_json(lines[place], dice).replace(b"\n", b"")
    return b"\n".join(lines)


# Metadata of a card with a meaning for a reader of YAML.
YAML = {
    "aliases": "\n".join(["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]),
    "code": "x: !!python/object/apply:os.mkdir [unpickled]",
    "deep": "x: " + "[" * 3000,
    "merge": "x: &x {<<: *x}",
    "twice": "license: a\nlicense: [b]",
    "types": "license: 2020-01-01\nlanguage: {no: .nan}\ntags: 0x10\n? [a]\n: ~",
    "documents": "a: 1\n...\n%YAML 9.9",
    "large": f"x: {'9' * 1_100_000}",
    "list": "- a\n- b",
    "evaluations": "model-index: [{name: 1, results: x}]",
}


def change_card(content: bytes, dice: Dice) -> bytes:
    metadata = YAML[dice.choose(*YAML)].encode()
    return content.replace(b"license: mit", metadata) if dice.random() < 0.5 else b"---\n%s\n---\n# T\n" % metadata
