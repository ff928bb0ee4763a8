"""Every format of ELMo that `elmo-hf convert` recognises, as a table; the first match counts.

Each entry pairs a test of a SOURCE's files with the reader for them. Formats that cannot be converted have entries too;
their readers explain what to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatch

from .checkpoint import Checkpoint, Given
from .errors import ConversionError
from .hdf5 import is_hdf5
from .readers.allennlp import checkpoint_below, holds_tensorflow_checkpoint, read_allennlp_source
from .readers.manylangs import read_manylangs
from .readers.tf_hub import holds_module, read_tf_hub
from .readers.trained_allennlp import read_trained_allennlp, weights_name
from .sources import Source
from .unconverted import UNCONVERTED

EVERYTHING = frozenset(field.name for field in fields(Given))


@dataclass(frozen=True)
class Format:
    """One entry.

    Attributes:
        name: its name, for the user.
        matches: whether a source looks like this format.
        read: reads the source, or raises a `ConversionError` that explains what to do.
        takes: the fields of `Given` that `read` uses.
    """

    name: str
    matches: Callable[[Source], bool]
    read: Callable[[Source, Given], Checkpoint]
    takes: frozenset[str] = frozenset()


def _has(*patterns: str) -> Callable[[Source], bool]:
    """Whether every pattern matches the name of a file."""
    return lambda source: all(any(fnmatch(name, pattern) for name in source.files) for pattern in patterns)


def _has_any(*names: str) -> Callable[[Source], bool]:
    return lambda source: any(name in source.files for name in names)


def _explain(reason: str) -> Callable[[Source, Given], Checkpoint]:
    def read(source: Source, given: Given) -> Checkpoint:
        raise ConversionError(f"{source.path} {reason}")

    return read


def _read_below(source: Source, given: Given) -> Checkpoint:
    """Reads the checkpoint one folder down, as DeepPavlov packs those that are ready for fine-tuning."""
    below = checkpoint_below(source)
    assert below is not None
    return read_allennlp_source(below, given)


FORMATS = (
    *(Format(name, matches, _explain(reason)) for name, matches, reason in UNCONVERTED),
    Format(
        "an ELMoForManyLangs model",
        _has_any("encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"),
        read_manylangs,
        frozenset({"word_splitter"}),
    ),
    Format(
        "a trained AllenNLP model",
        lambda source: weights_name(source) is not None,
        read_trained_allennlp,
        frozenset({"options", "word_splitter"}),
    ),
    Format(
        "a TensorFlow Hub module",
        holds_module,
        read_tf_hub,
        frozenset({"options", "word_splitter"}),
    ),
    Format(
        "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)",
        lambda source: holds_tensorflow_checkpoint(source.top),
        read_allennlp_source,
        EVERYTHING,
    ),
    Format(
        "options and weights of AllenNLP, bilm-tf or simple_elmo",
        lambda source: any(map(is_hdf5, source.files)),
        read_allennlp_source,
        EVERYTHING,
    ),
    Format(
        "a TensorFlow checkpoint of bilm-tf, one folder down",
        lambda source: checkpoint_below(source) is not None,
        _read_below,
        EVERYTHING,
    ),
    Format(
        "a folder for transformers",
        _has("config.json", "*.safetensors"),
        _explain(
            "is converted already: load it with `from_pretrained`, where `dtype=torch.bfloat16` gives a smaller model "
            "to `save_pretrained`, or write it back with `--to allennlp`."
        ),
    ),
)


def recognise(source: Source) -> Format:
    """Finds the first format that matches.

    Raises:
        ConversionError: if none does; lists the known ones.
    """
    for candidate in FORMATS:
        if candidate.matches(source):
            return candidate
    known = "; ".join(candidate.name for candidate in FORMATS[len(UNCONVERTED) :])
    raise ConversionError(f"{source.path} holds {source.listing}, which is none of: {known}.")
