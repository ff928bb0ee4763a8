"""Names and shapes of the parameters of the tiny model (`tiny_config`)."""

# Promises: renaming a key breaks every saved folder.
STATE_DICT_KEYS = {
    "token_encoder.embedding.weight": (262, 5),
    "token_encoder.convolutions.0.weight": (3, 5, 1),
    "token_encoder.convolutions.0.bias": (3,),
    "token_encoder.convolutions.1.weight": (4, 5, 2),
    "token_encoder.convolutions.1.bias": (4,),
    "token_encoder.convolutions.2.weight": (6, 5, 3),
    "token_encoder.convolutions.2.bias": (6,),
    "token_encoder.highways.0.transform.weight": (13, 13),
    "token_encoder.highways.0.transform.bias": (13,),
    "token_encoder.highways.0.gate.weight": (13, 13),
    "token_encoder.highways.0.gate.bias": (13,),
    "token_encoder.projection.weight": (7, 13),
    "token_encoder.projection.bias": (7,),
    **{
        f"bilm.layers.{layer}.{direction}_lstm.{name}": shape
        for layer in (0, 1)
        for direction in ("forward", "backward")
        for name, shape in {
            "input_linear.weight": (36, 7),
            "input_linear.bias": (36,),
            "recurrent_linear.weight": (36, 7),
            "projection.weight": (7, 9),
        }.items()
    },
    "scalar_mixes.0.logits": (3,),
    "scalar_mixes.0.scale": (),
}
