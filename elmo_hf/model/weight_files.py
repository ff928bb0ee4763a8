"""The files with a model's weights: which they are, and what they hold, before any memory is taken for them.

A folder may come from anyone. Only safetensors files of the folder itself are read, never a format that can run code.
Their headers must agree with the model that `config.json` describes; what they lack, such as a new classifier, must be
small.
"""

import math
import os
import re
from collections.abc import Iterable
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, hub

from .config_fields import FLOATS, shorten
from .saved_json import read_json

MOST_HEADER_BYTES = 2**22
MOST_NEW_BYTES = 2**29
# With which arguments of `from_pretrained` the Hub is asked for files.
HUB_ARGUMENTS = ("cache_dir", "force_download", "proxies", "token", "revision", "local_files_only", "subfolder")
# In a header, the names of floats.
HEADER_FLOATS = ("F64", "F32", "F16", "BF16")
# transformers would read files of such names in place of the others.
DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")


class ShapeError(ValueError, RuntimeError):
    """A weight has another shape than the model's; RuntimeError is what transformers raises then."""


def check_weight_files(name: str | os.PathLike, arguments: dict[str, Any]) -> None:
    """Checks in which files the weights of a folder or of a Hub repository are.

    Args:
        name: the folder, the name on the Hub, or one file.
        arguments: of `from_pretrained`; a revision in them is resolved, so that the Hub is asked no more often.

    Raises:
        OSError: if there are no safetensors files.
        ValueError: if weights are in another format, or an index is damaged or names files outside the folder.
    """
    if os.path.isfile(name):
        if not str(name).endswith(".safetensors"):
            raise ValueError(f"{name} is no .safetensors file; other formats are not read.")
        return
    ending = f".{arguments['variant']}." if arguments.get("variant") else "."
    single, index = (ending.join(each.rsplit(".", 1)) for each in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME))
    if os.path.isdir(name):
        folder = os.path.join(name, arguments.get("subfolder") or "")
        for other in sorted(filter(DISTRIBUTED.fullmatch, os.listdir(folder))):
            raise ValueError(f"{folder} holds {other}, a part of a distributed checkpoint; such parts are not read.")
    elif hasattr(hub, "resolve_revision"):
        given = {key: arguments[key] for key in ("token", "local_files_only", "cache_dir") if key in arguments}
        arguments["revision"] = hub.resolve_revision(name, arguments.get("revision"), **given)
    asked = {key: arguments[key] for key in HUB_ARGUMENTS if arguments.get(key) is not None}
    for file in (single, index):
        path = cached_file(name, file, _raise_exceptions_for_missing_entries=False, **asked)
        if path is not None and file == index:
            _check_index(path)
        if path is not None:
            return
    config = cached_file(name, "config.json", **asked)  # raises OSError if the Hub is out of reach
    adapter = cached_file(name, "adapter_config.json", _raise_exceptions_for_missing_entries=False, **asked)
    if config is not None or adapter is None:
        raise OSError(
            f"{name} has no {single} and no {index}. Other formats are not read, because reading them can run code: "
            "if you trust a pytorch_model.bin, convert it by `safetensors.torch.save_file(torch.load("
            "'pytorch_model.bin', weights_only=True), 'model.safetensors', metadata={'format': 'pt'})`."
        )


def check_weights(model: nn.Module, files: Iterable[str], may_differ: bool = False) -> None:
    """Compares the headers of files with a model whose weights take no memory yet.

    Args:
        model: what `config.json` describes, on the meta device.
        files: safetensors files.
        may_differ: whether weights of other shapes are left out (`ignore_mismatched_sizes`).

    Raises:
        ValueError: naming the file and the weight, if a file is damaged, or a weight is there twice or no float, or if
            the weights that are missing are many.
        ShapeError: if a weight has another shape.
    """
    held: dict[str, tuple[str, tuple[int, ...], str]] = {}
    for file in files:
        for name, (shape, kind) in read_header(file).items():
            if name in held:
                raise ValueError(f"{file} holds `{name}`, which {held[name][0]} holds too.")
            held[name] = file, shape, kind
    is_quantised = getattr(model.config, "quantization_config", None) is not None
    prefix = f"{model.base_model_prefix}."
    missing = {}
    for name, weight in model.state_dict().items():
        expected = tuple(weight.shape)
        names = (name, prefix + name, name.removeprefix(prefix))
        file, shape, kind = next((held[each] for each in names if each in held), ("", (), ""))
        if file and not is_quantised:
            if kind not in HEADER_FLOATS:
                raise ValueError(f"{file}: `{name}` must have a type of {', '.join(HEADER_FLOATS)}, found {kind}.")
            if shape != expected and not may_differ:
                raise ShapeError(
                    f"{file}: `{name}` must have the shape {expected} of config.json, found {shape}; "
                    "`ignore_mismatched_sizes=True` makes a new one."
                )
        if not file or shape != expected:
            missing[name] = weight.numel() * weight.element_size()
    # Quantised weights have names of their own, and are at most a sixteenth as large.
    most = MOST_NEW_BYTES + is_quantised * 16 * sum(math.prod(shape) for _, shape, _ in held.values())
    if sum(missing.values()) > most:
        raise ValueError(
            f"the weights that config.json describes are not in the files: of {sum(missing.values()):,} bytes, where "
            f"at most {most:,} may be new, there is no {shorten(sorted(missing))}."
        )
    _check_mixes(missing, {name.removeprefix(prefix) for name in held}, prefix)


def read_header(file: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of each tensor in a safetensors file; raises ValueError naming the file if it is damaged."""
    with open(file, "rb") as opened:
        num_bytes = int.from_bytes(opened.read(8), "little")
    if num_bytes > MOST_HEADER_BYTES:
        raise ValueError(f"{file} is damaged: a header of {num_bytes:,} bytes, more than {MOST_HEADER_BYTES:,}.")
    try:
        with safe_open(file, framework="pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}
            return {name: (tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()}
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged: {shorten(str(error))}.") from error


def _check_index(path: str) -> None:
    index = read_json(path)
    weight_map, metadata = index.get("weight_map"), index.get("metadata")
    if not isinstance(weight_map, dict) or not weight_map or not isinstance(metadata, dict):
        raise ValueError(f"{path} must hold the objects `metadata` and `weight_map`.")
    if metadata.get("dtype", FLOATS[0]) not in FLOATS:
        raise ValueError(f"{path}: `dtype` must be one of {', '.join(FLOATS)}, found {shorten(metadata['dtype'])}.")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not re.fullmatch(r"[^/\\:\0]+\.safetensors", file):
            raise ValueError(
                f"{path}: `weight_map` must name .safetensors files of the same folder, found {shorten(file)} for "
                f"{shorten(name)}."
            )


def _check_mixes(missing: Iterable[str], held: set[str], prefix: str) -> None:
    """A mix that is missing starts anew; half a mix is damage."""
    for name in missing:
        mix, _, part = name.removeprefix(prefix).rpartition(".")
        halves = {f"{mix}.logits", f"{mix}.scale"} if "scalar_mixes." in mix else set()
        if halves & held:
            raise ValueError(f"the files hold {', '.join(halves & held)} without `{part}` of the same mix.")
