"""From a checkpoint to a complete Hub folder, and back.

options.json + weights.hdf5  --allennlp_to_folder-->  config.json, model.safetensors, tokenizer, code, README.md
the same folder              --folder_to_allennlp-->  options.json + weights.hdf5, the same bits
any other format's reader, its `Checkpoint`  --write_folder-->  such a folder

Where the checkpoint has a softmax, in an hdf5 file of its own or in a TensorFlow checkpoint, the folder is of an
`ElmoForPreTraining` with its tensors in two shards: the biLM, and the softmax, of which `ElmoModel` reads nothing.
Going back, the softmax becomes softmax.hdf5.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from elmo_hf.files import sha256_of_file
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.loading import load_complete
from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.model.modeling_elmo import ElmoModel
from elmo_hf.share.model_card import Conversion, Facts, render_card
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

from .checkpoint import Checkpoint, Reference
from .errors import ConversionError
from .files import new_folder, refuse_existing, write_hdf5
from .readers.allennlp import AllenNlpFiles, read_allennlp
from .readers.hdf5_layout import (
    FORGET_BIAS,
    allennlp_rules,
    has_softmax,
    language_model_rules,
    options_from_config,
    with_forget_bias,
)
from .rules import export_arrays

logger = logging.getLogger(__name__)

# What `--check` embeds: lengths differ, and so do scripts, and one word is longer than the 48 bytes of a row.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64; the golden cases of random weights differ by at most 5e-6, real scales by a little more.
CHECK_TOLERANCE = 1e-4


def allennlp_to_folder(
    files: AllenNlpFiles,
    destination: Path,
    *,
    source_name: str,
    word_splitter: str = "ptb",
    check: bool = False,
    facts: Facts | None = None,
    tell: Callable[[str], None] = logger.warning,
) -> float | None:
    """Converts an AllenNLP or bilm-tf checkpoint to a folder that `AutoModel.from_pretrained` loads.

    Args:
        files: the checkpoint.
        destination: the new folder; it must not exist.
        source_name: what the model card calls the source.
        word_splitter: how the folder's tokenizer splits raw text.
        check: whether to embed `CHECK_SENTENCES` with the written folder and with NumPy from the checkpoint's arrays.
        facts: what is published about the weights, for the card.
        tell: is told what of the checkpoint is not carried.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if the checkpoint cannot be converted or fails the check; nothing is written then.
    """
    refuse_existing(destination)
    checkpoint = read_allennlp(files, word_splitter)
    for note in checkpoint.notes:
        tell(note)
    return write_folder(checkpoint, destination, source_name=source_name, check=check, facts=facts)


def write_folder(
    checkpoint: Checkpoint,
    destination: Path,
    *,
    source_name: str,
    check: bool = False,
    facts: Facts | None = None,
) -> float | None:
    """Writes what a reader read as a folder that `AutoModel.from_pretrained` loads.

    Args:
        checkpoint: the model.
        destination: the new folder; it must not exist.
        source_name: what the model card calls the source.
        check: whether to embed `CHECK_SENTENCES` with the written folder and with the checkpoint's reference.
        facts: what is published about the weights, for the card.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if there is no reference for the check, or the check fails; nothing is written then.
    """
    config, tensors = checkpoint.config, checkpoint.tensors
    with new_folder(destination) as folder:
        _save(config, tensors, folder)
        checkpoint.tokenizer.save_pretrained(folder)
        difference = _check(folder, checkpoint) if check else None
        digests = {name: sha256_of_file(path) for name, path in checkpoint.sources.items()}
        card = render_card(
            destination.resolve().name,
            config=config,
            num_parameters=num_parameters(tensors),
            facts=facts,
            conversion=Conversion(source_name, digests, difference),
            word_splitter=checkpoint.tokenizer.word_splitter,
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
    return difference


def folder_to_allennlp(source: Path, destination: Path) -> list[str]:
    """Converts one of our folders back to `options.json` and `weights.hdf5`, and a language model's `softmax.hdf5`.

    Args:
        source: a folder written by `save_pretrained` or `elmo-hf convert`, or a Hub name.
        destination: the new folder; it must not exist.

    Returns:
        notes for the user: what the format cannot carry, and who can read the files.

    Raises:
        ConversionError: if the format cannot hold the model; nothing is written then.
    """
    refuse_existing(destination)
    try:
        model = _load(source)
    except ValueError as error:
        raise ConversionError(str(error)) from error
    config, is_language_model = model.config, isinstance(model, ElmoForPreTraining)
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    options = options_from_config(config, with_softmax=is_language_model)
    rules = language_model_rules(config) if is_language_model else allennlp_rules(config)
    arrays = with_forget_bias(export_arrays(rules, tensors), config.forget_bias - FORGET_BIAS)
    softmax = {name: arrays.pop(name) for name in list(arrays) if has_softmax([name])}
    needs_words = is_language_model or config.token_encoder == "word_embedding"
    words = ElmoTokenizer.from_pretrained(source).predicted_words if needs_words else None
    with new_folder(destination) as folder:
        (folder / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(folder / "weights.hdf5", arrays)
        if softmax:
            write_hdf5(folder / "softmax.hdf5", softmax)
        if words is not None:
            (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    notes = _export_notes(config, tensors)
    if needs_words and words is None:
        notes.append("there is no `words.txt` in the folder, so no `vocab.txt` says which words the softmax predicts.")
    return notes


def largest_difference(folder: Path, reference: Reference) -> float:
    """Largest absolute difference, over all layers of `CHECK_SENTENCES`, of the folder's model from the reference."""
    model = load_complete(folder)
    inputs = ElmoTokenizer.from_pretrained(folder)(
        [list(words) for words in CHECK_SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).double().numpy()
    differences = []
    for row, words in enumerate(CHECK_SENTENCES):
        expected = reference.embed(words)
        differences.append(np.abs(layers[:, row, : expected.shape[1]] - expected).max())
    return float(np.max(differences))  # unlike max, it never loses a NaN


def _check(folder: Path, checkpoint: Checkpoint) -> float:
    if checkpoint.make_reference is None:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    difference = largest_difference(folder, checkpoint.make_reference())
    if not difference <= CHECK_TOLERANCE:
        raise ConversionError(
            f"the converted model differs from its checkpoint by {difference:.2e}, more than "
            f"{CHECK_TOLERANCE:.0e}; nothing was written. Please report this checkpoint's options."
        )
    return difference


def num_parameters(tensors: dict[str, np.ndarray]) -> int:
    """Numbers of the biLM and its softmax, without scalar mixes and the padding rows that only our tables have."""
    counted = {name: tensor for name, tensor in tensors.items() if not _is_of_a_mix(name)}
    padding_rows = sum(tensor.shape[1] for name, tensor in counted.items() if name.endswith("embedding.weight"))
    return sum(tensor.size for tensor in counted.values()) - padding_rows


def _load(source: Path) -> ElmoModel | ElmoForPreTraining:
    """The biLM, or the language model if that is what was saved."""
    model = load_complete(source, dtype=torch.float32)
    if ElmoForPreTraining.__name__ in (model.config.architectures or []):
        return load_complete(source, ElmoForPreTraining, dtype=torch.float32)
    return model


def _is_of_a_mix(name: str) -> bool:
    return name.removeprefix("elmo.").startswith("scalar_mixes.")


def _save(config: ElmoConfig, tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Writes config, weights and code; a checkpoint without scalar mixes gets none."""
    with torch.device("meta"):
        model = ElmoModel(config) if config.num_softmax_words is None else ElmoForPreTraining(config)
    has_mixes = any(map(_is_of_a_mix, tensors))
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = {name: shape for name, shape in shapes.items() if has_mixes or not _is_of_a_mix(name)}
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}, "the table does not fit the model"
    model.save_pretrained(folder, state_dict={name: torch.from_numpy(tensor) for name, tensor in tensors.items()})


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray]) -> list[str]:
    notes = []
    if config.forget_bias != FORGET_BIAS:
        notes.append(
            f"the format adds {FORGET_BIAS} to the forget gate; its biases are that much smaller, some of them rounded."
        )
    mixes = [tensor for name, tensor in tensors.items() if _is_of_a_mix(name) and name.endswith(".logits")]
    if any(np.ptp(logits) > 0 for logits in mixes):
        notes.append("the scalar mix is not carried: the format holds the biLM only.")
    unreadable = {
        "use_skip_connections is off": not config.use_skip_connections,
        "max_word_length is not 50": config.max_word_length != 50,
        "there is no projection after the character CNN": not config.char_projection,
        "there is no projection in the cell": not config.cell_projection,
        "input is word ids": config.token_encoder == "word_embedding",
    }
    reasons = [reason for reason, holds in unreadable.items() if holds]
    if reasons:
        notes.append(f"bilm-tf reads these files, AllenNLP does not, because {' and '.join(reasons)}.")
    return notes
