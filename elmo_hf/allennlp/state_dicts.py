"""State dicts of the biLM under AllenNLP's own names.

AllenNLP's `_token_embedder.char_conv_0.*` are `_token_embedder.encoder.convolutions.0.*` here, its
`_elmo_lstm.forward_layer_0.*` are `_elmo_lstm.bilm.layers.0.forward_lstm.*`.
"""

from typing import Any

import torch

from elmo_hf.conversion.readers.trained_allennlp import BILM, CHARACTERS, trained_rules
from elmo_hf.conversion.rules import import_arrays

# Where `_ElmoBiLm` has the parts of `ElmoModel`.
PARTS = {"token_encoder": "_token_embedder.encoder", "bilm": "_elmo_lstm.bilm"}


def rename_bilm(bilm: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A hook of `load_state_dict` that renames AllenNLP's entries to those of `_ElmoBiLm`.

    Raises:
        ConversionError: if AllenNLP's arrays are incomplete, or those of another architecture.
    """
    if prefix + CHARACTERS.removeprefix(BILM) in state:
        config = bilm._token_embedder._config
        rules = [rule for rule in trained_rules(config) if rule.source.startswith(BILM)]
        theirs = [name for name in state if name.startswith((f"{prefix}_token_embedder.", f"{prefix}_elmo_lstm."))]
        arrays = {BILM + name.removeprefix(prefix): state.pop(name).detach().cpu().numpy() for name in theirs}
        for name, array in import_arrays(rules, arrays, "the state dict").items():
            part, _, rest = name.partition(".")
            tensor = state[f"{prefix}{PARTS[part]}.{rest}"] = torch.from_numpy(array)
            if name.endswith("input_linear.bias"):
                # AllenNLP's forget gates include the bias that the model adds at run time; gates are i, f, g, o.
                tensor.unflatten(0, (4, -1))[1].sub_(config.forget_bias)
