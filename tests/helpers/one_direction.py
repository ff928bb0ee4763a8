"""Models of one direction made of others' forward halves, and files of them."""

from typing import Any

import torch
from checkpoints import Arrays


def forward_half(model: Any) -> Any:
    """A model of one direction with the forward weights of one of two."""
    config = type(model.config)(**model.config.to_dict() | {"bidirectional": False, "hidden_size": None})
    half = type(model)(config).to(model.dtype)
    half.load_state_dict({name: value for name, value in model.state_dict().items() if ".backward_lstm." not in name})
    return half.train(model.training)


def half_of(tensor: torch.Tensor) -> torch.Tensor:
    """The forward half of the last axis."""
    return tensor.chunk(2, dim=-1)[0]


def arrays_of_one_direction(arrays: Arrays) -> Arrays:
    """The forward half of a checkpoint's arrays, under the names that bilm-tf exports of one direction."""
    changes = {"RNN_0/RNN/": "rnn/", "/W_P_0": "/projection/kernel", "/W_0": "/kernel", "/B": "/bias"}
    renamed = {}
    for name, array in arrays.items():
        if name.startswith("RNN_"):
            for old, new in changes.items():
                name = name.replace(old, new)
        renamed[name] = array
    return {name: array for name, array in renamed.items() if not name.startswith("RNN_1/")}
