"""The command `elmo-hf embed`."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from typer import Argument, Option

from ..folder.model_names import refuse_unknown
from ..text.batches import BATCH_POSITIONS
from ..text.installed import require_packages
from .arguments import Column, Device, Encoding, InputFormatAlone, Model, SplitIntoWords, usable_device
from .dry_run import TEXT, show
from .errors import STOPPED, check_usage, counted_sentences, refuse_alone, say
from .protein_notes import naming_header_options, note_names, note_not_in_hdf5
from .split_notes import look_at

if TYPE_CHECKING:
    from ..embedding.chosen_words import ChosenWords
    from ..embedding.protein_names import ProteinNames
    from ..embedding.window_vectors import Selection

# The vectors that `embed` keeps of a sentence.
Layers = Literal["all", "top", "mix", "average", "sum", "concat", "pooled", "pooled_sum"]
# The type of the numbers that `embed` writes.
Dtype = Literal["float32", "float16", "bfloat16", "int8"]
# The formats of the shards that `embed` writes into a folder.
Format = Literal["parquet", "safetensors", "npz", "hdf5"]


def check_layers(value: str) -> str:
    """Refuses what is neither a name of layers nor a number."""
    is_known = value in get_args(Layers) or value.isdecimal()
    names = ", ".join(get_args(Layers))
    check_usage(is_known, f"{value!r} is neither one of {names}, nor the number of a layer.")
    return value


def embed(
    model: Model,
    sources: Annotated[
        list[str],
        Argument(
            metavar="INPUT...",
            help="Text, JSON lines, tables, Parquet, words in columns or FASTA, plain or .gz: files, patterns, "
            "folders, also in stores (s3://...); or - for standard input.",
        ),
    ],
    output: Annotated[
        str,
        Option(
            "--output",
            "-o",
            metavar="OUT",
            help="A new .hdf5, .h5, .safetensors, .parquet or .npz; or a folder (DIR/, s3://...) for shards.",
        ),
    ] = "",
    dry_run: Annotated[
        bool, Option("--dry-run", help="Print how INPUT is read, with its first sentences, and write nothing.")
    ] = False,
    layers: Annotated[
        str,
        Option(
            metavar=f"[{'|'.join(get_args(Layers))}|N]",
            callback=check_layers,
            help="What to keep of a sentence; N is the number of one layer, 0 for the word by itself.",
        ),
    ] = "all",
    dtype: Annotated[Dtype, Option(help="Type of the numbers written.")] = "float32",
    words: Annotated[
        str | None, Option(metavar="WHICH", help="Keep only these words: a file, one a line, or a regular expression.")
    ] = None,
    shard_format: Annotated[
        Format | None, Option("--format", help="Format of the shards in a folder; default: parquet.")
    ] = None,
    input_format: InputFormatAlone = None,
    column: Column = None,
    split: Annotated[
        str | None, Option(metavar="NAME", help="With --column: split of the dataset; default: train.")
    ] = None,
    split_into_words: SplitIntoWords = False,
    encoding: Encoding = "utf-8",
    id_part: Annotated[
        int | None,
        Option(
            "--id",
            metavar="N",
            help="Of FASTA: a protein's name is part N of its header, from 0, such as 1 of sp|P12345|X; default: the "
            "first word.",
            min=0,
        ),
    ] = None,
    split_char: Annotated[
        str | None, Option(metavar="TEXT", help="With --id: what separates the parts of a header; default: |.")
    ] = None,
    batch_words: Annotated[
        int, Option(help="Most positions of a batch, padding included; more may suit a GPU.", min=1)
    ] = BATCH_POSITIONS,
    allow_nan: Annotated[bool, Option("--allow-nan", help="Write NaN if the model gives it.")] = False,
    device: Device = None,
    engine: Annotated[Literal["ray"] | None, Option(help="Computes shards on the workers of a Ray cluster.")] = None,
) -> None:
    """Embed sentences: a file, or a corpus into shards.

    Line n (in CoNLL-U: sentence n) becomes entry n, counted from 0 with blank lines; a protein's entry has its name.
    Give the same command again to continue an interrupted run. hdf5 files have AllenNLP's layout. Under `accelerate
    launch` or `torchrun` the processes share the work; machines must share a file system, or a store.
    """
    refuse_alone("--column NAME", column is not None, split=split)
    refuse_alone("--id N", id_part is not None, split_char=split_char)
    check_usage(split_char != "", "--split-char must not be empty.")
    check_usage(dry_run or bool(output), "Missing option '--output' / '-o'; or give --dry-run.")
    refuse_unknown(model)
    from elmo_hf.embedding.chosen_words import ChosenWords
    from elmo_hf.embedding.input_documents import Documents
    from elmo_hf.embedding.processes import Alone, launched
    from elmo_hf.embedding.protein_names import HeaderPart, ProteinNames
    from elmo_hf.embedding.shards import EmbeddingOptions, check_output, embed_documents, is_folder
    from elmo_hf.embedding.window_vectors import Selection
    from elmo_hf.folder.loading import load_complete, load_tokenizer

    stream = sys.stdin.buffer if sources == ["-"] else None
    reading: dict[str, Any] = {
        "split_into_words": split_into_words,
        "encoding": encoding,
        "column": column,
        "input_format": input_format,
    }
    names = ProteinNames(None if id_part is None else HeaderPart(id_part, split_char or "|"))
    documents = Documents.find(sources, output, split=split or "train", stream=stream, protein_names=names, **reading)
    if dry_run:
        show(documents, load_tokenizer(model), model)
        return
    refuse_alone("a folder of shards, DIR/", is_folder(output), format=shard_format)
    selection = Selection(layers, dtype, None if words is None else ChosenWords(words), allow_nan)

    _use_system_memory_pool()
    if engine is None:
        make_shards, processes = None, launched(on_cpu=device == "cpu")
    else:
        make_shards, processes = _workers_of_ray(device), Alone()
    check_output(output, selection, shard_format or "parquet", processes.is_main_process)
    if not processes.is_main_process:
        logging.getLogger("elmo_hf.text").setLevel(logging.ERROR)  # one process says what all read
    place = usable_device("cpu" if engine else device or processes.device)
    loaded, tokenizer = load_complete(model).to(place), load_tokenizer(model)

    options = EmbeddingOptions(
        shard_format=shard_format or "parquet",
        batch_words=batch_words,
        processes=processes,
        make_shards=make_shards,
        show_progress=True,
        look=look_at(TEXT, tokenizer, model, split_into_words),
    )
    with naming_header_options(), _says_what_is_kept(output):
        count = embed_documents(loaded, tokenizer, documents, output, selection, options)
    if processes.is_main_process:
        say(f"Wrote {counted_sentences(count)} to {output}.")
        _note_what_was_kept(selection, words, loaded.config.pooling)
        _note_proteins(names, output, options.shard_format)


@contextmanager
def _says_what_is_kept(output: str) -> Iterator[None]:
    """Gives Ctrl-C the line that names the folder of the parts that are complete, if there is one."""
    from elmo_hf.embedding.shards import folder_of_shards

    try:
        yield
    except KeyboardInterrupt as stop:
        folder = Path(folder_of_shards(output))
        if not folder.exists():
            raise
        line = f"Stopped. {folder} is kept, with its complete parts, if any; the same command goes on from there."
        raise KeyboardInterrupt(line, STOPPED[1]) from stop


def _use_system_memory_pool() -> None:
    """Replaces pyarrow's own memory pool, which keeps up to 100 MiB of unused memory."""
    import pyarrow

    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def _workers_of_ray(device: str | None) -> Any:
    """The function that makes shards on the workers of a Ray cluster."""
    require_packages("ray", "ray")
    from elmo_hf.embedding.ray_data import in_workers

    return partial(in_workers, device=device)


def _note_what_was_kept(selection: "Selection", words: str | None, pooling: str) -> None:
    """Prints notes on the vectors that were written, where they may not be what a user expects."""
    _note_no_words(selection.words, words)
    _note_pooling(selection.layers, pooling)


def _note_proteins(names: "ProteinNames", output: str, shard_format: str) -> None:
    """Prints notes on the names of proteins, as the output has them."""
    from elmo_hf.embedding.shards import suffix_of_writer
    from elmo_hf.embedding.vector_files import WRITERS, write_hdf5

    note_names(names)
    if WRITERS[suffix_of_writer(output, shard_format)] is write_hdf5:
        note_not_in_hdf5(names)


def _note_no_words(chosen: "ChosenWords | None", words: str | None) -> None:
    """Prints a note if --words chose no word."""
    if chosen is not None and chosen.found is False:
        say(f"Note: --words {words} chose no word of the sentences embedded now; capitals count.")


def _note_pooling(layers: str, pooling: str) -> None:
    """Prints a note if a sentence's one vector is not the mean over its words, because the config says otherwise."""
    from elmo_hf.embedding.window_vectors import POOLED
    from elmo_hf.model.layers_elmo import masked_mean, pooling_of

    if layers in POOLED and pooling_of(pooling) is not masked_mean:
        say(f"Note: this model's config has pooling={pooling!r}, so `{layers}` is not the mean over the words.")
