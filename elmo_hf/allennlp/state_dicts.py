"""State dicts of the biLM under AllenNLP's own names.

AllenNLP's `_token_embedder.char_conv_0.*` are `_token_embedder.encoder.convolutions.0.*` here, its
`_elmo_lstm.forward_layer_0.*` are `_elmo_lstm.bilm.layers.0.forward_lstm.*`.
"""

from typing import Any

import torch

from elmo_hf.conversion.readers.trained_allennlp import BILM, CHARACTERS, trained_rules
from elmo_hf.conversion.rules import import_arrays

from ..model.configuration_elmo import ElmoConfig


def rename_bilm(bilm: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A hook of `load_state_dict`: gives the entries of `_ElmoBiLm` its own names.

    Raises:
        ConversionError: if AllenNLP's arrays are incomplete, or those of another architecture.
    """
    if prefix + CHARACTERS.removeprefix(BILM) in state:
        config = bilm._token_embedder._config
        rules = [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]
        theirs = [name for name in state if name.startswith((f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."))]
        arrays = {BILM + name.removeprefix(prefix): state.pop(name).detach().cpu().numpy() for name in theirs}
        for name, array in import_arrays(rules, arrays, "the state dict").items():
            state[prefix + _own_name(name)] = _without_forget_bias(name, torch.from_numpy(array), config)


def _own_name(name: str) -> str:
    """The name that `_ElmoBiLm` has for a parameter of `ElmoModel`."""
    part, _, rest = name.partition(".")
    return f"_token_embedder.encoder.{rest}" if part == "token_encoder" else f"_elmo_lstm.bilm.{rest}"


def _without_forget_bias(name: str, tensor: torch.Tensor, config: ElmoConfig) -> torch.Tensor:
    """AllenNLP's forget gates carry the bias that the model adds at run time; gates are i, f, g, o."""
    if name.endswith("input_linear.bias"):
        tensor.unflatten(0, (4, -1))[1].sub_(config.forget_bias)
    return tensor
