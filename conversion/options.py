"""Tables that pair keys of a foreign options file with fields of `ElmoConfig`."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from elmo_hf.folder.one_line import one_line
from elmo_hf.model.configuration_elmo import ElmoConfig

from .errors import ConversionError, quoted
from .limits import MAX_LAYERS, MAX_SIZE, MAX_WORD_LENGTH

REQUIRED = object()


@dataclass(frozen=True)
class Legal:
    """What a value in the options may be.

    Attributes:
        text: in words, for messages.
        holds: whether a value is legal.
    """

    text: str
    holds: Callable[[Any], bool]


def whole(least: int, most: int) -> Legal:
    """A whole number between two bounds."""
    return Legal(f"a whole number from {least:,} to {most:,}", lambda value: is_whole(value, least, most))


SIZE, LAYERS, WORD_LENGTH = whole(1, MAX_SIZE), whole(1, MAX_LAYERS), whole(3, MAX_WORD_LENGTH)
HIGHWAYS = Legal(f"a whole number up to {MAX_LAYERS:,}", lambda value: value is None or is_whole(value, 0, MAX_LAYERS))
FLAG = Legal("true or false", lambda value: isinstance(value, bool))
FLAG_OR_NULL = Legal("true, false or null", lambda value: value is None or isinstance(value, bool))
LIST_OR_NULL = Legal("a list or null", lambda value: value is None or isinstance(value, list))
ACTIVATION = Legal("'relu' or 'tanh'", lambda value: value in ("relu", "tanh"))
CLIP = Legal(
    "a positive number, or 0 or null to switch it off",
    lambda value: value is None or (_is_number(value) and 0 <= value <= sys.float_info.max),
)
RATE = Legal("a number of at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1)
RATE_OR_NULL = Legal(f"{RATE.text}, or null", lambda value: value is None or RATE.holds(value))
FILTERS = Legal(
    f"a list of at most {MAX_LAYERS:,} pairs [width, count] of whole numbers from 1 to {MAX_SIZE:,}",
    lambda value: isinstance(value, list) and 0 < len(value) <= MAX_LAYERS and all(map(_is_filter, value)),
)


def clip_to_config(value: float | None) -> float | None:
    """Maps a clipping limit to the config's; AllenNLP switches it off with 0 or null."""
    return float(value or 0) or None


@dataclass(frozen=True)
class Option:
    """One pair of a key and a field.

    Attributes:
        path: the keys that lead to the value, from the top of the options.
        field: the field of `ElmoConfig`.
        legal: what the options' value may be.
        default: the original software's value if the key is absent; `REQUIRED` if it has none.
        to_config: maps the options' value to the field's.
        from_config: maps the field's value to the options'.
    """

    path: tuple[str, ...]
    field: str
    legal: Legal
    default: Any = REQUIRED
    to_config: Callable[[Any], Any] = lambda value: value
    from_config: Callable[[Any], Any] = lambda value: value


def read_fields(options: Mapping[str, Any], table: Iterable[Option], where: str) -> dict[str, Any]:
    """Reads the fields of a config from the options.

    Raises:
        ConversionError: if a key is missing, or its value is illegal.
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
    except (StrictDataclassError, TypeError) as error:
        raise ConversionError(f"{where}: {one_line(error)}") from error
    num_parts = config.num_hidden_layers
    if config.token_encoder == "char_cnn":
        num_parts += config.num_highway_layers + len(config.char_filters)
    if num_parts > num_arrays:
        raise ConversionError(
            f"{where} describes {num_parts} layers and filters, but the weights are {num_arrays} arrays."
        )
    return config


def _look_up(options: Mapping[str, Any], option: Option, where: str) -> Any:
    value: Any = options
    for depth, key in enumerate(option.path):
        if not isinstance(value, Mapping):
            raise ConversionError(
                f"{where}: `{'.'.join(option.path[:depth])}` must be an object, found {quoted(value)}."
            )
        if key not in value:
            if option.default is REQUIRED or depth < len(option.path) - 1:
                raise ConversionError(f"{where} lacks `{'.'.join(option.path)}`, which every ELMo needs.")
            return option.default
        value = value[key]
    if not option.legal.holds(value):
        name = ".".join(option.path)
        raise ConversionError(f"{where}: `{name}` must be {option.legal.text}, found {quoted(value)}.")
    return value


def is_whole(value: Any, least: int, most: int) -> bool:
    """Whether a value is a whole number between two others."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_filter(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(is_whole(number, 1, MAX_SIZE) for number in value)
