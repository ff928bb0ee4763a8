"""From a checkpoint to a complete Hub folder, and back.

any SOURCE of a known format  --convert_source-->  config.json, model.safetensors, tokenizer, code, README.md
such a folder  --folder_to_allennlp-->  options.json + weights.hdf5, with the same bits

If the checkpoint has a softmax, in a separate hdf5 file or in a TensorFlow checkpoint, the folder has an
`ElmoForPreTraining`. The model's tensors are in two shards, the biLM and the softmax, so `ElmoModel` need not read the
second shard. On the way back the softmax becomes softmax.hdf5.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmo_hf.disk.checksums import sha256_of_file, write_sums
from elmo_hf.disk.whole_files import new_folder, refuse_existing
from elmo_hf.folder.listed_files import MODEL_FILES
from elmo_hf.folder.loading import load_complete, load_tokenizer, open_folder
from elmo_hf.folder.saved_config import read_config
from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.public import ElmoForPreTraining, ElmoModel
from elmo_hf.share.model_card import Conversion, Facts, as_list, render_card

from .alignment import align
from .check import check_folder
from .contract import Given
from .formats import recognise
from .hdf5 import write_hdf5
from .model import is_of_a_mix, num_parameters, save_model
from .readers.hdf5_layout import (
    FORGET_BIAS,
    allennlp_rules,
    has_softmax,
    language_model_rules,
    options_from_config,
    with_forget_bias,
)
from .refusals import require
from .rules import export_arrays
from .sources import open_source


def convert_source(
    path: Path,
    destination: Path,
    given: Given,
    *,
    source_name: str | None = None,
    check: bool = False,
    dtype: str = "float32",
    align_files: Mapping[int, Path] | None = None,
    facts: Facts | None = None,
    labels: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> float | None:
    """Converts a SOURCE of any known format to a folder that `AutoModel.from_pretrained` loads.

    Args:
        path: a folder, a file, or an archive.
        destination: the new folder; it must not exist.
        given: the files and settings that the user gave besides `path`.
        source_name: the model card's name for the source; None: the name of its file or folder.
        check: whether to compare the folder with the witness, before its weights are rounded to `dtype`.
        dtype: the type of the written weights: float32 or bfloat16.
        align_files: for each layer to align, the file of its matrix (`alignment.py`).
        facts: published facts about the weights, for the card.
        labels: the user's labels of the weights, for the card (`card_labels`). If neither they nor `facts` have English
            among known languages, and `given` has no word splitter, raw text is split at blanks.
        tell: a function for messages: the format, parts of the source that the folder lacks, and published vectors.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if the source cannot be converted or fails the check; nothing is written then.
        FileExistsError: if the destination exists.
    """
    with new_folder(destination) as folder:
        with open_source(path, folder) as source:
            found = recognise(source)
            tell(f"Found {found.name} in {path}.")
            names = [name for name, value in vars(given).items() if value is not None and name not in found.takes]
            options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
            require(not names, path, "", f"converted without {options}", found.name)
            languages = as_list({**(facts.metadata if facts else {}), **(labels or {})}.get("language"))
            if given.word_splitter is None and languages and not any(each.split("-")[0] == "en" for each in languages):
                given = replace(given, word_splitter="whitespace")
                tell(
                    f"Note: the language is {', '.join(languages)}, so raw text is split at blanks only: write words "
                    "and punctuation apart, as in the training text, or choose English rules by `--word-splitter ptb`."
                )
            checkpoint = found.read(source, given)
            if align_files:
                checkpoint = align(checkpoint, align_files)
            for note in checkpoint.notes:
                tell(f"Note: {note}")
            save_model(checkpoint, folder)
            checkpoint.tokenizer.save_pretrained(folder)
            difference, published = check_folder(folder, checkpoint) if check else (None, [])
            for name in published:
                tell(f"Note: the vectors are those that were published for {name}.")
            if dtype != "float32":
                save_model(checkpoint, folder, dtype)
            digests = {name: sha256_of_file(path) for name, path in checkpoint.sources.items()}
            card = render_card(
                destination.resolve().name,
                config=checkpoint.config,
                num_parameters=num_parameters(checkpoint.tensors),
                auto_class="AutoModel" if checkpoint.config.num_softmax_words is None else "AutoModelForPreTraining",
                facts=facts,
                conversion=Conversion(source_name or path.resolve().name, digests, difference),
                word_splitter=checkpoint.tokenizer.word_splitter,
                **labels or {},
            )
            (folder / "README.md").write_text(card, encoding="utf-8")
        write_sums(folder, MODEL_FILES)
    return difference


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
    config, _ = read_config(open_folder(source, weights=False))
    is_language_model = not {"ElmoForPreTraining", "ElmoForCausalLM"}.isdisjoint(config.architectures or [])
    model = load_complete(source, ElmoForPreTraining if is_language_model else ElmoModel, dtype=torch.float32)
    config = model.config
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    options = options_from_config(config, with_softmax=is_language_model)
    rules = language_model_rules(config) if is_language_model else allennlp_rules(config)
    arrays = with_forget_bias(export_arrays(rules, tensors), config.forget_bias - FORGET_BIAS)
    softmax = {name: arrays.pop(name) for name in list(arrays) if has_softmax([name])}
    needs_words = is_language_model or config.token_encoder == "word_embedding"
    words = load_tokenizer(source).predicted_words if needs_words else None
    with new_folder(destination) as folder:
        (folder / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        write_hdf5(folder / "weights.hdf5", arrays)
        if softmax:
            write_hdf5(folder / "softmax.hdf5", softmax)
        if words is not None:
            (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return _export_notes(config, tensors, lacks_words=needs_words and words is None)


def _export_notes(config: ElmoConfig, tensors: dict[str, np.ndarray], lacks_words: bool) -> list[str]:
    # The reading software makes an equal mix by itself.
    is_equal = all(
        (name.endswith(".logits") and np.ptp(tensor) == 0) or np.all(tensor == 1)
        for name, tensor in tensors.items()
        if is_of_a_mix(name)
    )
    module = (getattr(config, "task_specific_params", None) or {}).get("tfhub")
    unreadable = {
        "use_skip_connections is off": not config.use_skip_connections,
        "max_word_length is not 50": config.max_word_length != 50,
        "there is no projection after the character CNN": not config.char_projection,
        "there is no projection in the cell": not config.cell_projection,
        "input is word ids": config.token_encoder == "word_embedding",
    }
    reasons = " and ".join(reason for reason, holds in unreadable.items() if holds)
    notes = {
        f"the format adds {FORGET_BIAS} to the forget gate; its biases are that much smaller, some of them rounded.": (
            config.forget_bias != FORGET_BIAS
        ),
        "the mix of layers is left out: the format has only the biLM.": not is_equal,
        "the matrices of aligned layers are left out: AllenNLP reads them from other files.": config.aligned_layers,
        "this is Google's model, which reads no `<S>` and `</S>`; AllenNLP and bilm-tf always add them.": (
            isinstance(module, dict) and module.get("scaled_mean")
        ),
        "this is how bilm-tf exports one direction; neither its own reader nor AllenNLP's reads it.": (
            not config.bidirectional
        ),
        f"bilm-tf reads these files, AllenNLP does not, because {reasons}.": config.bidirectional and reasons,
        "there is no `words.txt` in the folder, so no `vocab.txt` says which words the softmax predicts.": lacks_words,
    }
    return [note for note, holds in notes.items() if holds]
