"""Models of one direction made of others' forward halves, and files of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from elmo_hf.conversion.contract import NamedFiles
from tests.helpers.checkpoints import arrays_of, options_of, write_checkpoint


def forward_half(model: Any) -> Any:
    """A model of one direction with the forward weights of one of two."""
    config = type(model.config)(**model.config.to_dict() | {"bidirectional": False, "hidden_size": None})
    half = type(model)(config).to(model.dtype)
    half.load_state_dict({name: value for name, value in model.state_dict().items() if ".backward_lstm." not in name})
    return half.train(model.training)


def half_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.chunk(2, dim=-1)[0]


def forward_files(files: NamedFiles, folder: Path) -> NamedFiles:
    """The forward half of a checkpoint under the names that bilm-tf exports of one direction, with its softmax."""
    changes = {"RNN_0/RNN/": "rnn/", "/W_P_0": "/projection/kernel", "/W_0": "/kernel", "/B": "/bias"}
    arrays = {name: array for name, array in arrays_of(files).items() if not name.startswith("RNN_1/")}
    for name in [name for name in arrays if name.startswith("RNN_0/")]:
        renamed = name
        for old, new in changes.items():
            renamed = renamed.replace(old, new)
        arrays[renamed] = arrays.pop(name)
    half = write_checkpoint(folder, options_of(files.options.parent), arrays)
    return replace(half, vocabulary=files.vocabulary)
