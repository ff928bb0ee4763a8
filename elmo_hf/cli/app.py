"""The command line `elmo-hf`: its list of commands, and `embed`, `export` and `push`.

Modules of commands import nothing heavy. Each command first checks what needs no model, then imports what it runs, so
that help and refusals come at once.
"""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..embedding.arguments import BATCH_WORDS, check_paths, check_suffix
from ..model_names import check_name
from ..sentences import check_encoding
from .conversion import convert, verify
from .errors import fail, say, when_stopped
from .language_models import Encoding, pretrain, score, vocab

app = typer.Typer(
    name="elmo-hf",
    help="ELMo (Peters et al. 2018) as a transformers model: convert, embed, pretrain, score, share.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder or a Hub name.")]


class Layers(str, Enum):
    """What `embed` keeps of a sentence."""

    all = "all"
    top = "top"
    mix = "mix"
    average = "average"
    pooled = "pooled"


class Dtype(str, Enum):
    """The type of the numbers that `embed` writes."""

    float32 = "float32"
    float16 = "float16"


@when_stopped("Stopped. The same command goes on from the last window that was finished.")
def embed(
    model: Model,
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Text, .jsonl or .conllu, plain or .gz; or - for standard input.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help=".hdf5, .safetensors, .parquet or .npz")],
    layers: Annotated[Layers, typer.Option(help="What to keep of a sentence.")] = Layers.all,
    dtype: Annotated[Dtype, typer.Option(help="Type of the numbers written.")] = Dtype.float32,
    split_into_words: Annotated[
        bool, typer.Option("--split-into-words", help="Sentences are words separated by blanks already.")
    ] = False,
    encoding: Encoding = "utf-8",
    batch_words: Annotated[
        int, typer.Option(help="Most positions of a batch, padding included; more may suit a GPU.", min=1)
    ] = BATCH_WORDS,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")] = None,
) -> None:
    """Embed every sentence of INPUT, one a line, into one file.

    The n-th line (of CoNLL-U, sentence) is entry n, from 0, blank lines included. Give the same command again to
    continue an interrupted run. hdf5 files have AllenNLP's layout. Under `accelerate launch` or `torchrun` the
    processes share the work; machines must share a file system.
    """
    stream = sys.stdin.buffer if source == "-" else None
    try:
        check_suffix(output)
        check_paths(None if stream else Path(source), output)
        check_name(model)
        check_encoding(encoding)
    except (ValueError, OSError) as error:
        fail(error)
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
        count = embed_file(
            load_complete(model).to(place),
            ElmoTokenizer.from_pretrained(model_folder(model)),
            stream or Path(source),
            output,
            layers=layers.value,
            dtype=dtype.value,
            split_into_words=split_into_words,
            encoding=encoding,
            batch_words=batch_words,
            show_progress=True,
            processes=processes,
        )
    except (ValueError, OSError) as error:
        fail(error)
    if processes.is_first:
        say(f"Wrote {count} sentences to {output}.")


@when_stopped("Stopped. Nothing was written.")
def export(
    model: Model,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="A new file, .onnx or .pt2 (torch.export).")],
    state: Annotated[bool, typer.Option("--state", help="Let the LSTMs' state go in and out.")] = False,
) -> None:
    """Write MODEL as one file that runs without this package, for any number of texts and words.

    A model for a task is written with its head, any other one as its biLM. Inputs and outputs have names. Before the
    file gets its name, it is run and its outputs are compared with the model's.
    """
    from elmo_hf.share.export_arguments import check_output

    try:
        check_output(output)
        check_name(model)
    except (ImportError, ValueError, OSError) as error:
        fail(error)
    from elmo_hf.share.export import export_model, load_for_export

    try:
        difference = export_model(load_for_export(model), output, has_state=state)
    except (ImportError, ValueError, OSError) as error:
        fail(error)
    if difference is None:
        say("Not compared with the model: onnxruntime is not installed.")
    else:
        say(f"Largest difference from the model, all outputs: {difference:.1e} (float32).")
    say(f"Wrote {output}.")


def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder as `elmo-hf convert` writes.")],
    name: Annotated[str, typer.Argument(metavar="ORG/NAME", help="The Hub repository; a new one is created.")],
    private: Annotated[bool, typer.Option("--private", help="If the repository is new, make it private.")] = False,
) -> None:
    """Make the content of FOLDER one commit of a Hub repository.

    Needs a token with write access: run `hf auth login` once, or set HF_TOKEN. Nothing is sent unless FOLDER has
    everything that loading it elsewhere needs. If an upload breaks off, give the same command again.
    """
    from elmo_hf.share.destination import check_name_and_token

    try:
        check_name_and_token(name)
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}.")
    except (ValueError, OSError) as error:
        fail(error)
    from elmo_hf.share.push import push_folder

    try:
        commit = push_folder(folder, name, private=private)
    except (ValueError, OSError) as error:
        fail(error)
    say(f"Wrote {commit.repo_url}, commit {commit.oid}.")
    say(f"Load it: AutoModel.from_pretrained({name!r}, revision={commit.oid!r}, trust_remote_code=True)")


PRETRAIN_EXAMPLE = "pretrain corpus.txt -o my-elmo --vocabulary words.txt --config config.json --held-out held-out.txt"
for command, summary, example in (
    (
        convert,
        "Convert a checkpoint to a Hub folder, or a Hub folder back.",
        "convert tests/fixtures/base_2l_relu tiny-elmo --check",
    ),
    (embed, "Embed a file of sentences.", "embed tiny-elmo sentences.txt -o vectors.hdf5 --layers average"),
    (export, "Write a model as an ONNX graph, or for torch alone.", "export tiny elmo.onnx"),
    (push, "Share a folder on the Hub.", "push elmo-small my-org/elmo-small --private"),
    (verify, "Compare a folder of official weights with published outputs.", "verify elmo-small"),
    (vocab, "Make the vocabulary of a language model.", "vocab corpus.txt -o words.txt --size 50000"),
    (pretrain, "Pretrain or adapt an ELMo.", PRETRAIN_EXAMPLE),
    (score, "Perplexity and surprisal of a text.", "score my-elmo text.txt --per-word surprisal.tsv"),
):
    app.command(epilog=f"Example: elmo-hf {example}", short_help=summary)(command)


def main() -> None:
    """Entry point of `elmo-hf`."""
    app()
