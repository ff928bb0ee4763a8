"""State dicts of the biLM under other names: AllenNLP's own, and those of version 0.1.0 of this package.

AllenNLP's `_token_embedder.char_conv_0.*`, and version 0.1.0's `_elmo_lstm.model.token_encoder.convolutions.0.*`, are
`_token_embedder.encoder.convolutions.0.*` now; AllenNLP's `_elmo_lstm.forward_layer_0.*`, and version 0.1.0's
`_elmo_lstm.model.bilm.*`, are `_elmo_lstm.bilm.*`.
"""

from typing import Any

import torch

from elmo_hf.conversion.readers.trained_allennlp import BILM, CHARACTERS, trained_rules
from elmo_hf.conversion.rules import import_arrays

from ..model.configuration_elmo import ElmoConfig

FORMER = "_elmo_lstm.model."


def rename_bilm(bilm: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A hook of `load_state_dict`: gives the entries of `_ElmoBiLm` its present names.

    Raises:
        ConversionError: if AllenNLP's arrays are incomplete, or those of another architecture.
    """
    for name in [name for name in state if name.startswith(prefix + FORMER)]:
        value = state.pop(name)
        if ".scalar_mixes." not in name:
            state[prefix + _present(name.removeprefix(prefix + FORMER))] = value
    if prefix + CHARACTERS.removeprefix(BILM) in state:
        config = bilm._token_embedder._config
        rules = [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]
        theirs = [name for name in state if name.startswith((f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."))]
        arrays = {BILM + name.removeprefix(prefix): state.pop(name).detach().cpu().numpy() for name in theirs}
        for name, array in import_arrays(rules, arrays, "the state dict").items():
            state[prefix + _present(name)] = _without_forget_bias(name, torch.from_numpy(array), config)


def _present(name: str) -> str:
    """The present name of a parameter of `ElmoModel`."""
    part, _, rest = name.partition(".")
    return f"_token_embedder.encoder.{rest}" if part == "token_encoder" else f"_elmo_lstm.bilm.{rest}"


def _without_forget_bias(name: str, tensor: torch.Tensor, config: ElmoConfig) -> torch.Tensor:
    """AllenNLP's forget gates carry the bias that the model adds at run time; gates are i, f, g, o."""
    if name.endswith("input_linear.bias"):
        tensor.unflatten(0, (4, -1))[1].sub_(config.forget_bias)
    return tensor
