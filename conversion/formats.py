"""Every format of ELMo that `elmo-hf convert` recognises: a table, read from above, of which the first match counts.

A row says how the files of a SOURCE look, what they are, and what reads them. Formats that cannot be converted have
rows too, whose readers explain what to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch
from pathlib import Path

from .checkpoint import Checkpoint, Given
from .convert import write_folder
from .errors import ConversionError
from .files import hdf5_names, refuse_existing
from .readers.allennlp import AllenNlpFiles, holds_tensorflow_checkpoint, read_allennlp
from .readers.manylangs import read_manylangs
from .readers.trained_allennlp import read_trained_allennlp, weights_name
from .sources import Source, open_source


@dataclass(frozen=True)
class Layout:
    """One row.

    Attributes:
        name: what it is, for the user.
        matches: whether a source looks so.
        read: reads it, or raises a `ConversionError` that explains.
        takes: fields of `Given` that it has a use for.
    """

    name: str
    matches: Callable[[Source], bool]
    read: Callable[[Source, Given], Checkpoint]
    takes: frozenset[str] = frozenset()


def _has(*patterns: str) -> Callable[[Source], bool]:
    """Whether each pattern fits the name of a file."""
    return lambda source: all(any(fnmatch(name, pattern) for name in source.files) for pattern in patterns)


def _has_any(*names: str) -> Callable[[Source], bool]:
    return lambda source: any(name in source.files for name in names)


def _explain(reason: str) -> Callable[[Source, Given], Checkpoint]:
    def read(source: Source, given: Given) -> Checkpoint:
        raise ConversionError(f"{source.path} {reason}")

    return read


def _top(source: Source) -> dict[str, Path]:
    return {name: path for name, path in source.files.items() if "/" not in name}


def _read_allennlp(source: Source, given: Given) -> Checkpoint:
    top = _top(source)
    weights = [name for name in top if name.endswith(".hdf5")]
    if len(weights) == 1 and hdf5_names(top[weights[0]]) == {"embedding"}:
        raise ConversionError(
            f"{top[weights[0]]} is bilm-tf's dump of token vectors, without the biLM that reads them: give the model's "
            "own options and weights, and this file as `--token-embeddings FILE` with its `--vocabulary FILE`."
        )
    found = AllenNlpFiles.among(top, source.path, given.options)
    files = replace(
        found,
        vocabulary=given.vocabulary or found.vocabulary,
        softmax=given.softmax or found.softmax,
        token_embeddings=given.token_embeddings,
    )
    checkpoint = read_allennlp(files, given.word_splitter or "ptb")
    return replace(checkpoint, sources=source.fingerprinted(*checkpoint.sources.values()))


LAYOUTS = (
    Layout(
        "an ELMoForManyLangs model",
        _has_any("encoder.pkl", "token_embedder.pkl", "char.dic", "word.dic"),
        read_manylangs,
        frozenset({"word_splitter"}),
    ),
    Layout(
        "a trained AllenNLP model",
        lambda source: weights_name(source) is not None,
        read_trained_allennlp,
        frozenset({"options", "word_splitter"}),
    ),
    Layout(
        "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)",
        lambda source: holds_tensorflow_checkpoint(_top(source)),
        _read_allennlp,
        frozenset(field.name for field in fields(Given)),
    ),
    Layout(
        "options and weights of AllenNLP, bilm-tf or simple_elmo",
        _has("*.hdf5"),
        _read_allennlp,
        frozenset(field.name for field in fields(Given)),
    ),
    Layout(
        "a folder for transformers",
        _has("config.json", "*.safetensors"),
        _explain("is converted already: load it with `from_pretrained`, or write it back with `--to allennlp`."),
    ),
    Layout(
        "a TensorFlow Hub module",
        _has("saved_model.pb"),
        _explain("is a TensorFlow program. Its weights are those of AllenNLP's original model: `--model original`."),
    ),
)


def recognise(source: Source) -> Layout:
    """The first layout that fits.

    Raises:
        ConversionError: if none does; lists the known ones.
    """
    for layout in LAYOUTS:
        if layout.matches(source):
            return layout
    known = "; ".join(layout.name for layout in LAYOUTS)
    raise ConversionError(f"{source.path} holds {source.listing}, which is none of: {known}.")


def convert_source(
    path: Path,
    destination: Path,
    given: Given,
    *,
    check: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> float | None:
    """Converts whatever a SOURCE is to a folder that `AutoModel.from_pretrained` loads.

    Args:
        path: a folder, a file, or an archive.
        destination: the new folder; it must not exist.
        given: what the user gave beside it.
        check: whether to compare the written folder with a witness made of the source's own arrays.
        tell: is told what was found, and what of it is not carried.

    Returns:
        the largest absolute difference of the check over all layers, or None without a check.

    Raises:
        ConversionError: if it cannot be converted, or fails the check; nothing is written then.
    """
    refuse_existing(destination)
    with open_source(path) as source:
        layout = recognise(source)
        tell(f"Found {layout.name} in {path}.")
        _refuse_unused(layout, given)
        checkpoint = layout.read(source, given)
        for note in checkpoint.notes:
            tell(f"Note: {note}")
        return write_folder(checkpoint, destination, source_name=path.resolve().name, check=check)


def _refuse_unused(layout: Layout, given: Given) -> None:
    names = {field.name for field in fields(given) if getattr(given, field.name) is not None}
    unused = sorted(f"`--{name.replace('_', '-')}`" for name in names - layout.takes)
    if unused and layout.takes:
        raise ConversionError(f"{layout.name} has no use for {', '.join(unused)}.")
