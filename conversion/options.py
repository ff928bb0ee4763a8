"""Tables that pair each key of a foreign options file with a field of `ElmoConfig`."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elmo_hf.model.configuration_elmo import ElmoConfig

from .errors import ConversionError

REQUIRED = object()
MAX_WORD_LENGTH = 10_000


def clip_to_config(value: Any) -> Any:
    """A clip as the config has it: AllenNLP switches one off with 0 as well as with null."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (float(value) or None) if is_number and abs(value) < math.inf else value


@dataclass(frozen=True)
class Option:
    """One row: where a number stands in the options, and which field of the config it is.

    Attributes:
        path: keys from the top of the options.
        field: field of `ElmoConfig`.
        default: what the original software takes where the key is absent; `REQUIRED` if nothing.
        to_config: from the options' value to the field's.
        from_config: from the field's value to the options'.
    """

    path: tuple[str, ...]
    field: str
    default: Any = REQUIRED
    to_config: Callable[[Any], Any] = lambda value: value
    from_config: Callable[[Any], Any] = lambda value: value


def read_fields(options: Mapping[str, Any], rows: Iterable[Option], where: str) -> dict[str, Any]:
    """The fields of a config that the rows find in the options.

    Raises:
        ConversionError: if a key is missing.
    """
    return {row.field: row.to_config(_look_up(options, row, where)) for row in rows}


def make_config(where: str, num_arrays: int, **fields: Any) -> ElmoConfig:
    """Makes a config of what was read.

    Args:
        where: the options file, for messages.
        num_arrays: how many arrays the weights have; options that describe more parts than that are not believed.
        **fields: of `ElmoConfig`.

    Raises:
        ConversionError: naming the file and the illegal value.
    """
    try:
        config = ElmoConfig(**fields)
    except (ValueError, TypeError) as error:
        raise ConversionError(f"{where}: {error}") from error
    num_parts = config.num_hidden_layers
    if config.token_encoder == "char_cnn":
        num_parts += config.num_highway_layers + len(config.char_filters)
    if num_parts > num_arrays:
        raise ConversionError(
            f"{where} describes {num_parts} layers and filters, but the weights are {num_arrays} arrays."
        )
    if config.max_word_length > MAX_WORD_LENGTH:
        raise ConversionError(
            f"{where}: words of {config.max_word_length} characters cannot be meant; the most is {MAX_WORD_LENGTH}."
        )
    return config


def _look_up(options: Mapping[str, Any], row: Option, where: str) -> Any:
    value: Any = options
    for depth, key in enumerate(row.path):
        if not isinstance(value, Mapping):
            raise ConversionError(f"{where}: `{'.'.join(row.path[:depth])}` must be an object, found {value!r}.")
        if key not in value:
            if row.default is REQUIRED or depth < len(row.path) - 1:
                raise ConversionError(f"{where} lacks `{'.'.join(row.path)}`, which every ELMo needs.")
            return row.default
        value = value[key]
    return value
