"""What the name of a model refers to; a light module, so that the command line refuses wrong names at once."""

from pathlib import Path

TINY = "tiny"
TINY_FOLDER = Path(__file__).parent / "tiny_model"


def model_folder(name: str | Path) -> str | Path:
    """The folder in this package for `"tiny"`; any other name unchanged."""
    return TINY_FOLDER if name == TINY and not Path(name).exists() else name


def check_name(name: str | Path) -> None:
    """Checks the name of a model.

    Raises:
        ValueError: if it is neither a folder that exists, nor `"tiny"`, nor a possible Hub name.
    """
    if not Path(model_folder(name)).exists() and len(Path(name).parts) != 2:
        raise ValueError(f"there is no folder {name}, and a Hub name looks like org/name.")
