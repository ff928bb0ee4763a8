"""From a checkpoint to a complete Hub folder, and back.

options.json + weights.hdf5  --allennlp_to_folder-->  config.json, model.safetensors, tokenizer, code, README.md
the same folder              --folder_to_allennlp-->  options.json + weights.hdf5, the same bits

Where the checkpoint has a softmax, in an hdf5 file of its own or in a TensorFlow checkpoint, the folder is of an
`ElmoForPreTraining` with its tensors in two shards: the biLM, and the softmax, of which `ElmoModel` reads nothing.
Going back, the softmax becomes softmax.hdf5.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo_hf.configuration_elmo import ElmoConfig
from elmo_hf.digest import sha256_of_file
from elmo_hf.loading import load_complete
from elmo_hf.model_card import Conversion, Facts, render_card
from elmo_hf.modeling_elmo import ElmoModel
from elmo_hf.pretraining import ElmoForPreTraining
from elmo_hf.tokenization_elmo import ElmoTokenizer

from .allennlp import allennlp_rules, config_from_options, has_softmax, language_model_rules, options_from_config
from .errors import ConversionError
from .files import new_folder, refuse_existing, write_hdf5
from .reference import ReferenceElmo
from .rules import export_arrays, import_arrays
from .sources import AllenNlpFiles

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
) -> float | None:
    """Converts an AllenNLP or bilm-tf checkpoint to a folder that `AutoModel.from_pretrained` loads.

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
    options, arrays = files.read()
    shapes = {name: array.shape for name, array in arrays.items()}
    config = config_from_options(options, shapes, str(files.options))
    rules = language_model_rules(config, arrays) if has_softmax(arrays) else allennlp_rules(config, arrays)
    tensors = import_arrays(rules, arrays, str(files.weights))
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
        digests = {path.name: sha256_of_file(path) for path in files.paths}
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
    arrays = export_arrays(rules, tensors)
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


def largest_difference(folder: Path, options: dict[str, Any], arrays: dict[str, np.ndarray]) -> float:
    """Largest absolute difference, over all layers of `CHECK_SENTENCES`, of the folder's model from NumPy's numbers.

    Raises:
        ConversionError: for word input, which the NumPy reference does not read.
    """
    if "char_cnn" not in options:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    reference = ReferenceElmo(options, {name: array for name, array in arrays.items() if not has_softmax([name])})
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
    return total - sum(
        tensor.shape[1] for name, tensor in tensors.items() if name.endswith("token_encoder.embedding.weight")
    )


def _load(source: Path) -> ElmoModel | ElmoForPreTraining:
    """The biLM, or the language model if that is what was saved."""
    model = load_complete(source, dtype=torch.float32)
    if ElmoForPreTraining.__name__ in (model.config.architectures or []):
        return load_complete(source, ElmoForPreTraining, dtype=torch.float32)
    return model


def _save(config: ElmoConfig, tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Writes config, weights and code; the checkpoint has no scalar mix, so none is invented."""
    with torch.device("meta"):
        model = ElmoModel(config) if config.num_softmax_words is None else ElmoForPreTraining(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if "scalar_mixes" not in name}
    assert expected == {name: tensor.shape for name, tensor in tensors.items()}, "the table does not fit the model"
    model.save_pretrained(folder, state_dict={name: torch.from_numpy(tensor) for name, tensor in tensors.items()})


def _tokenizer(config: ElmoConfig, files: AllenNlpFiles, word_splitter: str) -> ElmoTokenizer:
    reads_words = config.token_encoder == "word_embedding"
    if reads_words and files.vocabulary is None:
        raise ConversionError(
            f"{files.weights} is of a model that reads word ids, so its vocabulary is needed to make them: "
            "put `vocab.txt` beside it, or give `--vocabulary FILE` (one word a line)."
        )
    if config.num_softmax_words is not None and files.vocabulary is None:
        logger.warning(
            f"{files.weights} has a softmax over {config.num_softmax_words} words, but there is no vocabulary to say "
            "which: the folder embeds text, and cannot score it. Convert again with `--vocabulary FILE` (one word a "
            "line)."
        )
    names_words = reads_words or config.num_softmax_words is not None
    vocabulary = str(files.vocabulary) if names_words and files.vocabulary is not None else None
    try:
        tokenizer = ElmoTokenizer(
            config.token_encoder,
            max_word_length=config.max_word_length,
            word_splitter=word_splitter,
            **{"vocab_file" if reads_words else "words_file": vocabulary},
        )
    except (OSError, ValueError) as error:
        raise ConversionError(f"{files.vocabulary}: {error}") from error
    num_words = tokenizer.num_word_classes
    if reads_words and num_words is not None and num_words >= config.vocab_size:
        raise ConversionError(
            f"{files.vocabulary} has more words than `embedding` in {files.weights} has rows, {config.vocab_size - 1}."
        )
    if num_words is not None and config.num_softmax_words not in (None, num_words):
        raise ConversionError(
            f"{files.vocabulary} has {num_words} words, but the softmax has {config.num_softmax_words}; "
            "give the vocabulary that the model was trained with."
        )
    return tokenizer


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray]) -> list[str]:
    notes = []
    mixes = [tensor for name, tensor in tensors.items() if "scalar_mixes." in name and name.endswith(".logits")]
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
