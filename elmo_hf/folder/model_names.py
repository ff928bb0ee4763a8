"""What the name of a model refers to; a light module, so that the command line refuses wrong names at once."""

import json
import re
from pathlib import Path
from typing import Any

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "tiny_model"
# Suffixes of what `elmo-hf convert` reads: files of AllenNLP, bilm-tf and ELMoForManyLangs, and archives of them.
FOREIGN_SUFFIXES = (".hdf5", ".h5", ".index", ".th", ".pkl", ".pb", ".zip", ".gz", ".bz2")
MOST_CONFIG_BYTES = 2**23
# A Hub's name is no path: each part begins with a letter, a digit or an underscore.
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


def model_folder(name: str | Path) -> str | Path:
    """The folder in this package for `"tiny"`; any other name unchanged."""
    return TINY_FOLDER if str(name) == TINY and not Path(name).exists() else name


def check_name(name: str | Path) -> None:
    """Checks the name of a model, and of a folder that it is an ELMo's.

    Raises:
        ValueError: if it is neither a folder that exists, nor `"tiny"`, nor a possible Hub name; if a folder holds
            another kind of model, or files that are still to be converted.
    """
    path = Path(model_folder(name))
    if not path.exists() and HUB_NAME.fullmatch(str(name)) is None:
        raise ValueError(f"there is no folder {name}, and a Hub name looks like org/name.")
    kind = kind_of_model(path / "config.json")
    if kind is not None:
        refuse_other_kinds(name, kind)
        return
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    foreign = [file.name for file in files if file.name.endswith(FOREIGN_SUFFIXES)]
    if foreign:
        found = "" if path.is_file() else f": it holds {', '.join(foreign[:3])}"
        raise ValueError(
            f"{name} is not converted yet{found}. Run `elmo-hf convert {name} NEW` first and give the folder NEW."
        )
    if path.is_file():
        raise ValueError(f"{name} is a file; a model is a folder.")


def kind_of_model(config: Path) -> str | None:
    """The `model_type` of a config.json; None if the file is not there, has none, or is damaged."""
    try:
        is_small = config.stat().st_size <= MOST_CONFIG_BYTES
        fields: Any = json.loads(config.read_text(encoding="utf-8")) if is_small else None
    except (OSError, ValueError, RecursionError):
        return None
    kind = fields.get("model_type") if isinstance(fields, dict) else None
    return kind if isinstance(kind, str) else None


def refuse_other_kinds(name: str | Path, kind: str) -> None:
    """Raises ValueError if a `model_type` is not ELMo's."""
    if kind != "elmo":
        raise ValueError(f"{name} holds a model of `model_type` {kind[:50]!r}; this is not an ELMo.")
