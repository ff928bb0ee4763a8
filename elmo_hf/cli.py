"""The command line: `elmo-hf convert` and `elmo-hf embed`."""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="elmo-hf",
    help="ELMo (Peters et al. 2018) as a transformers model: convert checkpoints, embed text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(str, Enum):
    """What `convert` writes."""

    hf = "hf"
    allennlp = "allennlp"


class Splitter(str, Enum):
    """How raw text is split."""

    ptb = "ptb"
    whitespace = "whitespace"


class Layers(str, Enum):
    """What `embed` keeps of a sentence."""

    all = "all"
    top = "top"
    mix = "mix"
    average = "average"
    pooled = "pooled"


class Dtype(str, Enum):
    """The numbers that `embed` writes."""

    float32 = "float32"
    float16 = "float16"


@app.command(
    epilog="Example: elmo-hf convert tests/fixtures/base_2l_relu tiny-elmo --check",
    short_help="Convert a checkpoint to a Hub folder, or a Hub folder back.",
)
def convert(
    paths: Annotated[list[Path], typer.Argument(metavar="[SOURCE] DEST", help="Source folder, and the new folder.")],
    options: Annotated[
        Path | None, typer.Option(help="AllenNLP's options file, where SOURCE lacks it, or with --weights.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="AllenNLP's hdf5 file, in place of SOURCE.")] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="For word input: one word a line.")] = None,
    token_embeddings: Annotated[
        Path | None, typer.Option(help="bilm-tf's dump of that vocabulary's vectors, in place of the character CNN.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Download a published model: small, medium, original, 5.5B or pt.")
    ] = None,
    to: Annotated[Format, typer.Option(help="hf: a Hub folder. allennlp: options.json and weights.hdf5.")] = Format.hf,
    word_splitter: Annotated[
        Splitter | None,
        typer.Option(
            help="How the tokenizer splits raw text: as the Treebank (default), or on white space (default for "
            "ELMoForManyLangs).",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Embed sentences before and after; print the largest difference.")
    ] = False,
) -> None:
    """Convert a checkpoint.

    SOURCE is a folder, a file, or an archive (.zip, .tar.gz, .tar.bz2) of AllenNLP, bilm-tf, simple_elmo or
    ELMoForManyLangs, or a trained AllenNLP model with ELMo inside; what it is, is recognised. DEST becomes a complete
    Hub repository: config, weights, tokenizer, code and model card. With `--to allennlp`, SOURCE is such a repository
    and DEST gets AllenNLP's two files, bit for bit those it was made of.
    """
    from dataclasses import replace

    from elmo_hf.conversion.checkpoint import Given
    from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
    from elmo_hf.conversion.errors import ConversionError
    from elmo_hf.conversion.formats import convert_source
    from elmo_hf.conversion.published import download

    if (weights is not None and options is None) or (options is not None and weights is None and len(paths) == 1):
        raise typer.BadParameter("--options and --weights go together.")
    has_files = weights is not None
    if len(paths) != (1 if has_files or model is not None else 2) or (options is not None and model is not None):
        raise typer.BadParameter("give SOURCE and DEST; with --options and --weights, or with --model, DEST alone.")
    destination = paths[-1]
    try:
        if to is Format.allennlp:
            if len(paths) != 2 or check or any((options, vocabulary, token_embeddings, word_splitter)):
                raise typer.BadParameter("--to allennlp takes SOURCE and DEST and no other option.")
            for note in folder_to_allennlp(paths[0], destination):
                typer.echo(f"Note: {note}")
            typer.echo(f"Wrote {destination / 'options.json'} and {destination / 'weights.hdf5'}.")
            return
        splitter = word_splitter.value if word_splitter is not None else None
        if len(paths) == 2:
            given = Given(options, vocabulary, token_embeddings, splitter)
            difference = convert_source(paths[0], destination, given, check=check, tell=typer.echo)
        else:
            if options is not None and weights is not None:
                files, source_name = AllenNlpFiles(options, weights), weights.stem
            else:
                assert model is not None
                files, source_name = download(model), f"AllenNLP's {model} model"
            files = replace(files, vocabulary=vocabulary, token_embeddings=token_embeddings)
            difference = allennlp_to_folder(
                files, destination, source_name=source_name, word_splitter=splitter or "ptb", check=check
            )
    except (ConversionError, OSError) as error:
        _fail(error)
    if difference is not None:
        typer.echo(f"Largest difference from the checkpoint, all layers: {difference:.1e} (float32 against float64).")
    typer.echo(f"Wrote {destination}. Load it: AutoModel.from_pretrained({str(destination)!r}, trust_remote_code=True)")


@app.command(
    epilog="Example: elmo-hf embed tiny-elmo sentences.txt -o vectors.hdf5 --layers average",
    short_help="Embed a file of sentences.",
)
def embed(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder or a Hub name.")],
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Text, .jsonl or .conllu, plain or .gz; or - for standard input.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help=".hdf5, .safetensors, .parquet or .npz")],
    layers: Annotated[Layers, typer.Option(help="What to keep of a sentence.")] = Layers.all,
    dtype: Annotated[Dtype, typer.Option(help="Type of the numbers written.")] = Dtype.float32,
    split_into_words: Annotated[
        bool, typer.Option("--split-into-words", help="Sentences are words separated by blanks already.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Most sentences of a batch.", min=1)] = 32,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")] = None,
) -> None:
    """Embed every sentence of INPUT, one a line, into one file.

    The n-th line (of CoNLL-U, sentence) is entry n, from 0, blank lines included. An interrupted run goes on where it
    stopped when the same command is given again. hdf5 files have AllenNLP's layout.
    """
    import torch

    from elmo_hf.embed import embed_file
    from elmo_hf.loading import load_complete
    from elmo_hf.tokenization_elmo import ElmoTokenizer

    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=place)
    except (AssertionError, RuntimeError) as error:
        _fail(error)
    try:
        number = embed_file(
            load_complete(model).to(place),
            ElmoTokenizer.from_pretrained(model),
            sys.stdin.buffer if source == "-" else Path(source),
            output,
            layers=layers.value,
            dtype=dtype.value,
            split_into_words=split_into_words,
            batch_size=batch_size,
            show_progress=True,
        )
    except (ValueError, OSError) as error:
        _fail(error)
    typer.echo(f"Wrote {number} sentences to {output}.")


def _fail(error: Exception) -> None:
    typer.echo(f"Error: {error}", err=True)
    raise typer.Exit(1)


def main() -> None:
    """Entry point of `elmo-hf`."""
    app()


if __name__ == "__main__":
    main()
