"""The `config.json` of a model folder that may come from anyone: bounded, and checked before transformers uses it."""

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypedDict

from huggingface_hub.dataclasses import validate_typed_dict
from huggingface_hub.errors import StrictDataclassError
from transformers import GenerationConfig
from transformers.utils import logging

from ..model.configuration_elmo import ElmoConfig
from .one_line import one_line
from .saved_json import read_json

logger = logging.get_logger(__name__)

# The most of what takes time or memory without being the size of a weight, and of every other number.
MOST = {
    "num_hidden_layers": 256,
    "num_highway_layers": 256,
    "num_output_representations": 100,
    "num_softmax_samples": 10**7,
    "max_word_length": 4096,
    "num_labels": 10**5,
}
MOST_NUMBER = 10**8
MOST_FILTERS = 100
MOST_CRF_LABELS = 1000
QUANTISED_BY = {"quant_method": "torchao"}
# Names that are no fields, by which transformers finds other files.
FURTHER_FILES = ("configuration_files", "transformers_weights")


class CommonFields(TypedDict, total=False):
    """Fields of transformers that a saved config may have."""

    model_type: Literal["elmo"]
    transformers_version: str | None
    name_or_path: str | None
    tokenizer_class: str | None
    architectures: list[str] | None
    output_hidden_states: bool | None
    output_attentions: bool | None
    return_dict: bool | None
    is_encoder_decoder: bool | None
    tie_word_embeddings: bool | None
    dtype: Literal["float16", "bfloat16", "float32", "float64"] | None
    torch_dtype: Literal["float16", "bfloat16", "float32", "float64"] | None
    chunk_size_feed_forward: int | None
    num_labels: int
    id2label: dict[str, str] | None
    label2id: dict[str, int] | None
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None
    auto_map: dict | None
    custom_pipelines: dict[str, dict] | None
    task_specific_params: dict | None
    quantization_config: dict[str, Any] | None


def read_config(folder: Path, **fields: Any) -> tuple[ElmoConfig, dict[str, Any]]:
    """Reads the config of a folder.

    Args:
        folder: a folder.
        **fields: in place of those of the file.

    Returns:
        the config, and what the file holds under names that are no fields, which transformers might act on.

    Raises:
        OSError: if there is no config.json.
        ValueError: naming the file and the field, if one is not legal.
    """
    path = folder / "config.json"
    content = read_json(path)
    known = ElmoConfig.__dataclass_fields__.keys() | CommonFields.__annotations__.keys()
    others = {name: content.pop(name) for name in sorted(content.keys() - known - vars(GenerationConfig()).keys())}
    try:
        _check(content, others)
        config = ElmoConfig.from_dict(content, **fields)
        config.validate()
    except (AttributeError, RecursionError, StrictDataclassError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {one_line(error)}") from error
    if others:
        logger.warning(f"{path} has {', '.join(others)}, which nothing reads: an ElmoConfig has no such field.")
    return config, others


def _check(content: dict[str, Any], others: dict[str, Any]) -> None:
    """Checks kinds, names and bounds; raises ValueError or StrictDataclassError naming the field."""
    common = {name: content[name] for name in content.keys() & CommonFields.__annotations__.keys()}
    validate_typed_dict(CommonFields, common)  # type: ignore[type-var]
    if (common.get("quantization_config") or QUANTISED_BY).get("quant_method") != QUANTISED_BY["quant_method"]:
        raise ValueError("`quantization_config` must have the `quant_method` 'torchao'; others could run code")
    for name in others:
        if hasattr(ElmoConfig, name) or name in FURTHER_FILES:
            raise ValueError(f"`{name}` cannot be set by a file")
    refuse_misspelt(others, ElmoConfig.__dataclass_fields__.keys() - content.keys())
    refuse_large(content)


def refuse_large(content: dict[str, Any]) -> None:
    """Raises ValueError if a number or a list is larger than any model needs."""
    most = dict.fromkeys(content, MOST_NUMBER) | MOST | {"char_filters": MOST_FILTERS}
    most["id2label"] = MOST_CRF_LABELS if content.get("use_crf") else MOST["num_labels"]
    for name, value in content.items():
        size = len(value) if isinstance(value, (list, dict)) else value
        if isinstance(size, (int, float)) and not -most[name] <= size <= most[name]:
            raise ValueError(f"`{name}` must be at most {most[name]:,}, or have as many entries, found {size!r:.50}")


def refuse_misspelt(others: Collection[str], missing: Collection[str]) -> None:
    """Raises ValueError if a name that is no field is nearly one that is missing: it is damaged, not a newer field."""
    for name in others:
        for nearest in difflib.get_close_matches(name, missing, n=1, cutoff=0.85):
            raise ValueError(f"`{name}` is probably meant to be `{nearest}`")
