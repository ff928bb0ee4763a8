"""A pretrained biLM with AllenNLP's names and values, read from its two files or taken from an `ElmoModel`.

The rules of conversion rename the tensors (`conversion/readers/trained_allennlp.py`): a highway is one matrix whose
second half gates the old value, and the biases of the LSTMs include the forget bias.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import constants
from torch import Tensor, nn
from transformers import PreTrainedModel

from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.options import read_options
from elmo_hf.conversion.published import BASE_URL, PUBLISHED, fetch, name_of
from elmo_hf.conversion.readers.allennlp import read_allennlp
from elmo_hf.conversion.readers.hdf5_layout import options_from_config
from elmo_hf.conversion.readers.trained_allennlp import BILM, trained_rules
from elmo_hf.conversion.refusals import ConversionError, listed
from elmo_hf.conversion.rules import export_arrays

from ..public import ElmoConfig

DEFAULT_OPTIONS_FILE = BASE_URL + PUBLISHED["original"].addresses["options"][0]
DEFAULT_WEIGHT_FILE = BASE_URL + PUBLISHED["original"].addresses["weights"][0]
# The end of the names of the LSTMs' biases.
GATE_BIAS = ".state_linearity.bias"


@dataclass(frozen=True)
class Pretrained:
    """A biLM as the parts of `_ElmoBiLm` take it."""

    config: ElmoConfig
    options: dict[str, Any]  # as in an options file
    weight_file: str | None  # its path on this machine, if it was read from one
    tensors: dict[str, Tensor]  # by their names in `_ElmoBiLm`; no other module has them

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors of a part, by their names in it."""
        prefix = f"{name}."
        return {key.removeprefix(prefix): tensor for key, tensor in self.tensors.items() if key.startswith(prefix)}


def is_address(file: str) -> bool:
    """Whether a file is to be downloaded."""
    return "://" in file


def place_of(file: str) -> Path:
    """The path of a file, and for an address the path of its download below `$HF_HOME`."""
    if not is_address(file):
        return Path(file)
    return Path(constants.HF_HOME) / "elmo-hf" / hashlib.sha256(file.encode()).hexdigest()[:16] / name_of(file)


@contextmanager
def local_files(*files: str | Path | None) -> Iterator[list[Path]]:
    """Files on this machine, of which addresses are downloaded, once, to `$HF_HOME`.

    A download is kept unless the block, which reads the files, raises `ConversionError`.
    """
    names = [str(file) for file in files]
    addresses = [name for name in names if is_address(name)]
    for address in addresses:
        fetch([address], place_of(address))
    try:
        yield [place_of(name) for name in names]
    except ConversionError as error:
        if not addresses:
            raise
        for address in addresses:
            place_of(address).unlink(missing_ok=True)
        raise ConversionError(f"{error} Nothing of {listed(addresses)} was kept.") from error


def read_pretrained(options_file: str | Path | None, weight_file: str | Path | None) -> Pretrained:
    """Reads the two files, from paths or addresses.

    Raises:
        ConversionError: if a file is missing or has another format.
        ValueError: if AllenNLP's ELMo lacks a part of the model.
    """
    with local_files(options_file, weight_file) as (options, weights):
        checkpoint = read_allennlp(NamedFiles(options, weights))
    tensors = with_allennlps_names(checkpoint.config, checkpoint.tensors, str(weights))
    return Pretrained(checkpoint.config, read_options(options), str(weights), tensors)


def pretrained_of(model: PreTrainedModel) -> Pretrained:
    """Copies the biLM of an `ElmoModel`, as float32 on the CPU; ValueError if AllenNLP's ELMo lacks a part of it."""
    tensors = with_allennlps_names(model.config, arrays_of(model), "the model")
    return Pretrained(model.config, options_from_config(model.config), None, tensors)


def with_allennlps_names(config: ElmoConfig, arrays: Mapping[str, np.ndarray], where: str) -> dict[str, Tensor]:
    """Copies the arrays of an `ElmoModel`'s biLM, and gives them the names and values that they have in `_ElmoBiLm`."""
    refuse_other_architectures(config, where)
    rules = [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]
    tensors = to_tensors(export_arrays(rules, arrays), config.forget_bias)
    return {name.removeprefix(BILM): tensor for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, np.ndarray], forget_bias: float) -> dict[str, Tensor]:
    """Copies arrays with AllenNLP's names, and adds the forget bias to the biases of the LSTMs."""
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    for name, tensor in tensors.items():
        if name.endswith(GATE_BIAS):
            forget_gate = tensor.chunk(4)[1]  # gates are i, f, g, o
            forget_gate += forget_bias
    return tensors


def refuse_other_architectures(config: ElmoConfig, where: str) -> None:
    """Raises ValueError if AllenNLP's parts cannot hold a model."""
    reasons = []
    if config.token_encoder != "char_cnn" or config.alphabet != "bytes" or config.word_embedding_size is not None:
        reasons.append("its words are not read as bytes alone")
    elif not config.char_projection:
        reasons.append("its character CNN has no projection")
    if not config.cell_projection:
        reasons.append("its LSTMs have no projection")
    if not config.bidirectional:
        reasons.append("it has one direction")
    if config.aligned_layers:
        reasons.append("its layers are aligned")
    if reasons:
        raise ValueError(
            f"AllenNLP's ELMo has no place for {where}, because {' and '.join(reasons)}: use `ElmoModel`, which does."
        )


def arrays_of(module: nn.Module) -> dict[str, np.ndarray]:
    """The state dict of a module as float32 arrays."""
    return {name: tensor.detach().cpu().float().numpy() for name, tensor in module.state_dict().items()}


def refuse_former_names(part: nn.Module, state: Mapping[str, Any], prefix: str, *_: object) -> None:
    """Raises ValueError for a state dict of an earlier version, of which `strict=False` would load nothing."""
    for name in state:
        if name.startswith((f"{prefix}encoder.", f"{prefix}bilm.")):
            raise ValueError(
                f"the state dict must have AllenNLP's names, but has `{name}`, a name of an earlier elmo_hf: rename "
                "what begins with `_elmo_lstm._token_embedder.encoder.` to `token_encoder.`, and with "
                "`_elmo_lstm._elmo_lstm.bilm.` to `bilm.`, load it into an `ElmoModel` that was converted from the "
                "same files, with `strict=False`, and give the model to `Elmo` as `module`."
            )
