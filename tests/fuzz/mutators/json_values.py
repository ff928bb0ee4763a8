"""Changes JSON at one place: another value, a key missing, unknown or twice; the rest stays valid."""

import json
from typing import Any

from .dice import Dice
from .raw import change_bytes

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
Path = tuple[Any, ...]


def change_json(content: bytes, dice: Dice) -> bytes:
    """Changes one value or key; changes bytes if the content is no JSON object or list."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return change_bytes(content, dice)
    places = list(paths(value))
    if not places:
        return dump(replacement(value, dice))
    path = dice.choice(places)
    dice.notes.append(".".join(map(str, path)))
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    change_member(parent, path[-1], value, dice)
    return dump(value)


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
    elif kind == "other's value":
        other = root
        for step in dice.choice(list(paths(root))):
            other = other[step]
        parent[key] = json.loads(json.dumps(other))  # a copy, so that nothing holds itself
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


def paths(value: Any, path: Path = ()) -> Any:
    """The path of every value inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def dump(value: Any) -> bytes:
    """Writes JSON with the literals in it."""
    text = json.dumps(value, indent=2, ensure_ascii=True)
    for name, literal in LITERALS.items():
        text = text.replace(json.dumps(MARK + name), literal)
    return text.replace(json.dumps(TWICE)[1:-1], "").encode()
