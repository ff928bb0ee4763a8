"""The command `elmo-hf embed`."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .arguments import Encoding, Model
from .devices import usable_device
from .errors import counted, say, when_stopped
from .split_notes import say_split

# What `embed` keeps of a sentence.
Layers = Literal["all", "top", "mix", "average", "pooled"]
# The type of the numbers that `embed` writes.
Dtype = Literal["float32", "float16", "bfloat16", "int8"]
# What `embed` writes into a folder.
Format = Literal["parquet", "safetensors", "npz", "hdf5"]
# What `embed` may share the work with.
Engine = Literal["ray"]


@when_stopped("Stopped. The same command goes on from the last window that was finished.")
def embed(
    model: Model,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Text, .jsonl or .conllu, plain or .gz: files, patterns, folders, also in stores (s3://...); or - for "
            "standard input.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A new .hdf5, .h5, .safetensors, .parquet or .npz; or a folder (DIR/, s3://...) for shards.",
        ),
    ],
    layers: Annotated[Layers, typer.Option(help="What to keep of a sentence.")] = "all",
    dtype: Annotated[Dtype, typer.Option(help="Type of the numbers written.")] = "float32",
    words: Annotated[
        str | None,
        typer.Option(metavar="WORDS", help="Keep only these words: a file, one a line, or a regular expression."),
    ] = None,
    shard_format: Annotated[
        Format | None, typer.Option("--format", help="Of the shards in a folder; default: parquet.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="INPUT is a dataset (a folder or a Hub name) with this column.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --column: split of the dataset; default: train.")
    ] = None,
    split_into_words: Annotated[
        bool, typer.Option("--split-into-words", help="Sentences are words separated by blanks already.")
    ] = False,
    encoding: Encoding = "utf-8",
    batch_words: Annotated[
        int, typer.Option(help="Most positions of a batch, padding included; more may suit a GPU.", min=1)
    ] = 2048,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")] = None,
    engine: Annotated[Engine | None, typer.Option(help="Computes shards on the workers of a Ray cluster.")] = None,
) -> None:
    """Embed every sentence of INPUT, one a line, into one file, or into a folder of shards.

    The n-th line (of CoNLL-U, sentence) is entry n, from 0, blank lines included. Give the same command again to
    continue an interrupted run. hdf5 files have AllenNLP's layout. Under `accelerate launch` or `torchrun` the
    processes share the work; machines must share a file system, or a store.
    """
    chosen_format = shard_format or "parquet"
    if split is not None and column is None:
        raise typer.BadParameter("--split needs --column.")
    if sources == ["-"] and sys.stdin is None:
        raise ValueError("there is no standard input to read.")
    stream = sys.stdin.buffer if sources == ["-"] else None
    import pyarrow

    from elmo_hf.embedding.chosen_words import ChosenWords
    from elmo_hf.embedding.embed import check_one_file, embed_file
    from elmo_hf.embedding.inputs import Documents
    from elmo_hf.embedding.processes import Processes
    from elmo_hf.embedding.ray_workers import RayWorkers
    from elmo_hf.embedding.shards import embed_documents, is_folder, refuse_inside
    from elmo_hf.folder.loading import load_complete, load_tokenizer

    documents = None
    if is_folder(output):
        refuse_inside(output, sources)
        documents = Documents.find(sources, split_into_words, encoding, column, split or "train", stream)
    else:
        if shard_format is not None:
            raise ValueError("--format is for shards; that of one file is its suffix.")
        check_one_file(output, sources, column is not None, engine is not None)
    chosen = None if words is None else ChosenWords(words)

    # pyarrow's own memory pool keeps up to 100 MiB that it no longer needs.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    processes = Processes.launched(on_cpu=device == "cpu") if engine is None else RayWorkers(device)
    place = usable_device(device if device and engine is None else processes.device)
    loaded = load_complete(model).to(place), load_tokenizer(model)
    splitter, options = loaded[1].word_splitter, {"whitespace": "--split-into-words"}
    how: dict[str, Any] = {"layers": layers, "dtype": dtype, "words": chosen}
    how |= {"batch_words": batch_words, "show_progress": True, "processes": processes}
    how["look"] = lambda texts: say_split("the text", texts, splitter, options=options)
    if documents is not None:
        count = embed_documents(*loaded, documents, output, shard_format=chosen_format, **how)
    else:
        how |= {"split_into_words": split_into_words, "encoding": encoding}
        count = embed_file(*loaded, stream or Path(sources[0]), Path(output), **how)
    if processes.is_first:
        say(f"Wrote {counted(count, 'sentence')} to {output}.")
        if chosen is not None and chosen.found is False:
            say(f"Note: --words {words} chose no word of the sentences embedded now; capitals count.")
