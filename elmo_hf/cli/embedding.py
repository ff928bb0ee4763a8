"""The command `elmo-hf embed`."""

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..embedding.arguments import BATCH_WORDS, check_paths, check_suffix
from ..model_names import check_name
from ..sentences import check_encoding
from .arguments import Encoding, Model
from .errors import fail, say, when_stopped


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
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="A new .hdf5, .h5, .safetensors, .parquet or .npz.")
    ],
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
    from elmo_hf.loading import load_complete, load_tokenizer

    try:
        processes = Processes.launched(on_cpu=device == "cpu")
        place = torch.device(device or processes.device)
        torch.empty(0, device=place)
    except (AssertionError, ImportError, RuntimeError, ValueError) as error:
        fail(error)
    try:
        count = embed_file(
            load_complete(model).to(place),
            load_tokenizer(model),
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
