"""A table of the formats that `elmo-hf convert` recognises; the first one that matches is used."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from .contract import Checkpoint, Given
from .hdf5 import is_hdf5
from .readers.allennlp import checkpoint_files, read_allennlp_source
from .readers.lstm_language_model import is_language_model, read_language_model
from .readers.manylangs import read_manylangs
from .readers.tf_hub import holds_module, read_tf_hub
from .readers.trained_allennlp import read_trained_allennlp, weights_name
from .refusals import listed, require
from .sources import Source

EVERYTHING = frozenset(field.name for field in fields(Given))


@dataclass(frozen=True)
class Format:
    """One format of the table."""

    name: str  # its name, for the user
    matches: Callable[[Source], bool]  # whether a source's files look like this format
    # A function that reads the source, or raises a `ConversionError` with advice.
    read: Callable[[Source, Given], Checkpoint]
    takes: frozenset[str]  # the fields of `Given` that `read` uses


FORMATS = (
    Format(
        "an ELMoForManyLangs model",
        lambda source: not {"encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"}.isdisjoint(source.files),
        read_manylangs,
        frozenset({"word_splitter"}),
    ),
    Format("an LSTM language model", is_language_model, read_language_model, frozenset({"word_splitter"})),
    Format(
        "a trained AllenNLP model",
        lambda source: weights_name(source) is not None,
        read_trained_allennlp,
        frozenset({"options", "word_splitter"}),
    ),
    Format("a TensorFlow Hub module", holds_module, read_tf_hub, frozenset({"options", "word_splitter"})),
    Format(
        "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)",
        lambda source: any(name.endswith(".index") for name in checkpoint_files(source)),
        read_allennlp_source,
        EVERYTHING,
    ),
    Format(
        "options and weights of AllenNLP, bilm-tf or simple_elmo",
        lambda source: any(map(is_hdf5, source.files)),
        read_allennlp_source,
        EVERYTHING,
    ),
)


def recognise(source: Source) -> Format:
    """Finds the first format that matches."""
    found = next((each for each in FORMATS if each.matches(source)), None)
    known = f"one of: {'; '.join(each.name for each in FORMATS)}"
    advice = "A `model.safetensors` is converted already: `from_pretrained` loads it, `--to allennlp` converts back."
    require(found is not None, source.path, "", known, listed(sorted(source.files)), advice)
    assert found is not None
    return found
