"""Tables that pair keys of a foreign options file with fields of `ElmoConfig`."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elmo_hf.model.configuration_elmo import ElmoConfig

from .errors import ConversionError

REQUIRED = object()
MAX_WORD_LENGTH = 10_000


def clip_to_config(value: Any) -> Any:
    """Maps a clipping limit to the config's; AllenNLP switches it off with 0 or null."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (float(value) or None) if is_number and abs(value) < math.inf else value


@dataclass(frozen=True)
class Option:
    """One pair of a key and a field.

    Attributes:
        path: the keys that lead to the value, from the top of the options.
        field: the field of `ElmoConfig`.
        default: the original software's value if the key is absent; `REQUIRED` if it has none.
        to_config: maps the options' value to the field's.
        from_config: maps the field's value to the options'.
    """

    path: tuple[str, ...]
    field: str
    default: Any = REQUIRED
    to_config: Callable[[Any], Any] = lambda value: value
    from_config: Callable[[Any], Any] = lambda value: value


def read_fields(options: Mapping[str, Any], table: Iterable[Option], where: str) -> dict[str, Any]:
    """Reads the fields of a config from the options.

    Raises:
        ConversionError: if a key is missing.
    """
    return {option.field: option.to_config(_look_up(options, option, where)) for option in table}


def make_config(where: str, num_arrays: int, **fields: Any) -> ElmoConfig:
    """Makes a config from fields that a file gave.

    Args:
        where: the options file, for messages.
        num_arrays: how many arrays the weights have; options may not describe more layers and filters.
        **fields: fields of `ElmoConfig`.

    Raises:
        ConversionError: if a value is illegal; names the file and the value.
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


def _look_up(options: Mapping[str, Any], option: Option, where: str) -> Any:
    value: Any = options
    for depth, key in enumerate(option.path):
        if not isinstance(value, Mapping):
            raise ConversionError(f"{where}: `{'.'.join(option.path[:depth])}` must be an object, found {value!r}.")
        if key not in value:
            if option.default is REQUIRED or depth < len(option.path) - 1:
                raise ConversionError(f"{where} lacks `{'.'.join(option.path)}`, which every ELMo needs.")
            return option.default
        value = value[key]
    return value
