"""From a checkpoint to a complete Hub folder, and back.

options.json + weights.hdf5  --allennlp_to_folder-->  config.json, model.safetensors, tokenizer, code, README.md
the same folder              --folder_to_allennlp-->  options.json + weights.hdf5, the same bits
any other format's reader, its `Checkpoint`  --write_folder-->  such a folder
"""

import json
from pathlib import Path

import numpy as np
import torch

from elmo_hf.configuration_elmo import ElmoConfig
from elmo_hf.digest import sha256_of_file
from elmo_hf.loading import load_complete
from elmo_hf.modeling_elmo import ElmoModel
from elmo_hf.tokenization_elmo import ElmoTokenizer

from .allennlp import FORGET_BIAS, allennlp_rules, options_from_config, with_forget_bias
from .allennlp_files import AllenNlpFiles, read_allennlp
from .checkpoint import Checkpoint, Reference
from .errors import ConversionError
from .files import new_folder, refuse_existing, write_hdf5
from .model_card import render_card
from .rules import export_arrays

# What `--check` embeds: lengths differ, and so do scripts, and one word is longer than the 48 bytes of a row.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64; the golden cases of random weights differ by at most 5e-6, real scales by a little more.
CHECK_TOLERANCE = 1e-4


def allennlp_to_folder(
    files: AllenNlpFiles, destination: Path, *, source_name: str, word_splitter: str = "ptb", check: bool = False
) -> float | None:
    """Converts an AllenNLP or bilm-tf export to a folder that `AutoModel.from_pretrained` loads.

    Args:
        files: the checkpoint.
        destination: the new folder; it must not exist.
        source_name: what the model card calls the source.
        word_splitter: how the folder's tokenizer splits raw text.
        check: whether to embed `CHECK_SENTENCES` with the written folder and with NumPy from the checkpoint's arrays.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if the checkpoint cannot be converted or fails the check; nothing is written then.
    """
    refuse_existing(destination)
    return write_folder(read_allennlp(files, word_splitter), destination, source_name=source_name, check=check)


def write_folder(checkpoint: Checkpoint, destination: Path, *, source_name: str, check: bool = False) -> float | None:
    """Writes what a reader read as a folder that `AutoModel.from_pretrained` loads.

    Args:
        checkpoint: the model.
        destination: the new folder; it must not exist.
        source_name: what the model card calls the source.
        check: whether to embed `CHECK_SENTENCES` with the written folder and with the checkpoint's reference.

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
        sources = {name: sha256_of_file(path) for name, path in checkpoint.sources.items()}
        (folder / "README.md").write_text(
            render_card(
                destination.resolve().name,
                config,
                num_parameters(tensors),
                source_name,
                sources,
                difference,
                checkpoint.tokenizer.word_splitter,
            ),
            encoding="utf-8",
        )
    return difference


def folder_to_allennlp(source: Path, destination: Path) -> list[str]:
    """Converts one of our folders back to `options.json` and `weights.hdf5`.

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
        model = load_complete(source, dtype=torch.float32)
    except ValueError as error:
        raise ConversionError(str(error)) from error
    config = model.config
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    options = options_from_config(config)
    arrays = with_forget_bias(export_arrays(allennlp_rules(config), tensors), config.forget_bias - FORGET_BIAS)
    with new_folder(destination) as folder:
        (folder / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(folder / "weights.hdf5", arrays)
        if config.token_encoder == "word_embedding":
            _write_vocabulary(ElmoTokenizer.from_pretrained(source), config.vocab_size - 1, folder / "vocab.txt")
    return _export_notes(config, tensors)


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
    """Numbers of the biLM, without the padding rows that only our tables have."""
    bilm = {name: tensor for name, tensor in tensors.items() if not name.startswith("scalar_mixes.")}
    padding_rows = sum(tensor.shape[1] for name, tensor in bilm.items() if name.endswith("embedding.weight"))
    return sum(tensor.size for tensor in bilm.values()) - padding_rows


def _save(config: ElmoConfig, tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Writes config, weights and code; a checkpoint without scalar mixes gets none."""
    with torch.device("meta"):
        model = ElmoModel(config)
    has_mixes = any(name.startswith("scalar_mixes.") for name in tensors)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = {name: shape for name, shape in shapes.items() if has_mixes or not name.startswith("scalar_mixes.")}
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}, "the table does not fit the model"
    model.save_pretrained(folder, state_dict={name: torch.from_numpy(tensor) for name, tensor in tensors.items()})


def _write_vocabulary(tokenizer: ElmoTokenizer, num_words: int, path: Path) -> None:
    """Writes one word a line in the order of the ids; an id whose word occurs twice in the source gets a name."""
    words = {word_id: word for word, word_id in tokenizer.get_vocab().items()}
    lines = [words.get(word_id, f"<unused{word_id}>") for word_id in range(1, num_words + 1)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray]) -> list[str]:
    notes = []
    if config.forget_bias != FORGET_BIAS:
        notes.append(
            f"the format adds {FORGET_BIAS} to the forget gate; its biases are that much smaller, some of them rounded."
        )
    mixes = [tensors[name] for name in tensors if name.startswith("scalar_mixes.") and name.endswith(".logits")]
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
