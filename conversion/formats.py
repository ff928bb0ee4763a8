"""A table of the formats that `elmo-hf convert` recognises; the first one that matches is used."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

from .contract import Checkpoint, NamedFiles
from .hdf5 import is_hdf5
from .readers.allennlp import checkpoint_files, read_allennlp_source
from .readers.lstm_language_model import is_language_model, read_language_model
from .readers.manylangs import read_manylangs
from .readers.tf_hub import holds_module, read_tf_hub
from .readers.trained_allennlp import read_trained_allennlp, weights_name
from .refusals import ConversionError, listed
from .sources import Source, files_in

ALL_FILES = frozenset(field.name for field in fields(NamedFiles))
FILES_OF_MANYLANGS = {"encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"}


@dataclass(frozen=True)
class Format:
    """One format of the table."""

    name: str  # its name, for the user
    matches: Callable[[Source], bool]  # whether a source's files look like this format
    # A function that reads the source, or raises a `ConversionError` with advice. The third argument says how the
    # tokenizer splits raw text; for None the format decides.
    read: Callable[[Source, NamedFiles, str | None], Checkpoint]
    takes: frozenset[str]  # the fields of `NamedFiles` that `read` uses
    files: tuple[str, ...]  # patterns of the names of its files, of which one by itself may not be enough
    needs_folder: bool = False  # whether one file, which is no archive, cannot be the source


def holds_manylangs(source: Source) -> bool:
    """Whether a source has one of the files that only ELMoForManyLangs writes."""
    return any(name in source.files for name in FILES_OF_MANYLANGS)


def holds_trained_model(source: Source) -> bool:
    """Whether a source has the state dict of a model that AllenNLP trained."""
    return weights_name(source) is not None


def holds_save_directory(source: Source) -> bool:
    """Whether a source has a checkpoint of bilm-tf's training."""
    return any(name.endswith(".index") for name in checkpoint_files(source))


def holds_hdf5(source: Source) -> bool:
    """Whether a source has an hdf5 file."""
    return any(is_hdf5(name) for name in source.files)


CHECKPOINT_FORMATS = (
    Format(
        "an ELMoForManyLangs model",
        holds_manylangs,
        read_manylangs,
        takes=frozenset(),
        files=(*FILES_OF_MANYLANGS, "config.json"),
        needs_folder=True,
    ),
    Format(
        "an LSTM language model",
        is_language_model,
        read_language_model,
        takes=frozenset(),
        files=("vocab.txt", "*.pt"),
    ),
    Format(
        "a trained AllenNLP model",
        holds_trained_model,
        read_trained_allennlp,
        takes=frozenset({"options"}),
        files=("config.json", "*.th"),
    ),
    Format(
        "a TensorFlow Hub module",
        holds_module,
        read_tf_hub,
        takes=frozenset({"options"}),
        files=("saved_model.pb", "tfhub_module.pb", "variables.*"),
    ),
    Format(
        "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)",
        holds_save_directory,
        read_allennlp_source,
        takes=ALL_FILES,
        files=("*options*.json", "*vocab*.txt", "checkpoint", "model.ckpt-*"),
    ),
    Format(
        "options and weights of AllenNLP, bilm-tf or simple_elmo",
        holds_hdf5,
        read_allennlp_source,
        takes=ALL_FILES,
        files=("*options*.json", "*vocab*.txt"),
    ),
)


def recognise(source: Source) -> Format:
    """Finds the first format that matches; raises ConversionError if none does."""
    first = _first_match(source)
    if first is not None:
        return first
    names = "; ".join(checkpoint_format.name for checkpoint_format in CHECKPOINT_FORMATS)
    if not source.files:
        raise ConversionError(f"{source.path} is empty; it must hold one of: {names}.")
    advice = ""
    if any(name.endswith(".safetensors") for name in source.files):
        advice = (
            " A `model.safetensors` is converted already: `from_pretrained` loads it, and `folder_to_allennlp` "
            "converts it back."
        )
    elif source.is_file:
        advice = _advice_on_folder(source.path)
    raise ConversionError(f"{source.path} must hold one of: {names}. It holds {listed(sorted(source.files))}.{advice}")


def _first_match(source: Source) -> Format | None:
    for checkpoint_format in CHECKPOINT_FORMATS:
        is_too_little = source.is_file and checkpoint_format.needs_folder
        if checkpoint_format.matches(source) and not is_too_little:
            return checkpoint_format
    return None


def _advice_on_folder(file: Path) -> str:
    """A sentence, with a blank in front, to give the folder of a file if both may be of one checkpoint; else ""."""
    folder = file.parent
    first = _first_match(Source(folder, files_in(folder, "*")))
    if first is None or not any(fnmatchcase(file.name, pattern) for pattern in first.files):
        return ""
    return f" If the folder {folder} holds {first.name}, give the folder in place of this file."
