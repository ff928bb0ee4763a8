"""Makes a model from a `Checkpoint`, in memory or saved in a folder, and opens models of any format."""

from pathlib import Path

import torch

from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.folder.model_names import model_folder
from elmo_hf.public import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer

from .contract import Checkpoint, NamedFiles
from .formats import recognise
from .sources import open_source


def open_model(path: str | Path) -> tuple[ElmoModel, ElmoTokenizer]:
    """A biLM in evaluation mode and its tokenizer.

    Args:
        path: a folder of ours, a Hub name, or a short name, such as `"original"`; or a folder, file or archive of a
            format that `elmo-hf convert` reads, which is converted in memory.

    Raises:
        ValueError: if there is no such model, or if it is damaged or incomplete.
    """
    place = Path(model_folder(path))
    if not place.exists() or any(place.glob("*.safetensors")):
        return load_complete(path), load_tokenizer(path)
    with open_source(place) as source:
        checkpoint = recognise(source).read(source, NamedFiles(), None)
        return bilm_of(checkpoint), checkpoint.tokenizer


def bilm_of(checkpoint: Checkpoint) -> ElmoModel:
    """The checkpoint's biLM in evaluation mode; missing scalar mixes get equal weights."""
    model = _new_model(checkpoint.config)
    model.load_state_dict(model.state_dict() | _torch_tensors(checkpoint))
    bilm = model.elmo if isinstance(model, ElmoForPreTraining) else model
    return bilm.eval()


def save_model(checkpoint: Checkpoint, folder: Path, dtype: str = "float32") -> None:
    """Writes config, weights as numbers of `dtype`, and code; adds no scalar mix that the checkpoint lacks."""
    with torch.device("meta"):
        model = _new_model(checkpoint.config).to(getattr(torch, dtype))
    tensors = {name: tensor.to(model.dtype) for name, tensor in _torch_tensors(checkpoint).items()}
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if not any(is_of_a_mix(name) for name in tensors):
        shapes = {name: shape for name, shape in shapes.items() if not is_of_a_mix(name)}
    assert shapes == {name: tensor.shape for name, tensor in tensors.items()}, "the table does not fit the model"
    model.save_pretrained(folder, state_dict=tensors)


def is_of_a_mix(name: str) -> bool:
    """Whether a tensor belongs to a mix of layers."""
    return name.removeprefix("elmo.").startswith(("scalar_mixes.", "linear_mixes."))


def _new_model(config: ElmoConfig) -> ElmoModel | ElmoForPreTraining:
    return ElmoModel(config) if config.num_softmax_words is None else ElmoForPreTraining(config)


def _torch_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(tensor) for name, tensor in checkpoint.tensors.items()}
