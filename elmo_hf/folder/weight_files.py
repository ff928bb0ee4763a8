"""Finds the files with a model's weights, and checks their headers before memory is allocated.

Only safetensors files of the folder itself are read, because some other formats can run code. Each weight in a header
must agree with the model that `config.json` describes.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..model.configuration_elmo import AUTO_MAP
from .saved_json import naming, read_json

# In a header, the names of floats.
FLOATS = ("F64", "F32", "F16", "BF16")
# Files that transformers would read instead of the weights: parts of a distributed checkpoint, or an adapter, which
# names another folder.
REPLACING = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors|adapter_config\.json")
CLASSES = {reference.split(".")[-1] for reference in AUTO_MAP.values()}
# Weights that loading may leave out: mixes that are not requested, and weights of other classes.
MIXES = re.compile(r"(scalar|linear)_mixes\.\d+\.\w")
PARTS = re.compile(
    rf"{MIXES.pattern}|(softmax|task_encoder|word_vectors|pooler|classifier|crf|attention|lstm|qa_outputs)\."
)
# The factor of a mix, which has no axis in files of earlier versions.
SCALE = re.compile(r"scalar_mixes\.\d+\.scale")
# A tensor's shape and type in a header.
Tensor = tuple[tuple[int, ...], str]


def has_index(folder: Path) -> bool:
    """Whether an index names the files with the weights of a folder; a single file takes its place."""
    return not (folder / SAFE_WEIGHTS_NAME).is_file() and (folder / SAFE_WEIGHTS_INDEX_NAME).is_file()


def weight_names(folder: Path) -> set[str]:
    """The names of the files with the weights of a folder, which need not be there.

    Raises:
        ValueError: if the index that names them is damaged.
    """
    if not has_index(folder):
        return {SAFE_WEIGHTS_NAME}
    index_file = folder / SAFE_WEIGHTS_INDEX_NAME
    with naming(f"{index_file} is damaged"):
        index = read_json(index_file)
        names = list(index["weight_map"].values())
        are_texts = all(isinstance(name, str) for name in names)
        if not isinstance(index["metadata"], dict) or not are_texts:
            raise ValueError("`metadata` must be an object, and `weight_map` must name the file of each weight.")
    return set(names)


def read_headers(folder: Path) -> dict[str, Tensor]:
    """Shape and type of each weight of a folder, by its name.

    Raises:
        ValueError: if a file is damaged or missing, or would be read instead of the weights; the message names it.
    """
    names = weight_names(folder)
    there = {path.name for path in folder.iterdir()}
    wrong = [name for name in sorted(there) if REPLACING.fullmatch(name)] + sorted(map(repr, names - there))
    if wrong or not names:
        raise ValueError(
            f"{folder} must have {SAFE_WEIGHTS_NAME}, or the files that {SAFE_WEIGHTS_INDEX_NAME} names, and no "
            f"adapter or part of a distributed checkpoint, found {', '.join(wrong[:9]) or 'none'}. "
            "Other formats can run code: if you trust a pytorch_model.bin, convert it by "
            "`safetensors.torch.save_file(torch.load('pytorch_model.bin', weights_only=True), 'model.safetensors', "
            "metadata={'format': 'pt'})`."
        )
    tensors: dict[str, Tensor] = {}
    for file_name in sorted(names):
        file = folder / file_name
        with naming(f"{file} is damaged"), safe_open(file, framework="pt") as weights:
            tensor_names = weights.keys()
            for name in tensor_names:
                tensor = weights.get_slice(name)
                tensors[name] = (tuple(tensor.get_shape()), tensor.get_dtype())
    return tensors


def has_weights(folder: Path) -> bool:
    """Whether all files with a model's weights are in a folder, which may be a download of some files.

    Raises:
        ValueError: if the index that names them is damaged.
    """
    return all((folder / name).is_file() for name in weight_names(folder))


def check_weights(folder: Path, model_class: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    """Compares the headers of a folder's weights with the model that its config describes.

    Raises:
        ValueError: if there is a `weights_problem`, or if a file is damaged; the message names the weight or the file.
    """
    problem = weights_problem(read_headers(folder), model_class, config)
    if problem is not None:
        raise ValueError(f"{folder} {problem}.")


def weights_problem(
    tensors: Mapping[str, Tensor], model_class: type[PreTrainedModel], config: PreTrainedConfig
) -> str | None:
    """What keeps a folder with these headers from being a model of a class, as in "has no weights for ..."; or None.

    A weight may have a wrong type or shape, be missing (it would be random), or not belong to an ELMo.
    """
    with torch.device("meta"):  # it takes no memory
        model = model_class(config)
    prefix = f"{model.base_model_prefix}."
    held = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}  # what the files hold
    if config.bidirectional and not model.config.bidirectional:  # `ElmoForCausalLM` reads half of a biLM
        held = {name: tensor for name, tensor in held.items() if ".backward_lstm." not in name}
    expected = {name.removeprefix(prefix): tuple(weight.shape) for name, weight in model.state_dict().items()}
    mixes = {name.rpartition(".")[0] for name in held if MIXES.match(name)}
    # A missing scalar mix is initialised; if one of its two tensors is there, the file is damaged.
    new = {name for name in expected if name.startswith("scalar_mixes.") and name.rpartition(".")[0] not in mixes}
    left_out = MIXES if type(model).__name__ in (config.architectures or ()) else PARTS
    is_own = CLASSES.issuperset(config.architectures or ())  # a user's own class may have any weights
    missing = expected.keys() - held.keys() - new
    if missing:
        return f"has no weights for {_listed(missing)}; they would be random numbers"
    beyond = [name for name in held.keys() - expected.keys() if not left_out.match(name)]
    if beyond and is_own:
        return f"has {_listed(beyond)}, which the model of config.json does not have"
    wrong = []
    for name, shape in expected.items():
        if name not in held:
            continue
        held_shape, held_type = held[name]
        is_old_scale = SCALE.fullmatch(name) is not None and held_shape == ()
        is_legal_shape = held_shape == shape or is_old_scale
        if not is_legal_shape or held_type not in FLOATS:
            wrong.append(f"{name} {held[name]} for {shape}")
    if wrong:
        return f"must have config.json's shapes and floats, found {_listed(wrong)}"
    return None


def _listed(names: Collection[str]) -> str:
    """The first three of some names, and how many more there are."""
    listed = ", ".join(f"`{name}`" for name in sorted(names)[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return listed + more
