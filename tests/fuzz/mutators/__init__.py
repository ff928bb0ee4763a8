"""Changes an input: a few of its files, each by bytes or by a change that knows its format.

An input is a `Files`: the content of each file by its name, None for an empty folder of that name.
"""

from collections.abc import Callable, Collection

from .archives import DAMAGE, change_gzip, change_tar, change_zip
from .arrays import change_hdf5, change_safetensors, change_state_dict
from .dice import Dice
from .json_values import change_json
from .raw import change_bytes
from .text import change_lines, change_text

Files = dict[str, bytes | None]
Change = Callable[[bytes, Dice], bytes]

# By the end of a file's name; the first that fits counts.
CHANGES: dict[str, Change] = {
    ".jsonl": change_lines,
    ".json": change_json,
    ".hdf5": change_hdf5,
    ".dump": change_hdf5,
    ".safetensors": change_safetensors,
    ".th": change_state_dict,
    ".pkl": change_state_dict,
    ".pt": change_state_dict,
    ".pth": change_state_dict,
    ".txt": change_text,
    ".dic": change_text,
    ".conllu": change_text,
}


def change_by_name(name: str, content: bytes, dice: Dice) -> bytes:
    """Changes a file's content as its format allows, or its bytes."""
    change = next((change for end, change in EVERY_CHANGE.items() if name.endswith(end)), change_bytes)
    if dice.random() < 0.3:
        return change_bytes(content, dice)
    try:
        return change(content, dice)
    except DAMAGE:  # by a change before
        return change_bytes(content, dice)


# Archives hold files, so their mutators change members by name.
EVERY_CHANGE: dict[str, Change] = {
    ".zip": lambda content, dice: change_zip(content, dice, change_by_name),
    ".tar.gz": lambda content, dice: change_tar(content, dice, change_by_name, "gz"),
    ".tar.bz2": lambda content, dice: change_tar(content, dice, change_by_name, "bz2"),
    **{f"{end}.gz": lambda content, dice, end=end: change_gzip(content, dice, end, change_by_name) for end in CHANGES},
    **CHANGES,
}


# HDF5's library itself crashes on some damaged files, so only whole ones are changed as their format allows.
HOLDS_HDF5 = (".hdf5", ".dump", ".zip", ".gz", ".bz2")


def mutate(files: Files, dice: Dice, changeable: Collection[str] = ()) -> Files:
    """Changes one file, seldom several, of a valid input.

    Args:
        files: the input; it stays as it is.
        dice: decides, and notes what was done.
        changeable: names of the files that may change; none for all.
    """
    changed = dict(files)
    for _ in range(dice.choices([1, 2, 3], [7, 2, 1])[0]):
        name = dice.choice(sorted(changeable or files))
        content = changed.get(name)
        dice.notes.append(name)
        if content is None or dice.random() < 0.08:
            change_file(changed, name, dice)
        elif name.endswith(HOLDS_HDF5) and content != files[name]:
            changed[name] = change_bytes(content, dice)
        else:
            changed[name] = change_by_name(name, content, dice)
    return changed


def change_file(files: Files, name: str, dice: Dice) -> None:
    """Removes, empties or replaces a whole file."""
    kind = dice.choose("removed", "empty", "a folder", "another's bytes", "renamed")
    if kind == "removed":
        files.pop(name, None)
    elif kind == "renamed":
        content = files.pop(name, None)
        files[dice.choice([f"{name}.bak", name.upper(), f"x{name}"])] = content
    else:
        others = [content for other, content in sorted(files.items()) if other != name and content is not None]
        files[name] = {"empty": b"", "a folder": None}.get(kind, dice.choice(others or [b"x"]))
