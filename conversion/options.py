"""Tables that pair keys of a foreign options file with fields of `ElmoConfig`, which checks their values."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from elmo_hf.folder.saved_config import MOST_NUMBER, refuse_large
from elmo_hf.folder.saved_json import one_line, read_json
from elmo_hf.public import ElmoConfig

from .refusals import ConversionError, naming_file, shortened

REQUIRED = object()


def clip_to_config(value: Any) -> Any:
    """Maps a clipping limit to that of the config; AllenNLP switches a clip off with 0 or null."""
    if type(value) is int and 0 < value < MOST_NUMBER:
        return float(value)
    if value:
        return value
    return None


@dataclass(frozen=True)
class Option:
    """One pair of a key and a field."""

    path: tuple[str, ...]  # the keys that lead to the value, from the top of the options
    field: str  # the field of `ElmoConfig`
    default: Any = REQUIRED  # the original software's value if the key is absent; `REQUIRED` if it has none
    # Maps the options' value to the field's; it passes on a value of a wrong type, which the config refuses.
    to_config: Callable[[Any], Any] = lambda value: value
    from_config: Callable[[Any], Any] = lambda value: value  # maps the field's value to the options'


def read_options(path: Path) -> dict[str, Any]:
    """Reads an options file, one JSON object."""
    with naming_file(path):
        return read_json(path)


def make_config(options: Mapping[str, Any], table: Iterable[Option], where: object, **fields: Any) -> ElmoConfig:
    """Makes a config from the options.

    Args:
        options: the parsed options file.
        table: the options to read.
        where: the options file, for messages.
        **fields: further fields of `ElmoConfig`.
    """
    keys = {option.field: ".".join(option.path) for option in table}
    fields |= {option.field: option.to_config(_look_up(options, option, where)) for option in table}
    try:
        refuse_large(fields)
        return ElmoConfig(**fields)
    except (StrictDataclassError, TypeError, ValueError) as error:
        reason = re.sub(r"\w+", lambda word: keys.get(word[0], word[0]), one_line(error))
        raise ConversionError(f"{where}: {reason}.") from error


def _look_up(options: Mapping[str, Any], option: Option, where: object) -> Any:
    value: Any = options
    for depth, key in enumerate(option.path):
        if not isinstance(value, Mapping):
            parent = ".".join(option.path[:depth])
            raise ConversionError(f"{where}: `{parent}` must be an object, but is {shortened(repr(value))}.")
        if key not in value:
            is_last = depth == len(option.path) - 1
            if is_last and option.default is not REQUIRED:
                return option.default
            name = ".".join(option.path)
            raise ConversionError(f"{where}: `{name}` is missing; the options of every ELMo have it.")
        value = value[key]
    return value
