"""Which checkpoint a run goes on from, and checks of its files before they are used.

The last file of a checkpoint marks it as complete. A checkpoint without that file, or with a damaged one, is ignored. A
complete checkpoint with another damaged file is refused: the user decides to lose it. Pickles are read only as torch's
own files of tensors, which run no code.
"""

import json
import logging
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import TrainerState

logger = logging.getLogger(__name__)

NUMBER = (int, float)
NOTHING = type(None)
# What `TrainerState` must hold for a run to go on.
STATE: dict[str, tuple[type, ...]] = {
    "global_step": (int,),
    "max_steps": (int,),
    "epoch": NUMBER,
    "logging_steps": NUMBER,
    "eval_steps": NUMBER,
    "save_steps": NUMBER,
    "num_train_epochs": NUMBER,
    "num_input_tokens_seen": NUMBER,
    "total_flos": NUMBER,
    "train_batch_size": (int, NOTHING),
    "log_history": (list,),
    "stateful_callbacks": (dict,),
    "best_metric": (*NUMBER, NOTHING),
    "best_global_step": (int, NOTHING),
    "best_model_checkpoint": (str, NOTHING),
}
# What reading damaged bytes, or whole ones with another content, may raise.
DAMAGE: tuple[type[Exception], ...] = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError)
DAMAGE += (RuntimeError, TypeError, ValueError, SafetensorError, pickle.UnpicklingError, zipfile.BadZipFile)
# The Trainer would go on without them.
NEEDED = ("optimizer.pt", "scheduler.pt")


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint whose last file is valid; a run may have been killed while it wrote one."""
    checkpoints = [
        (int(path.name.rpartition("-")[2]), path) for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()
    ]
    for _, path in sorted(checkpoints, reverse=True):
        if _is_state(path / "trainer_state.json"):
            return path
        logger.warning("%s is incomplete, so it is ignored.", path)
    return None


def check_files(checkpoint: Path) -> None:
    """Checks the files of a checkpoint that are read when a run goes on.

    Raises:
        ValueError: with the file, if it is missing or damaged, or is no file of tensors.
    """
    for path in sorted({*checkpoint.iterdir(), *(checkpoint / name for name in NEEDED)}):
        with refusing(path):
            if path.suffix in (".pt", ".pth"):
                _check_torch_file(path)
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    file.keys()
            elif path.name.startswith("pytorch_model"):
                raise ValueError("weights must be in safetensors")
            elif path.name == "config.json":
                _read_object(path)
            elif path.name == "model.safetensors.index.json":
                _check_index(path)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turns what reading a damaged file raises into a `ValueError` that names the file and says what to do."""
    try:
        yield
    except DAMAGE as error:
        raise ValueError(
            f"{path} is damaged, or was not written by this run ({_reason(error)}). Delete the folder {path.parent} "
            "and give the same command again: it goes on from the checkpoint before, or starts anew."
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):  # whose own message advises to run the code
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        return "it holds more than numbers" + (f": {found[1]}, which is code" if found else "")
    return (str(error) or type(error).__name__).splitlines()[0][:200].rstrip(".")


def _check_torch_file(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is a compressed zip file; torch.save writes uncompressed ones")
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"its member {damaged} has a wrong checksum")
    if path.suffix == ".pt":  # random generators, `.pth`, are read by transformers, which knows what is safe there
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def _check_index(path: Path) -> None:
    names = _read_object(path)["weight_map"].values()
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"it names {str(name)[:80]!r}, which is no safetensors file beside it")


def _read_object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError("it must hold one JSON object")
    return value


def _is_state(path: Path) -> bool:
    """Whether a file holds a state of the Trainer that a run can go on from."""
    try:
        state = TrainerState.load_from_json(str(path))
    except (OSError, RecursionError, TypeError, ValueError):
        return False
    if not all(_is_a(getattr(state, name), kinds) for name, kinds in STATE.items()):
        return False
    is_log = all(
        isinstance(entry, dict) and _is_a(entry.get("step"), (int,)) and all(_is_a(x, NUMBER) for x in entry.values())
        for entry in state.log_history
    )
    return is_log and 0 <= state.global_step <= state.max_steps and 0 <= state.epoch <= state.global_step


def _is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)
