"""From a checkpoint to a complete Hub folder, and back.

any SOURCE of a known format  --convert_source-->  config.json, model.safetensors, tokenizer, code, README.md
such a folder  --folder_to_allennlp-->  options.json + weights.hdf5, with the same bits

If the checkpoint has a softmax, in a separate hdf5 file or in a TensorFlow checkpoint, the folder has an
`ElmoForPreTraining`. The model's tensors are in two shards, the biLM and the softmax, so `ElmoModel` need not read the
second shard. On the way back the softmax becomes softmax.hdf5.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo_hf.disk.checksums import sha256_of_file, write_sums
from elmo_hf.disk.whole_files import new_folder, refuse_existing
from elmo_hf.folder.listed_files import MODEL_FILES
from elmo_hf.folder.loading import load_complete, load_tokenizer, open_folder
from elmo_hf.folder.saved_config import read_config
from elmo_hf.public import ElmoConfig, ElmoForPreTraining, ElmoModel
from elmo_hf.share.model_card import NO_LANGUAGE, CardContent, Conversion, Facts, as_list, render_card

from .alignment import align
from .check import check_conversion
from .contract import Checkpoint, NamedFiles, Report, drop_message
from .formats import recognise
from .hdf5 import write_arrays
from .model import is_of_a_mix, save_model
from .readers.hdf5_layout import (
    FORGET_BIAS,
    SOFTMAX_BIAS,
    SOFTMAX_MATRIX,
    allennlp_rules,
    language_model_rules,
    options_from_config,
    with_forget_bias,
)
from .refusals import AnotherModelError, ConversionError, listed
from .rules import export_arrays
from .sources import Source, open_source
from .word_order import note_on_word_order

# The classes of a saved folder with a softmax.
LANGUAGE_MODELS = ("ElmoForPreTraining", "ElmoForCausalLM")
WITHOUT_NAME = "If you mean this model, convert it without the published model's name."


@dataclass(frozen=True)
class FolderSettings:
    """How the folder of a converted checkpoint is checked, written and described."""

    word_splitter: str | None = None  # how the tokenizer splits raw text; for None the format and the language decide
    check: bool = False  # whether to compare the folder with the witness, before its weights are rounded to `dtype`
    dtype: str = "float32"  # the type of the written weights: float32 or bfloat16
    align_files: Mapping[int, Path] | None = None  # the file of a matrix for each layer to align (`alignment.py`)
    source_name: str | None = None  # the card's name for the source; None: the name of its file or folder
    facts: Facts | None = None  # published facts about the weights, for the card
    labels: Mapping[str, Any] | None = None  # the user's labels of the weights, for the card (`card_labels`)
    size: str = ""  # cells and projection of each direction that a published model has, such as 4096/512
    origin: str | None = None  # where a published model's files came from, if not from the published addresses
    loaded_folder: str | None = None  # the path that the card's snippet loads; None: the name of the folder
    md5: Sequence[str] = ()  # the published MD5s of a published model's files, all of which must have been read


DEFAULTS = FolderSettings()


def convert_source(
    path: Path,
    destination: Path,
    files: NamedFiles,
    settings: FolderSettings = DEFAULTS,
    report: Report = drop_message,
) -> float | None:
    """Converts a SOURCE of any known format to a folder that `AutoModel.from_pretrained` loads.

    If neither the labels nor the facts have English among known languages, and no word splitter is set, raw text is
    split at blanks.

    Args:
        path: a folder, a file, or an archive.
        destination: the new folder; it must not exist.
        files: the files that the user named besides `path`.
        settings: how the folder is checked, written and described.
        report: a function for messages: the format, parts of the source that the folder lacks, and published vectors.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if the source cannot be converted or fails the check; nothing is written then.
        FileExistsError: if the destination exists.
    """
    refuse_missing(files, settings)
    with new_folder(destination) as folder:
        with open_source(path, folder) as source:
            checkpoint = _read_checkpoint(source, files, settings, report)
            difference, reproduced = _write_model(checkpoint, folder, settings, report)
            digested = source.to_digest(checkpoint.sources.values())
            digests = {name: sha256_of_file(file) for name, file in digested.items()}
            name = settings.source_name or path.resolve().name
            conversion = Conversion(name, digests, difference, settings.origin, reproduced)
            card = _card(checkpoint, destination.resolve().name, conversion, settings)
            (folder / "README.md").write_text(card, encoding="utf-8")
        write_sums(folder, MODEL_FILES)
    return difference


def refuse_missing(files: NamedFiles, settings: FolderSettings) -> None:
    """Raises ConversionError if a file that the user named does not exist, before anything is read or downloaded."""
    matrices = settings.align_files or {}
    for path in (*vars(files).values(), *matrices.values()):
        if path is not None and not path.exists():
            raise ConversionError(f"there is no file {path}.")


def _read_checkpoint(source: Source, files: NamedFiles, settings: FolderSettings, report: Report) -> Checkpoint:
    """Reads a source by the first format that fits, and aligns the layers that have a matrix."""
    source_format = recognise(source)
    report(f"Found {source_format.name} in {source.path}.")
    unused = [name for name, file in vars(files).items() if file is not None and name not in source_format.takes]
    if unused:
        names = " or ".join(f"`{name}`" for name in unused)
        raise ConversionError(
            f"{source.path} is {source_format.name}, whose reader takes no {names} file; convert it without."
        )
    checkpoint = source_format.read(source, files, _word_splitter(settings, report))
    check_is_published(checkpoint, settings.size, settings.md5, source.path)
    if settings.align_files:
        checkpoint = align(checkpoint, settings.align_files)
    for note in checkpoint.notes:
        report(f"Note: {note}")
    return checkpoint


def check_is_published(checkpoint: Checkpoint, size: str, md5: Sequence[str], path: Path) -> None:
    """Checks that a checkpoint has the sizes and the files of the published model that it should be.

    Args:
        checkpoint: what was read.
        size: cells and projection, such as `4096/512`; empty if they are not known.
        md5: the published digests, each of a file that was read or of the archive; empty if none is known.
        path: where it was read: a folder, a file or an archive.

    Raises:
        AnotherModelError: if it has other sizes, or if no file has one of the digests.
    """
    found = f"{checkpoint.config.cell_size}/{checkpoint.config.projection_size}"
    if size not in ("", found):
        raise AnotherModelError(
            f"{path} must have the LSTM cells and the projection of the published model, {size} in each direction, but "
            f"has {found}, so it is another model.",
            WITHOUT_NAME,
        )
    if not md5:
        return
    files = dict(checkpoint.sources)
    if path.is_file():
        files[path.name] = path
    digests = {name: _md5_of(file) for name, file in files.items()}
    missing = [digest for digest in md5 if digest not in digests.values()]
    if missing:
        found = listed([f"{digest} ({name})" for name, digest in digests.items()])
        raise AnotherModelError(
            f"{path} must have the published files with the MD5 {listed(missing)}, but what was read has {found}, so "
            "it is another model.",
            WITHOUT_NAME,
        )


def _md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _word_splitter(settings: FolderSettings, report: Report) -> str | None:
    """The splitter that the user chose; blanks, if the weights are known not to be English; else None."""
    if settings.word_splitter is not None:
        return settings.word_splitter
    metadata = dict(settings.facts.metadata) if settings.facts is not None else {}
    languages = as_list((metadata | dict(settings.labels or {})).get("language"))
    if not languages or any(language.split("-")[0] == "en" for language in languages):
        return None
    if NO_LANGUAGE in languages:
        report(
            f"Note: the language is {NO_LANGUAGE}, as of proteins, so raw text is split at blanks only: write residues "
            "apart, or give FASTA."
        )
        return "whitespace"
    report(
        f"Note: the language is {', '.join(languages)}, so raw text is split at blanks only: write words and "
        "punctuation apart, as in the training text, or set `word_splitter` to `ptb` for English rules."
    )
    return "whitespace"


def _write_model(
    checkpoint: Checkpoint, folder: Path, settings: FolderSettings, report: Report
) -> tuple[float | None, list[str]]:
    """Writes model and tokenizer.

    Returns:
        the largest difference of the check, or None without a check, and the models whose published vectors it has.
    """
    save_model(checkpoint, folder)
    checkpoint.tokenizer.save_pretrained(folder)
    difference = None
    reproduced: list[str] = []
    if settings.check:
        difference, reproduced = check_conversion(folder, checkpoint)
        for name in reproduced:
            report(f"Note: the vectors are those that were published for {name}.")
        if checkpoint.config.num_softmax_words is not None:
            note = note_on_word_order(folder)
            if note is not None:
                report(f"Note: {note}")
    if settings.dtype != "float32":
        save_model(checkpoint, folder, settings.dtype)
    return difference, reproduced


def _card(checkpoint: Checkpoint, name: str, conversion: Conversion, settings: FolderSettings) -> str:
    has_softmax = checkpoint.config.num_softmax_words is not None
    content = CardContent(
        checkpoint.config,
        num_parameters=sum(tensor.size for tensor in checkpoint.tensors.values()),
        auto_class="AutoModelForPreTraining" if has_softmax else "AutoModel",
        word_splitter=checkpoint.tokenizer.word_splitter,
        facts=settings.facts,
        conversion=conversion,
        folder=settings.loaded_folder,
    )
    return render_card(name, content, settings.labels)


def folder_to_allennlp(source: Path, destination: Path) -> list[str]:
    """Converts one of our folders back to `options.json`, `weights.hdf5` and, for a language model, `softmax.hdf5`.

    Args:
        source: a folder written by `save_pretrained` or `elmo-hf convert`, or a Hub name.
        destination: the new folder; it must not exist.

    Returns:
        notes about the parts that the format cannot hold, and the software that reads the files.

    Raises:
        ValueError: if the folder cannot be loaded, or the format cannot hold the model; nothing is written then.
        FileExistsError: if the destination exists.
    """
    refuse_existing(destination)
    saved_config, _ = read_config(open_folder(source, weights=False))
    is_language_model = any(name in LANGUAGE_MODELS for name in saved_config.architectures or [])
    model_class = ElmoForPreTraining if is_language_model else ElmoModel
    model = load_complete(source, model_class, dtype=torch.float32)
    config = model.config
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    options = options_from_config(config, with_softmax=is_language_model)
    rules = language_model_rules(config) if is_language_model else allennlp_rules(config)
    arrays = with_forget_bias(export_arrays(rules, tensors), config.forget_bias - FORGET_BIAS)
    softmax = {name: arrays.pop(name) for name in (SOFTMAX_MATRIX, SOFTMAX_BIAS) if name in arrays}
    needs_words = is_language_model or config.token_encoder == "word_embedding"
    words = load_tokenizer(source).predicted_words if needs_words else None
    with new_folder(destination) as folder:
        (folder / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_arrays(folder / "weights.hdf5", arrays)
        if softmax:
            write_arrays(folder / "softmax.hdf5", softmax)
        if words is not None:
            (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return _export_notes(config, tensors, lacks_words=needs_words and words is None)


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray], lacks_words: bool) -> list[str]:
    """Notes on what the files lack and who reads them."""
    notes = []
    if config.forget_bias != FORGET_BIAS:
        notes.append(
            f"the format adds {FORGET_BIAS} to the forget gate; its biases are that much smaller, some of them rounded."
        )
    if not _is_equal_mix(tensors):
        notes.append("the mix of layers is left out: the format has only the biLM.")
    if config.aligned_layers:
        notes.append("the matrices of aligned layers are left out: AllenNLP reads them from other files.")
    if _is_googles_module(config):
        notes.append("this is Google's model, which reads no `<S>` and `</S>`; AllenNLP and bilm-tf always add them.")
    reasons = _reasons_against_allennlp(config)
    if not config.bidirectional:
        notes.append("this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it.")
    elif reasons:
        notes.append(f"bilm-tf reads these files, AllenNLP does not, because {' and '.join(reasons)}.")
    if lacks_words:
        notes.append("the tokenizer has no words of the softmax, so no `vocab.txt` says which words it predicts.")
    return notes


def _is_equal_mix(tensors: dict[str, np.ndarray]) -> bool:
    """Whether all mixes have equal weights, as the mix that the reading software makes by itself."""
    for name, tensor in tensors.items():
        if not is_of_a_mix(name):
            continue
        is_equal = np.ptp(tensor) == 0 if name.endswith(".logits") else np.all(tensor == 1)
        if not is_equal:
            return False
    return True


def _is_googles_module(config: ElmoConfig) -> bool:
    """Whether the model is Google's module of TF-Hub (`readers/tf_hub.py`)."""
    settings = getattr(config, "task_specific_params", None) or {}
    module = settings.get("tfhub")
    return isinstance(module, dict) and bool(module.get("scaled_mean"))


def _reasons_against_allennlp(config: ElmoConfig) -> list[str]:
    """Why AllenNLP cannot read the files of a biLM."""
    reasons = []
    if not config.use_skip_connections:
        reasons.append("use_skip_connections is off")
    if config.max_word_length != 50:
        reasons.append("max_word_length is not 50")
    if not config.char_projection:
        reasons.append("there is no projection after the character CNN")
    if not config.cell_projection:
        reasons.append("there is no projection in the cell")
    if config.token_encoder == "word_embedding":
        reasons.append("input is word ids")
    return reasons
