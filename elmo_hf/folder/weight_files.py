"""The files with a model's weights: which they are, and whether they hold the model, before memory is taken for it.

Only safetensors files of the folder itself are read, never a format that can run code. Their headers must agree, weight
by weight, with the model that `config.json` describes.
"""

import math
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..model.configuration_elmo import AUTO_MAP
from .saved_json import read_json

# In a header, the names of floats.
FLOATS = ("F64", "F32", "F16", "BF16")
# Files that transformers would read in place of the others: parts of a distributed checkpoint; an adapter, which names
# another folder.
REPLACING = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors|adapter_config\.json")
CLASSES = {reference.split(".")[-1] for reference in AUTO_MAP.values()}
# Weights that loading may leave out: mixes that are not asked for, and the parts of other classes.
MIXES = re.compile(r"(scalar|linear)_mixes\.\d+\.\w")
PARTS = re.compile(
    rf"{MIXES.pattern}|(softmax|task_encoder|word_vectors|pooler|classifier|crf|attention|lstm|qa_outputs)\."
)
# The parts of a quantised weight, as torchao names them.
TORCHAO = re.compile(r"\._(\w+?)_(qdata|scale|zero_point)$")
Header = dict[str, tuple[tuple[int, ...], str]]


def find_weights(folder: Path) -> list[Path]:
    """The files with a folder's weights.

    Raises:
        ValueError: if there are none, or others that would be read in their place; if an index is damaged, or names
            files that are not in the folder.
    """
    for path in sorted(folder.iterdir()):
        if REPLACING.fullmatch(path.name):
            raise ValueError(f"{path} is a part of a distributed checkpoint, or an adapter; such folders are not read.")
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if (folder / SAFE_WEIGHTS_NAME).is_file():
        return [folder / SAFE_WEIGHTS_NAME]
    if not index.is_file():
        raise ValueError(
            f"{folder} has no {SAFE_WEIGHTS_NAME} and no {index.name}. Other formats are not read, because reading "
            "them can run code: if you trust a pytorch_model.bin, convert it by `safetensors.torch.save_file("
            "torch.load('pytorch_model.bin', weights_only=True), 'model.safetensors', metadata={'format': 'pt'})`."
        )
    content = read_json(index)
    weight_map = content.get("weight_map")
    files = [*weight_map.values()] if isinstance(weight_map, dict) else []
    wrong = [name for name in files if not _is_beside(folder, name)]
    if wrong or not files or not isinstance(content.get("metadata"), dict):
        raise ValueError(
            f"{index} must hold `metadata`, and a `weight_map` that names .safetensors files beside it, found "
            f"{(wrong or [weight_map])[0]!r:.100}."
        )
    return [folder / name for name in sorted({*files})]


def _is_beside(folder: Path, name: object) -> bool:
    is_name = isinstance(name, str) and re.fullmatch(r"[^/\\:\0]+\.safetensors", name) is not None
    return is_name and (folder / str(name)).is_file()


def read_header(file: Path) -> Header:
    """Shape and type of each tensor in a safetensors file; raises ValueError naming the file if it is damaged."""
    try:
        with safe_open(file, framework="pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}
            return {name: (tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged: {error}.") from error


def check_weights(model: PreTrainedModel, files: Iterable[Path]) -> None:
    """Compares the headers of a folder's files with a model whose weights take no memory.

    Args:
        model: what `config.json` describes, on the meta device.
        files: safetensors files.

    Raises:
        ValueError: naming the file and the weight, if a file is damaged, if a weight has another type or shape, if one
            is missing, which would be random, or if one is there that no part of an ELMo has.
    """
    prefix = f"{model.base_model_prefix}."
    held: dict[str, tuple[Path, tuple[int, ...], str]] = {}
    for file in files:
        for name, (shape, kind) in read_header(file).items():
            held[name.removeprefix(prefix)] = file, shape, kind
    expected = {name.removeprefix(prefix): weight for name, weight in model.state_dict().items()}
    quantised = {}
    if getattr(model.config, "quantization_config", None) is not None:
        quantised = {name: TORCHAO.sub(r".\1", name) for name in held if TORCHAO.search(name)}
        most = 16 * sum(math.prod(shape) for _, shape, _ in held.values())  # they are at most a sixteenth as large
        if sum(weight.numel() for weight in expected.values()) > most:
            raise ValueError(f"config.json describes more than {most:,} numbers, which the weights do not hold.")
    mixes = {name.rpartition(".")[0] for name in held if MIXES.match(name)}
    missing = []
    for name, weight in expected.items():
        if name not in held:
            # Without its weights a scalar mix starts anew; half a mix is damage.
            is_new = name.startswith("scalar_mixes.") and name.rpartition(".")[0] not in mixes
            missing += [] if is_new or name in quantised.values() else [name]
            continue
        file, shape, kind = held[name]
        if shape != tuple(weight.shape) or kind not in FLOATS:
            raise ValueError(
                f"{file}: `{name}` must have config.json's shape {tuple(weight.shape)} and a type of "
                f"{', '.join(FLOATS)}, found {shape} and {kind}."
            )
    if missing:
        raise ValueError(f"its files lack {_list(missing)}, which would be random numbers.")
    saved = model.config.architectures or ()
    if {*saved} <= CLASSES:  # a user's own class may have any
        left_out = MIXES if type(model).__name__ in saved else PARTS
        strange = sorted(name for name in held.keys() - expected.keys() - quantised.keys() if not left_out.match(name))
        if strange:
            raise ValueError(f"its files hold {_list(strange)}, which the model of config.json does not have.")


def without_memory(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model whose weights have shapes only."""
    with torch.device("meta"):
        return model_class(config)


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
