"""Checks of an export that need no model; a light module, so that the command line refuses at once."""

from pathlib import Path

from ..extras import require
from ..files import check_new_file

# The packages that each suffix needs beside torch.
PACKAGES: dict[str, tuple[str, ...]] = {".onnx": ("onnx", "onnxscript"), ".pt2": ()}


def check_output(path: Path) -> None:
    """Checks that a model can be written to a file; removes what a killed run left beside a complete one.

    Raises:
        FileExistsError: if the file or its file of weights exists.
        FileNotFoundError: if the folder does not exist.
        ImportError: if a package is missing.
        ValueError: if the suffix is not in `PACKAGES`.
    """
    if path.suffix not in PACKAGES:
        raise ValueError(f"the output's suffix must be .onnx or .pt2, found {path.name!r}.")
    for file in (path, weights_file(path)):
        check_new_file(file)
    require("export", *PACKAGES[path.suffix])


def weights_file(path: Path) -> Path:
    """The file beside an ONNX file that holds its weights if they do not fit into it."""
    return path.with_name(path.name + ".data")
