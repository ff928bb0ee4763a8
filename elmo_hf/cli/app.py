"""The command line: `elmo-hf convert`, `embed`, `export`, `push`, `verify`, and what `cli_language_models.py` has."""

import sys
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from .language_models import fail, pretrain, score, vocab

app = typer.Typer(
    name="elmo-hf",
    help="ELMo (Peters et al. 2018) as a transformers model: convert, embed, pretrain, score, share.",
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
    weights: Annotated[
        Path | None, typer.Option(help="AllenNLP's hdf5 file, or a TensorFlow checkpoint's .index, in place of SOURCE.")
    ] = None,
    softmax: Annotated[
        Path | None, typer.Option(help="The released softmax of the language models, an hdf5 file.")
    ] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="Words of word input and of the softmax, one a line.")] = None,
    token_embeddings: Annotated[
        Path | None, typer.Option(help="bilm-tf's dump of that vocabulary's vectors, in place of the character CNN.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Download a published model: small, medium, original, 5.5B, pt, ... (a wrong name lists all)"
        ),
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

    SOURCE is a folder, a file, or an archive (.zip, .tar.gz, .tar.bz2) of AllenNLP, bilm-tf (its TensorFlow
    checkpoints too), simple_elmo or ELMoForManyLangs, or a trained AllenNLP model with ELMo inside; what it is, is
    recognised. DEST becomes a complete Hub repository: config, weights, tokenizer, code and model card. With a softmax,
    found in the checkpoint or given, it holds the language models too. With `--to allennlp`, SOURCE is such a
    repository and DEST gets AllenNLP's files, bit for bit those it was made of.
    """
    from elmo_hf.conversion.checkpoint import Given
    from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
    from elmo_hf.conversion.errors import ConversionError
    from elmo_hf.conversion.formats import convert_source
    from elmo_hf.conversion.published import download
    from elmo_hf.conversion.published_cards import facts_of

    if (weights is not None and options is None) or (options is not None and weights is None and len(paths) == 1):
        raise typer.BadParameter("--options and --weights go together.")
    has_files = weights is not None
    if len(paths) != (1 if has_files or model is not None else 2) or (options is not None and model is not None):
        raise typer.BadParameter("give SOURCE and DEST; with --options and --weights, or with --model, DEST alone.")
    destination = paths[-1]
    try:
        if to is Format.allennlp:
            if len(paths) != 2 or check or any((options, vocabulary, softmax, token_embeddings, word_splitter)):
                raise typer.BadParameter("--to allennlp takes SOURCE and DEST and no other option.")
            for note in folder_to_allennlp(paths[0], destination):
                typer.echo(f"Note: {note}")
            *written, last = sorted(destination.iterdir())
            typer.echo(f"Wrote {', '.join(map(str, written))} and {last}.")
            return
        splitter = word_splitter.value if word_splitter is not None else None
        if len(paths) == 2:
            given = Given(options, vocabulary, softmax, token_embeddings, splitter)
            difference = convert_source(paths[0], destination, given, check=check, tell=typer.echo)
        else:
            if options is not None and weights is not None:
                files, source_name = AllenNlpFiles(options, weights), weights.stem
            else:
                assert model is not None
                files, source_name = download(model), f"the published {model} model"
            difference = allennlp_to_folder(
                replace(
                    files,
                    vocabulary=vocabulary or files.vocabulary,
                    softmax=softmax or files.softmax,
                    token_embeddings=token_embeddings,
                ),
                destination,
                source_name=source_name,
                word_splitter=splitter or "ptb",
                check=check,
                facts=None if model is None else facts_of(model),
                tell=lambda note: typer.echo(f"Note: {note}"),
            )
    except (ConversionError, OSError) as error:
        fail(error)
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
    batch_words: Annotated[
        int, typer.Option(help="Most positions of a batch, padding included; more may suit a GPU.", min=1)
    ] = 2048,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")] = None,
) -> None:
    """Embed every sentence of INPUT, one a line, into one file.

    The n-th line (of CoNLL-U, sentence) is entry n, from 0, blank lines included. An interrupted run goes on where it
    stopped when the same command is given again. hdf5 files have AllenNLP's layout. Under `accelerate launch` or
    `torchrun` all processes do it together; machines must share a file system.
    """
    import torch

    from elmo_hf.embedding.embed import embed_file
    from elmo_hf.embedding.processes import Processes
    from elmo_hf.loading import load_complete, model_folder
    from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

    try:
        processes = Processes.launched(on_cpu=device == "cpu")
        place = torch.device(device or processes.device)
        torch.empty(0, device=place)
    except (AssertionError, RuntimeError, ValueError) as error:
        fail(error)
    try:
        number = embed_file(
            load_complete(model).to(place),
            ElmoTokenizer.from_pretrained(model_folder(model)),
            sys.stdin.buffer if source == "-" else Path(source),
            output,
            layers=layers.value,
            dtype=dtype.value,
            split_into_words=split_into_words,
            batch_words=batch_words,
            show_progress=True,
            processes=processes,
        )
    except (ValueError, OSError) as error:
        fail(error)
    if processes.is_first:
        typer.echo(f"Wrote {number} sentences to {output}.")


@app.command(
    epilog="Example: elmo-hf export tiny elmo.onnx",
    short_help="Write a model as an ONNX graph, or for torch alone.",
)
def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder or a Hub name.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="A new file, .onnx or .pt2 (torch.export).")],
    state: Annotated[bool, typer.Option("--state", help="Let the state of the LSTMs go in and out.")] = False,
) -> None:
    """Write MODEL as one file that runs without this package, for any number of texts and words.

    A model for a task is written with its head, any other one as its biLM. Inputs and outputs have names; the file is
    run, and its numbers compared with the model's, before it is given its name.
    """
    from elmo_hf.share.export import export_model, load_for_export

    try:
        difference = export_model(load_for_export(model), output, has_state=state)
    except (ImportError, ValueError, OSError) as error:
        fail(error)
    if difference is None:
        typer.echo("Not compared with the model: onnxruntime is not installed.")
    else:
        typer.echo(f"Largest difference from the model, all outputs: {difference:.1e} (float32).")
    typer.echo(f"Wrote {output}.")


@app.command(
    epilog="Example: elmo-hf push elmo-small my-org/elmo-small --private",
    short_help="Share a folder on the Hub.",
)
def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder as `elmo-hf convert` writes.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The Hub repository; a new one is created.")],
    private: Annotated[bool, typer.Option("--private", help="If the repository is new, make it private.")] = False,
) -> None:
    """Make the content of FOLDER one commit of a Hub repository.

    Needs a token with write access: run `hf auth login` once, or set HF_TOKEN. Nothing is sent unless FOLDER has all
    that loading it elsewhere takes. If an upload breaks off, give the same command again.
    """
    from elmo_hf.share.push import push_folder

    try:
        commit = push_folder(folder, name, private=private)
    except (ValueError, OSError) as error:
        fail(error)
    typer.echo(f"Wrote {commit.repo_url}, commit {commit.oid}.")
    typer.echo(f"Load it: AutoModel.from_pretrained({name!r}, revision={commit.oid!r}, trust_remote_code=True)")


@app.command(
    epilog="Example: elmo-hf verify elmo-small",
    short_help="Compare a folder of official weights with published outputs.",
)
def verify(
    model: Annotated[str, typer.Argument(metavar="FOLDER", help="A folder or a Hub name of converted weights.")],
) -> None:
    """Compare FOLDER with numbers that were published for the official weights.

    They are known for small, original and 5.5B; which of them FOLDER may be is told by its sizes. Ends with 0 if it
    gives the numbers of one of them.
    """
    from elmo_hf.conversion.witness.verify import candidates, table
    from elmo_hf.conversion.witness.verify import verify as compare
    from elmo_hf.loading import load_complete
    from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

    try:
        loaded, tokenizer = load_complete(model), ElmoTokenizer.from_pretrained(model)
        names = candidates(loaded.config)
    except (ValueError, OSError) as error:
        fail(error)
    for name in names:
        outcomes = list(compare(loaded, tokenizer, name))
        typer.echo(f"The published {name} model:")
        for line in table(outcomes):
            typer.echo(f"  {line}")
        if all(outcome.agrees for outcome in outcomes if outcome.stream.is_decisive):
            typer.echo(f"{model} gives the published numbers of {name}.")
            return
    fail(ValueError(f"{model} gives the numbers of none: it is another model, or its conversion went wrong."))


for command, summary, example in (
    (vocab, "Make the vocabulary of a language model.", "elmo-hf vocab corpus.txt -o words.txt --size 50000"),
    (
        pretrain,
        "Pretrain or adapt an ELMo.",
        "elmo-hf pretrain corpus.txt -o my-elmo --vocabulary words.txt --config config.json --held-out held-out.txt",
    ),
    (score, "Perplexity and surprisal of a text.", "elmo-hf score my-elmo text.txt --per-word surprisal.tsv"),
):
    app.command(epilog=f"Example: {example}", short_help=summary)(command)


def main() -> None:
    """Entry point of `elmo-hf`."""
    app()


if __name__ == "__main__":
    main()
