"""Reads the `config.json` of a model folder from anyone, and checks it before transformers uses it."""

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypedDict

from huggingface_hub.dataclasses import validate_typed_dict
from transformers.utils import logging

from ..model.configuration_elmo import ElmoConfig
from .saved_json import naming, read_json

logger = logging.get_logger(__name__)

# Limits of the numbers that cost time or memory without being the size of a weight, and of all other numbers.
MOST = {
    "num_hidden_layers": 256,
    "num_highway_layers": 256,
    "num_output_representations": 100,
    "num_softmax_samples": 10**7,
    "max_word_length": 4096,
    "num_labels": 10**5,
    "largest id": 10**7,  # of a vocabulary, whose list has an entry for each id
}
MOST_NUMBER = 10**8
MOST_FILTERS = 100
Floats = Literal["float16", "bfloat16", "float32", "float64"] | None


class FurtherFields(TypedDict, total=False):
    """Fields that transformers and this package read, and that `ElmoConfig` does not check."""

    model_type: Any
    name_or_path: Any
    tokenizer_class: Any
    output_attentions: Any
    tie_word_embeddings: Any
    use_cache: Any  # transformers' Trainer sets it
    dtype: Floats
    torch_dtype: Floats
    architectures: list[str] | None
    num_labels: int
    id2label: dict[str, str] | None
    auto_map: Any
    custom_pipelines: dict[str, dict] | None
    task_specific_params: dict | None
    quantization_config: Any


def read_config(folder: Path, **fields: Any) -> tuple[ElmoConfig, dict[str, Any]]:
    """Reads the config of a folder.

    Args:
        folder: a folder.
        **fields: values that replace the file's values.

    Returns:
        the config, and the file's values under unknown names, which transformers might use.

    Raises:
        ValueError: if there is no config.json, or a field is illegal; the message names file and field.
    """
    path = folder / "config.json"
    if not path.is_file():
        held = ", ".join(sorted(file.name for file in folder.iterdir())[:3]) or "no file"
        raise ValueError(
            f"{folder} must hold a model with its config.json, found {held}; give a folder that `save_pretrained`, a "
            "conversion or a training wrote."
        )
    content = read_json(path)
    fields_of_elmo = ElmoConfig.__dataclass_fields__.keys()
    further_fields = FurtherFields.__annotations__.keys()
    others = {name: content.pop(name) for name in sorted(content.keys() - fields_of_elmo - further_fields)}
    with naming(path):
        further = {name: content[name] for name in content.keys() & further_fields}
        # The annotation of this argument excludes a TypedDict.
        validate_typed_dict(FurtherFields, further)  # type: ignore[type-var]
        if content.get("quantization_config") is not None:
            raise ValueError("`quantization_config` must not be saved: quantise the float32 model when you load it")
        refuse_misspelt(others, fields_of_elmo - content.keys())
        refuse_large(content)
        config = ElmoConfig.from_dict(content, **fields)
        config.validate()
        refuse_large({f"char_filters.{row}": max(pair) for row, pair in enumerate(config.char_filters)})
    if others:
        logger.warning(f"{path} has {', '.join(others)}, which nothing reads: an ElmoConfig has no such field.")
    return config, {name: value for name, value in others.items() if not hasattr(ElmoConfig, name)}


def refuse_large(content: dict[str, Any]) -> None:
    """Raises ValueError if a number or a list is larger than any model needs."""
    lists = {"char_filters": MOST_FILTERS, "id2label": MOST["num_labels"]}
    most = dict.fromkeys(content, MOST_NUMBER) | MOST | lists
    for name, value in content.items():
        size = len(value) if isinstance(value, (list, dict)) else value
        if isinstance(size, (int, float)) and not -most[name] <= size <= most[name]:
            raise ValueError(f"`{name}` must be at most {most[name]:,}, or have as many entries, found {size!r:.50}")


def refuse_misspelt(others: Collection[str], missing: Collection[str]) -> None:
    """Raises ValueError if an unknown name differs little from a missing field's name, and is probably misspelt."""
    for name in others:
        nearest = difflib.get_close_matches(name, missing, n=1, cutoff=0.85)
        if nearest:
            raise ValueError(f"`{name}` is probably meant to be `{nearest[0]}`")
