"""The tables that AllenNLP's and ELMoForManyLangs' torch models share.

These models have our layout, gates i, f, g, o and y = W x, with two exceptions. A highway is one linear layer `(2F,
F)`: its first half is the transform, its second half a gate on the *old* value. The forget bias includes the 1, so
`forget_bias` is 0.

Glossary: F filters in total, E character embedding, P projection, H cell.
"""

from elmo_hf.public import ElmoConfig

from ..rules import NEGATE_SECOND, SPLIT_ROWS, Rule


def cnn_rules(config: ElmoConfig, convolution: str, highways: str) -> list[Rule]:
    """The rules of the convolutions `{convolution}{index}` and the highways `{highways}{index}`."""
    size = config.num_filters
    rules = []
    for index, (width, count) in enumerate(config.char_filters):
        theirs, ours = f"{convolution}{index}", f"token_encoder.convolutions.{index}"
        rules += [
            Rule(f"{theirs}.weight", (count, config.char_embedding_size, width), (f"{ours}.weight",)),
            Rule(f"{theirs}.bias", (count,), (f"{ours}.bias",)),
        ]
    for index in range(config.num_highway_layers):
        theirs, ours = f"{highways}{index}", f"token_encoder.highways.{index}"
        ops = (SPLIT_ROWS, NEGATE_SECOND)
        rules += [
            Rule(f"{theirs}.weight", (2 * size, size), (f"{ours}.transform.weight", f"{ours}.gate.weight"), ops),
            Rule(f"{theirs}.bias", (2 * size,), (f"{ours}.transform.bias", f"{ours}.gate.bias"), ops),
        ]
    return rules


def projection_rules(name: str, num_features: int, size: int) -> list[Rule]:
    """The rules of the linear layer `name` from the token encoder's features to P."""
    ours = "token_encoder.projection"
    return [
        Rule(f"{name}.weight", (size, num_features), (f"{ours}.weight",)),
        Rule(f"{name}.bias", (size,), (f"{ours}.bias",)),
    ]


def lstm_rules(config: ElmoConfig, prefix: str = "") -> list[Rule]:
    """The rules of the biLM; the foreign names begin with `prefix`."""
    size = config.projection_size
    cell = config.cell_size
    rules = []
    for direction in ("forward", "backward"):
        for layer in range(config.num_hidden_layers):
            theirs, ours = f"{prefix}{direction}_layer_{layer}", f"bilm.layers.{layer}.{direction}_lstm"
            rules += [
                Rule(f"{theirs}.input_linearity.weight", (4 * cell, size), (f"{ours}.input_linear.weight",)),
                Rule(f"{theirs}.state_linearity.weight", (4 * cell, size), (f"{ours}.recurrent_linear.weight",)),
                Rule(f"{theirs}.state_linearity.bias", (4 * cell,), (f"{ours}.input_linear.bias",)),
                Rule(f"{theirs}.state_projection.weight", (size, cell), (f"{ours}.projection.weight",)),
            ]
    return rules
