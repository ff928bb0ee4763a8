"""A pretrained biLM with AllenNLP's names and values, read from its two files or taken from an `ElmoModel`.

The rules of conversion rename the tensors (`conversion/readers/trained_allennlp.py`): a highway is one matrix whose
second half gates the old value, and the biases of the LSTMs include the forget bias.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.hdf5 import read_arrays
from elmo_hf.conversion.options import read_options
from elmo_hf.conversion.published import CACHE, MIRROR_VARIABLE, PUBLISHED, absolute, fetch, name_of
from elmo_hf.conversion.readers.allennlp import read_allennlp
from elmo_hf.conversion.readers.hdf5_layout import options_from_config
from elmo_hf.conversion.readers.trained_allennlp import BILM, trained_rules
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.rules import Rule, export_arrays

from ..disk.whole_files import move_into_place, remove_leftovers, workplace
from ..embedding.stores import is_url
from ..public import ElmoConfig

# A mirror is the one that the environment names when this module is imported.
_ADDRESSES = absolute(PUBLISHED["original"].addresses)
DEFAULT_OPTIONS_FILE = _ADDRESSES["options"][0]
DEFAULT_WEIGHT_FILE = _ADDRESSES["weights"][0]
DOWNLOAD_ADVICE = (
    "If you have the two files, give their paths as `options_file` and `weight_file`. If a mirror has the Allen "
    f"Institute's files, set the environment variable {MIRROR_VARIABLE} to its address before Python starts, and leave "
    "the default addresses as they are."
)
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


def download_path(address: str) -> Path:
    """The path of the download of an address."""
    return CACHE / hashlib.sha256(address.encode()).hexdigest()[:16] / name_of(address)


def local_file(file: str | Path | None, read: Callable[[Path], object]) -> Path:
    """The path of a file on this machine; an address is downloaded, once, to `elmo-hf` below `$HF_HOME`.

    Args:
        file: a path or an address.
        read: reads a file of its kind; a download is kept only if it raises no error.

    Raises:
        ConversionError: if the download fails, or if what the server sent cannot be read.
    """
    name = str(file)
    if not is_url(name):
        return Path(name)
    path = download_path(name)
    if path.exists():
        remove_leftovers(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with workplace(path, must_wait=True) as folder:
            if not path.exists():  # another process may have downloaded it meanwhile
                download = fetch([name], folder / path.name, DOWNLOAD_ADVICE)
                try:
                    read(download)
                except ConversionError as error:
                    reason = str(error).replace(str(download), name)
                    raise ConversionError(f"{reason} Nothing of {name} was kept.") from error
                move_into_place(download, path)
    return path


def read_pretrained(options_file: str | Path | None, weight_file: str | Path | None) -> Pretrained:
    """Reads the two files, from paths or addresses.

    Raises:
        ConversionError: if a file is missing or has another format.
        ValueError: if a file is None, or if AllenNLP's ELMo lacks a part of the model.
    """
    for name, file in (("options_file", options_file), ("weight_file", weight_file)):
        if file is None:
            raise ValueError(
                f"`{name}` must be a path or an address, found None; give both files, or to `Elmo` a model as `module` "
                "with None for both."
            )
    options = local_file(options_file, read_options)
    weights = local_file(weight_file, read_arrays)
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
    tensors = to_tensors(export_arrays(bilm_rules(config), arrays), config.forget_bias)
    return {name.removeprefix(BILM): tensor for name, tensor in tensors.items()}


def bilm_rules(config: ElmoConfig) -> list[Rule]:
    """The rules of the tensors of `_ElmoBiLm`, with `BILM` in front of AllenNLP's names."""
    return [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]


def copy_requires_grad(model: PreTrainedModel, bilm: nn.Module) -> None:
    """Lets each parameter of an `_ElmoBiLm` train if one of the `ElmoModel`'s parameters that it is made of trains."""
    parameters = dict(model.named_parameters())
    for rule in bilm_rules(model.config):
        trains = any(parameters[name].requires_grad for name in rule.targets)
        bilm.get_parameter(rule.source.removeprefix(BILM)).requires_grad_(trains)


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
                "same files, with `strict=False`, and give the model to a new `Elmo` as `module`; then load the "
                "entries that begin with `scalar_mix_` into the new `Elmo`, with `strict=False`."
            )
