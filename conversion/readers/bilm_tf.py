"""bilm-tf's training checkpoints: TensorFlow's variables under the names of bilm-tf's own hdf5 export.

bilm-tf exports a biLM by renaming its variables, and leaves out the softmax (`dump_weights`). The same renaming, with
the softmax kept, lets the tables of `hdf5_layout.py` read a checkpoint:

    variable                                              array
    lm/char_embed, lm/embedding, lm/CNN..., lm/softmax/W  the same without lm/
    lm/RNN_d/rnn/multi_rnn_cell/cell_k/lstm_cell/...      RNN_d/RNN/MultiRNNCell/Cellk/LSTMCell/...
    lm/RNN_d/rnn/lstm_cell/...        (one layer)         RNN_d/RNN/LSTMCell/...
    .../kernel, .../bias, .../projection/kernel           .../W_0, .../B, .../W_P_0
    lm/rnn/multi_rnn_cell/cell_k/lstm_cell/kernel         rnn/MultiRNNCell/Cellk/LSTMCell/kernel   (one direction)

A variable outside this list keeps its name, so the tables refuse it.

Source: `dump_weights` and `LanguageModel` of bilm-tf's `training.py`.
"""

import re
from pathlib import Path

import numpy as np

from ..refusals import ConversionError, shortened
from .tensor_bundle import TensorBundle

# The optimiser's sums of squared gradients, the number of batches, and a number that training never sets.
IGNORED_VARIABLES = re.compile(r".*/Adagrad|global_step|train_perplexity")
CELL = re.compile(r"(RNN_\d+/)?rnn/(?:multi_rnn_cell/cell_(\d+)/)?lstm_cell/(kernel|bias|projection/kernel)")
CELL_ARRAYS = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}


def array_name(variable: str) -> str:
    """Maps a variable's name to its name in an hdf5 file."""
    name = variable.removeprefix("lm/")
    match = CELL.fullmatch(name)
    if match is None:
        return name
    direction, layer, part = match.groups()
    level = "" if layer is None else f"MultiRNNCell/Cell{layer}/"
    if direction is None:
        return f"rnn/{level}LSTMCell/{part}"
    return f"{direction}RNN/{level}LSTMCell/{CELL_ARRAYS[part]}"


def read_variables(prefix: Path) -> dict[str, np.ndarray]:
    """Reads a checkpoint's weights, without the variables that `IGNORED_VARIABLES` names.

    Args:
        prefix: the checkpoint's path without `.index`.

    Returns:
        arrays by their names in an hdf5 file; the softmax's are `softmax/W` and `softmax/b`.
    """
    bundle = TensorBundle(prefix)
    variables: dict[str, str] = {}
    for variable in bundle.entries:
        if IGNORED_VARIABLES.fullmatch(variable):
            continue
        other = variables.setdefault(array_name(variable), variable)
        if other != variable:
            raise ConversionError(
                f"{prefix} must have one variable for each array of an ELMo, but `{shortened(variable)}` and "
                f"`{shortened(other)}` are both `{shortened(array_name(variable))}`; it is not bilm-tf's."
            )
    arrays = bundle.read(variables.values())
    return {name: arrays[variable] for name, variable in variables.items()}
