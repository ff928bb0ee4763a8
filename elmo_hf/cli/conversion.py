"""The commands `elmo-hf convert` and `elmo-hf models`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..disk.whole_files import refuse_existing
from .arguments import Language, Licence, SourceOfWeights, Splitter
from .errors import say

# What `convert` writes.
Format = Literal["hf", "allennlp"]
# Of the weights that `convert` writes.
Precision = Literal["float32", "bfloat16", "int8"]
SPLITTER_HELP = (
    "How the tokenizer splits raw text: as the Treebank (default), or on white space (default for ELMoForManyLangs and "
    "TF-Hub modules)."
)


def convert(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[SOURCE] DEST",
            help="Folder, file or archive, unless a model or files are named; and the new folder.",
        ),
    ],
    options: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="AllenNLP's options file, if SOURCE lacks it, or with --weights."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="AllenNLP's hdf5 file, or a TensorFlow checkpoint's .index, in place of SOURCE.")
    ] = None,
    softmax: Annotated[Path | None, typer.Option(help="The language models' softmax, an hdf5 file.")] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="Words of word input and of the softmax, one a line.")] = None,
    token_embeddings: Annotated[
        Path | None, typer.Option(help="bilm-tf's dump of that vocabulary's vectors, in place of the character CNN.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Download a published model: small, original, original-lm, pt... (`elmo-hf models` lists all)"
        ),
    ] = None,
    to: Annotated[Format, typer.Option(help="hf: a Hub folder. allennlp: options.json and weights.hdf5.")] = "hf",
    word_splitter: Annotated[Splitter | None, typer.Option(help=SPLITTER_HELP)] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Embed sentences before and after, print the largest difference; compare with published vectors.",
        ),
    ] = False,
    dtype: Annotated[
        Precision, typer.Option(help="Of the weights; int8: of linears, with torchao, and faster for few sentences.")
    ] = "float32",
    licence: Licence = None,
    language: Language = None,
    source_of_weights: SourceOfWeights = None,
) -> None:
    """Convert a checkpoint.

    SOURCE is a folder, a file with its options beside it, or an archive (.zip, .tar.gz, .tar.bz2) of AllenNLP, bilm-tf
    (its TensorFlow checkpoints too), simple_elmo or ELMoForManyLangs, a TF-Hub module of an ELMo, or a trained AllenNLP
    model with ELMo inside; the format is recognised. DEST becomes a complete Hub repository: config, weights,
    tokenizer, code and model card. With a softmax, found in the checkpoint or given, it holds the language models too.
    With `--to allennlp`, SOURCE is such a repository, or tiny, and DEST gets AllenNLP's files, bit for bit those that
    it was made from.
    """
    source, destination = paths[0] if len(paths) == 2 else None, paths[-1]
    files = {"options": options, "softmax": softmax, "vocabulary": vocabulary, "token_embeddings": token_embeddings}
    _check_form(len(paths), options, weights, model)
    given = [check, word_splitter, dtype != "float32", *files.values(), licence, language, source_of_weights]
    if to == "allennlp" and (source is None or any(given)):
        raise typer.BadParameter("--to allennlp takes SOURCE and DEST and no other option.")
    from elmo_hf.share.saved_card import card_labels

    labels = card_labels(licence, language or [], source_of_weights)
    refuse_existing(destination)
    if to == "allennlp":
        assert source is not None
        _write_back(source, destination)
        return
    _check_sources(source, files | {"weights": weights}, model)
    writing = {"check": check, "dtype": dtype, "labels": labels}
    difference = _to_hub(source, weights, model, files, word_splitter, destination, writing)
    if difference is not None:
        say(f"Largest difference from the checkpoint, all layers: {difference:.1e} (float32 against float64).")
    say(f"Wrote {destination}. Load it: AutoModel.from_pretrained({str(destination)!r}, trust_remote_code=True)")


def models() -> None:
    """Print the published models that `elmo-hf convert --model NAME` downloads, as a table.

    The size is that of the LSTM cells and of the projection in each direction; a word gets two projections. `-`: not
    known. `by hand`: fetch the file from the source, then convert it. Licences are those that the authors name.
    """
    from elmo_hf.conversion.published import PUBLISHED

    rows = [("name", "language", "size", "licence", "trained on", "source")]
    for name, each in PUBLISHED.items():
        source = each.source if each.weights else f"{each.source} (by hand)"
        rows.append((name, each.language, each.size or "-", each.licence, each.text, source))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _check_form(num_paths: int, options: Path | None, weights: Path | None, model: str | None) -> None:
    """Checks that there is one source: SOURCE, `--options` and `--weights`, or `--model`."""
    has_files = weights is not None
    if (has_files and options is None) or (options is not None and not has_files and num_paths == 1):
        raise typer.BadParameter("--options and --weights go together.")
    if num_paths != (1 if has_files or model is not None else 2) or (options is not None and model is not None):
        raise typer.BadParameter("give SOURCE and DEST; with --options and --weights, or with --model, DEST alone.")


def _check_sources(source: Path | None, files: dict[str, Path | None], model: str | None) -> None:
    """Checks that what is to be read exists."""
    from elmo_hf.conversion import published

    if model is not None:
        published.check_name(model)
    if source is not None and not source.exists():
        raise FileNotFoundError(f"there is no file or folder {source}.")
    for name, path in files.items():
        if path is not None and not path.is_file():
            raise FileNotFoundError(f"there is no {name.replace('_', ' ')} file {path}.")


def _write_back(source: Path, destination: Path) -> None:
    """From a Hub repository to AllenNLP's files."""
    from elmo_hf.conversion.convert import folder_to_allennlp

    for note in folder_to_allennlp(source, destination):
        say(f"Note: {note}")
    *written, last = sorted(destination.iterdir())
    say(f"Wrote {', '.join(map(str, written))} and {last}.")


def _to_hub(
    source: Path | None,
    weights: Path | None,
    model: str | None,
    files: dict[str, Path | None],
    splitter: str | None,
    destination: Path,
    writing: dict[str, Any],
) -> float | None:
    """From a checkpoint of any format, AllenNLP's two files, or a published model, to a Hub repository."""
    from elmo_hf.conversion.checkpoint import Given
    from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, convert_source
    from elmo_hf.conversion.published import PUBLISHED, download
    from elmo_hf.share.model_card import published_facts

    found = source
    if model is not None:
        found = download(model)
        if isinstance(found, Path):
            writing |= {"labels": PUBLISHED[model].labels | writing["labels"]}
        else:
            # A checkpoint with its softmax has the facts of the one without.
            facts = published_facts(model.removesuffix("-lm"))
            writing |= {"source_name": f"the published {model} model", "facts": facts}
    elif weights is not None and files["options"] is not None:
        found = AllenNlpFiles(files["options"], weights)
        writing |= {"source_name": weights.stem}
    if isinstance(found, AllenNlpFiles):
        return allennlp_to_folder(
            replace(found, **{field: path for field, path in files.items() if path is not None}),
            destination,
            word_splitter=splitter or "ptb",
            tell=lambda note: say(f"Note: {note}"),
            **writing,
        )
    assert found is not None
    return convert_source(found, destination, Given(**files, word_splitter=splitter), tell=say, **writing)
