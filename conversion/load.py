"""A checkpoint of AllenNLP's or bilm-tf's as a model in memory, with nothing written."""

from pathlib import Path

import torch

from elmo_hf.model.modeling_elmo import ElmoModel

from .files import read_hdf5, read_options
from .readers.hdf5_layout import allennlp_rules, config_from_options
from .rules import import_arrays


def model_from_allennlp(options: Path, weights: Path) -> ElmoModel:
    """Loads `options.json` and `weights.hdf5`, in evaluation mode; the scalar mix has equal weights.

    Raises:
        ConversionError: if a file is missing or not of the format.
    """
    arrays = read_hdf5(weights)
    shapes = {name: array.shape for name, array in arrays.items()}
    config = config_from_options(read_options(options), shapes, str(options))
    tensors = import_arrays(allennlp_rules(config, arrays), arrays, str(weights))
    model = ElmoModel(config)
    mixes = {name: tensor for name, tensor in model.state_dict().items() if name.startswith("scalar_mixes.")}
    model.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()} | mixes)
    return model.eval()
