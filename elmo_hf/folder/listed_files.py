"""Compares a folder with its `SHA256SUMS`, and with the files that it should have by its other files.

    a model                 the list has the files that decide its numbers (`MODEL_FILES`); other files may change
    a run of pretraining    the model that it trained, and checkpoints with lists of their own
    a checkpoint            the list has every file, as has that of a download

A list of earlier versions has only the weights of a model.
"""

from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..disk.checksums import SUMS, Comparison, files_below, recorded_sums, sha256_of_file
from ..model.configuration_elmo import CODE_FILES
from ..model.modeling_elmo import SENTENCE_FILES
from .weight_files import weight_names

CONFIG, WEIGHTS = "config.json", "*.safetensors"
# The files that decide what a model computes, and those that transformers would read in their place.
MODEL_FILES = (
    WEIGHTS,
    SAFE_WEIGHTS_INDEX_NAME,
    CONFIG,
    "generation_config.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "words.txt",
    "vector_words.txt",
    "vocab.txt",
    *SENTENCE_FILES,
    *CODE_FILES,
)
# The files that make a folder a checkpoint of a Trainer, and a run of pretraining.
TRAINER_STATE, RUN = "trainer_state.json", "run.json"


def is_of_model(name: str, patterns: Iterable[str] = MODEL_FILES) -> bool:
    """Whether the name of a file in a folder is one of those that decide what a model computes."""
    return any(fnmatch(name, pattern) for pattern in patterns)


def compare_with_list(folder: Path) -> Comparison:
    """Compares the files of a folder on a disk with its list and with each other.

    Raises:
        ValueError: if there is no list, neither in the folder nor in its checkpoints.
    """
    checkpoints = [path for path in sorted(folder.glob("checkpoint-*")) if path.is_dir()]
    comparison = Comparison()
    if (folder / SUMS).is_file():
        _compare(folder, comparison)
    elif any((checkpoint / SUMS).is_file() for checkpoint in checkpoints):
        comparison.faults.append(f"{SUMS} is missing, so the run is not finished, or the file was lost")
    else:
        raise ValueError(
            f"{folder} has no {SUMS} to compare with. Conversion, pretraining, downloads and `elmo-hf embed` into a "
            "folder write lists of checksums; `save_pretrained` and single files have none."
        )
    for checkpoint in checkpoints:
        if (checkpoint / SUMS).is_file():
            _compare(checkpoint, comparison, prefix=f"{checkpoint.name}/")
        elif (folder / RUN).is_file():
            comparison.faults.append(f"{checkpoint.name} has no {SUMS}, so it is not complete")
        else:
            comparison.notes.append(f"{checkpoint.name} has no {SUMS} and was not compared.")
    return comparison


def _compare(folder: Path, comparison: Comparison, prefix: str = "") -> None:
    """Adds what a folder with a list has; `prefix` is put before its files' names."""
    listed = recorded_sums(folder)
    if not listed:
        comparison.faults.append(f"{prefix}{SUMS} lists no file")
        return
    is_checkpoint = TRAINER_STATE in listed or (folder / TRAINER_STATE).is_file()
    is_model = not is_checkpoint and any(is_of_model(name, (WEIGHTS, CONFIG)) for name in listed)
    if is_model:
        there = {path.name: path for path in folder.iterdir() if path.is_file()}
        patterns = MODEL_FILES if CONFIG in listed else (WEIGHTS, "adapter_config.json")
        covered = {name for name in there if is_of_model(name, patterns)}
        others = {path.name for path in folder.iterdir() if not path.name.startswith(".")} - covered - {SUMS}
        _note_others({name for name in others if not name.startswith("checkpoint-")}, listed, comparison)
    else:
        there = files_below(folder)
        covered = {*there}
    for name, digest in listed.items():
        comparison.count += 1
        if name not in there:
            comparison.faults.append(f"{prefix}{name} is missing")
        elif sha256_of_file(there[name]) != digest:
            comparison.faults.append(f"{prefix}{name} is changed")
    comparison.faults += [f"{prefix}{name} is not in {SUMS}" for name in sorted(covered - listed.keys())]
    if is_model or is_checkpoint:
        lost = [name for name in _weights_of(folder) if name not in there and name not in listed]
        comparison.faults += [f"{prefix}{name} is missing" for name in lost]


def _weights_of(folder: Path) -> list[str]:
    """The files of weights that a model needs; one alone if its index cannot be read."""
    try:
        return sorted(weight_names(folder))
    except ValueError:
        return [SAFE_WEIGHTS_NAME]


def _note_others(names: set[str], listed: Iterable[str], comparison: Comparison) -> None:
    """Notes which files of a model folder are not compared."""
    if not names:
        return
    reason = f"{SUMS} does not list them"
    if CONFIG not in listed:
        reason = f"{SUMS} is of an earlier version and lists only the weights"
    comparison.notes.append(f"Not compared, because {reason}: {', '.join(sorted(names))}.")
