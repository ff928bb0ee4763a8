"""From a checkpoint to a complete Hub folder, and back.

options.json + weights.hdf5  --allennlp_to_folder-->  config.json, model.safetensors, tokenizer, code, README.md
the same folder              --folder_to_allennlp-->  options.json + weights.hdf5, the same bits
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo_hf.configuration_elmo import ElmoConfig
from elmo_hf.digest import sha256_of_file
from elmo_hf.loading import load_complete
from elmo_hf.model_card import Conversion, Facts, render_card
from elmo_hf.modeling_elmo import ElmoModel
from elmo_hf.tokenization_elmo import ElmoTokenizer

from .allennlp import allennlp_rules, config_from_options, options_from_config
from .errors import ConversionError
from .files import new_folder, read_hdf5, read_options, refuse_existing, write_hdf5
from .reference import ReferenceElmo
from .rules import export_arrays, import_arrays

# What `--check` embeds: lengths differ, and so do scripts, and one word is longer than the 48 bytes of a row.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64; the golden cases of random weights differ by at most 5e-6, real scales by a little more.
CHECK_TOLERANCE = 1e-4


@dataclass(frozen=True)
class AllenNlpFiles:
    """The files of one AllenNLP checkpoint; `vocabulary` is needed for word input only."""

    options: Path
    weights: Path
    vocabulary: Path | None = None

    @classmethod
    def in_folder(cls, folder: Path) -> "AllenNlpFiles":
        """Finds the files by their suffixes.

        Raises:
            ConversionError: if the folder does not hold exactly one options file and one weights file.
        """
        if not folder.is_dir():
            raise ConversionError(
                f"{folder} is not a folder; give a folder with `options.json` and one `.hdf5` file, or use "
                "`--options FILE --weights FILE`."
            )
        options = [path for path in sorted(folder.glob("*options*.json")) if path.is_file()]
        weights = sorted(folder.glob("*.hdf5"))
        preferred = [path for path in options if path.name == "options.json"]
        found = preferred or options
        if len(found) != 1 or len(weights) != 1:
            names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
            raise ConversionError(
                f"{folder} must hold `options.json` and exactly one `.hdf5` file, found {names}; "
                "name the files with `--options FILE --weights FILE`."
            )
        vocabulary = next(iter(sorted(folder.glob("*vocab*.txt"))), None)
        return cls(found[0], weights[0], vocabulary)


def allennlp_to_folder(
    files: AllenNlpFiles,
    destination: Path,
    *,
    source_name: str,
    word_splitter: str = "ptb",
    check: bool = False,
    facts: Facts | None = None,
) -> float | None:
    """Converts an AllenNLP or bilm-tf export to a folder that `AutoModel.from_pretrained` loads.

    Args:
        files: the checkpoint.
        destination: the new folder; it must not exist.
        source_name: what the model card calls the source.
        word_splitter: how the folder's tokenizer splits raw text.
        check: whether to embed `CHECK_SENTENCES` with the written folder and with NumPy from the checkpoint's arrays.
        facts: what is published about the weights, for the card.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if the checkpoint cannot be converted or fails the check; nothing is written then.
    """
    refuse_existing(destination)
    options = read_options(files.options)
    arrays = read_hdf5(files.weights)
    shapes = {name: array.shape for name, array in arrays.items()}
    config = config_from_options(options, shapes, str(files.options))
    tensors = import_arrays(allennlp_rules(config, arrays), arrays, str(files.weights))
    tokenizer = _tokenizer(config, files, word_splitter)
    with new_folder(destination) as folder:
        _save(config, tensors, folder)
        tokenizer.save_pretrained(folder)
        difference = largest_difference(folder, options, arrays) if check else None
        if difference is not None and not difference <= CHECK_TOLERANCE:
            raise ConversionError(
                f"the converted model differs from its checkpoint by {difference:.2e}, more than "
                f"{CHECK_TOLERANCE:.0e}; nothing was written. Please report this checkpoint's options."
            )
        digests = {path.name: sha256_of_file(path) for path in (files.options, files.weights)}
        card = render_card(
            destination.resolve().name,
            config=config,
            num_parameters=num_parameters(tensors),
            facts=facts,
            conversion=Conversion(source_name, digests, difference),
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
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
    arrays = export_arrays(allennlp_rules(config), tensors)
    with new_folder(destination) as folder:
        (folder / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(folder / "weights.hdf5", arrays)
        if config.token_encoder == "word_embedding":
            _write_vocabulary(ElmoTokenizer.from_pretrained(source), config.vocab_size - 1, folder / "vocab.txt")
    return _export_notes(config, tensors)


def largest_difference(folder: Path, options: dict[str, Any], arrays: dict[str, np.ndarray]) -> float:
    """Largest absolute difference, over all layers of `CHECK_SENTENCES`, of the folder's model from NumPy's numbers.

    Raises:
        ConversionError: for word input, which the NumPy reference does not read.
    """
    if "char_cnn" not in options:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    reference = ReferenceElmo(options, arrays)
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


def num_parameters(tensors: dict[str, np.ndarray]) -> int:
    """Numbers in the checkpoint, without the padding row that only our table has."""
    total = sum(tensor.size for tensor in tensors.values())
    return total - tensors["token_encoder.embedding.weight"].shape[1]


def _save(config: ElmoConfig, tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Writes config, weights and code; the checkpoint has no scalar mix, so none is invented."""
    with torch.device("meta"):
        model = ElmoModel(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if "scalar_mixes" not in name}
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}, "the table does not fit the model"
    model.save_pretrained(folder, state_dict={name: torch.from_numpy(tensor) for name, tensor in tensors.items()})


def _tokenizer(config: ElmoConfig, files: AllenNlpFiles, word_splitter: str) -> ElmoTokenizer:
    if config.token_encoder == "char_cnn":
        return ElmoTokenizer(max_word_length=config.max_word_length, word_splitter=word_splitter)
    if files.vocabulary is None:
        raise ConversionError(
            f"{files.weights} is of a model that reads word ids, so its vocabulary is needed to make them: "
            "put `vocab.txt` beside it, or give `--vocabulary FILE` (one word a line)."
        )
    try:
        tokenizer = ElmoTokenizer("word_embedding", word_splitter=word_splitter, vocab_file=str(files.vocabulary))
    except (OSError, ValueError) as error:
        raise ConversionError(f"{files.vocabulary}: {error}") from error
    if max(tokenizer.get_vocab().values()) >= config.vocab_size:
        raise ConversionError(
            f"{files.vocabulary} has more words than `embedding` in {files.weights} has rows, {config.vocab_size - 1}."
        )
    return tokenizer


def _write_vocabulary(tokenizer: ElmoTokenizer, num_words: int, path: Path) -> None:
    """Writes one word a line in the order of the ids; an id whose word occurs twice in the source gets a name."""
    words = {word_id: word for word, word_id in tokenizer.get_vocab().items()}
    lines = [words.get(word_id, f"<unused{word_id}>") for word_id in range(1, num_words + 1)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray]) -> list[str]:
    notes = []
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
