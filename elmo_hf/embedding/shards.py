"""Embeds any number of documents into a folder of shards, on a disk or in a store, each written once.

    part-00000.parquet        the vectors of the first window of sentences, and so on; or .safetensors, .npz, .hdf5
    _index.jsonl              which sentences of which document each shard holds; written last
    _job.json                 what the shards are computed with: model, tokenizer, settings
    _index/part-00000.json    the digest of job and sentences, size and checksum of a shard; written after the shard

Each process reads the whole input once. Of R processes, process r takes windows r, r + R and so on: where the entry
of a window is there and its shard is whole, it goes on; else it computes the shard, writes it, then its entry. So
processes never write the same file, an interruption costs at most the shards in the making, and nothing else tells how
far a run has come. Names that begin with an underscore are no data to pandas, pyarrow, Spark and `datasets`.

A shard is whole if its size is that of its entry, and on a disk also its checksum; a store checks what it keeps itself.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from glob import has_magic
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ..disk.whole_files import named_if_full, only_writer
from ..model.modeling_elmo import ElmoModel
from ..sentences import Sentence
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .how import How
from .inputs import Documents, Line, windows_of
from .processes import Processes
from .stores import INDEX, JOB, Folder, is_url
from .vector_files import WRITERS, Record
from .window_vectors import Kept, Wanted, embed_window
from .working_folder import checksum_of, differing, digest_of, digest_with_job, seal, unseal

logger = logging.getLogger(__name__)

# What shards may be files of.
FORMATS = ("parquet", "safetensors", "npz", "hdf5")
# About how many bytes a shard has, if words have 5 letters; and the most characters, as little work may be lost.
SHARD_BYTES, SHARD_CHARACTERS = 1 << 27, 1_000_000

Window = list[tuple[Line, Sentence]]


def is_folder(output: str) -> bool:
    """Whether an output is a folder of shards: it ends with a slash, is one already, or is in a store."""
    return output.endswith("/") or Path(output).is_dir() or (is_url(output) and Path(output).suffix not in WRITERS)


def refuse_inside(output: str, sources: list[str]) -> None:
    """Raises ValueError if an output lies where the next run would read its files."""
    files = [f"{_place(output)}/{name}" for name in (INDEX, JOB, *(f"part-00000.{suffix}" for suffix in FORMATS))]
    for source in sources:
        pattern = re.escape(f"{_place(source)}/") + ".*"
        if has_magic(source) and not Path(source).exists():
            from fsspec.utils import glob_translate

            pattern = glob_translate(_place(source))
        elif Path(source).is_file():
            continue
        if any(re.fullmatch(pattern, file, re.DOTALL) for file in files):
            raise ValueError(f"{output} lies in {source}, which is read; choose another place.")


def _place(name: str) -> str:
    """A file or folder, its name without links and doubled slashes."""
    return re.sub("/+", "/", name).rstrip("/") if is_url(name) else os.path.realpath(name)


def embed_documents(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    folder: str,
    *,
    shard_format: str = "parquet",
    **options: Any,
) -> int:
    """Embeds every sentence of documents, or what is missing of them.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        documents: what to read, and how.
        folder: new, empty, or with shards of the same job; also in a store, as `s3://bucket/vectors`.
        shard_format: one of `FORMATS`.
        **options: fields of `How`.

    Returns:
        the number of sentences.

    Raises:
        ValueError: if an argument is illegal, a document cannot be read, the store cannot be reached, or the folder
            holds shards of another job or of other sentences.
        BlockingIOError: if another run is writing to a folder on this disk.
        FileExistsError: if the folder holds other files.
        NoRoomError: if there is no room on the disk.
    """
    how = How(**options)
    processes, wanted = how.processes or Processes(), how.wanted
    if shard_format not in FORMATS:
        raise ValueError(f"`shard_format` must be one of {', '.join(FORMATS)}, found {shard_format!r}.")
    wanted.check(f".{shard_format}", how.batch_words)
    if documents.stream is not None and processes.count > 1:
        raise ValueError("several processes cannot share standard input; write it to a file, and give that.")
    characters = min(SHARD_CHARACTERS, 6 * SHARD_BYTES // wanted.bytes_per_word(model))
    job = wanted.job(model, tokenizer) | {"split_into_words": documents.split_into_words, "format": shard_format}
    shards = _Shards(Folder(folder), job | {"shard_characters": characters})
    with ExitStack() as stack, nullcontext() if is_url(folder) else named_if_full(Path(folder)):
        processes.on_first(lambda: shards.open(stack))
        shards.look(f"process {processes.index}")
        make = _Maker(model.eval(), tokenizer, wanted, how.batch_words, shards)
        windows = windows_of(documents.read(), characters)
        if processes.is_first:
            windows = how.looked_at(windows)
        with tqdm(unit=" sentences", disable=not (how.show_progress and processes.is_first)) as bar:
            processes.map(make, shards.missing(windows, processes.index, processes.count), bar)
        processes.wait()
        processes.on_first(shards.finish)
    return shards.num_sentences


class _Shards:
    """The shards of a folder, and what is known of them."""

    def __init__(self, folder: Folder, job: dict[str, Any]) -> None:
        self._folder, self._job, self._suffix = folder, job, f".{job['format']}"
        self._sizes: dict[str, int] = {}
        self.num_windows = self.num_sentences = 0

    def open(self, stack: ExitStack) -> None:
        """Keeps other runs out of a folder on a disk until `stack` closes, and records the job.

        Raises:
            ValueError: if the folder holds shards of another job.
        """
        self._folder.refuse_foreign()
        if self._folder.disk is not None:
            self._folder.disk.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_writer(self._folder.disk))
            self._folder.remove_leftovers()
        recorded = unseal(self._folder.read([JOB])[0]) if JOB in self._folder.sizes() else None
        other = differing(self._job, recorded or self._job)
        if other:
            raise ValueError(
                f"{self._folder.name} holds shards of another {other}; give another folder, or delete that one to "
                "start anew."
            )
        if recorded is None:
            with self._folder.new(JOB) as path:
                path.write_bytes(seal(self._job))

    def look(self, process: str) -> None:
        """Lists what is there.

        Raises:
            ValueError: if this process, named so, does not see what the first one wrote.
        """
        self._sizes = self._folder.sizes()
        if JOB not in self._sizes:
            raise ValueError(
                f"{process} does not see {self._folder.name}/{JOB}, which the first process wrote; the "
                "machines must share a file system or a store."
            )

    def missing(self, windows: Iterable[Window], index: int, count: int) -> Iterator[tuple[int, int, Window]]:
        """Gives each window that process `index` of `count` is to compute: number, sentences before it, sentences."""
        for window in windows:
            if self.num_windows % count == index and not self.has(self.num_windows, window):
                yield self.num_windows, self.num_sentences, window
            self.num_windows += 1
            self.num_sentences += len(window)

    def has(self, number: int, window: Window) -> bool:
        """Whether a window's shard is there and whole; says so if it is there and damaged.

        Raises:
            ValueError: if it is of other sentences.
        """
        shard, entry = self._shard(number), _entry(number)
        if entry not in self._sizes:
            return False
        facts = unseal(self._folder.read([entry])[0])
        if facts is not None and facts["of"] != self._digest(window):
            raise ValueError(
                f"{self._folder.name}/{shard} is of other sentences: the input changed. Make it what it was, or "
                "give another folder; finished shards stay."
            )
        if facts is not None and facts["size"] == self._sizes.get(shard):
            disk = self._folder.disk
            if disk is None or facts["checksum"] == checksum_of(disk / shard):
                return True
        logger.warning("%s/%s is damaged; it is computed again.", self._folder.name, shard)
        return False

    def write(self, number: int, first: int, window: Window, kept: Iterator[tuple[int, Kept]]) -> None:
        """Writes a window's shard, then its entry.

        Args:
            number: of the window.
            first: how many sentences are before it.
            window: its sentences.
            kept: place in the window and arrays of each, in any order.
        """
        arrays = {row: {name: _alone(array) for name, array in each.items()} for row, each in kept}
        records = (Record(first + row, sentence, arrays[row], line) for row, (line, sentence) in enumerate(window))
        with self._folder.new(self._shard(number)) as path:
            WRITERS[self._suffix](path, records)
            facts = {"of": self._digest(window), "size": path.stat().st_size, "checksum": checksum_of(path)}
        documents = [[*lines[0], len(lines)] for lines in _by_document(window)]
        with self._folder.new(_entry(number)) as path:
            path.write_bytes(seal(facts | {"first": first, "documents": documents}))

    def finish(self) -> None:
        """Joins the entries of all shards into `_index.jsonl`.

        Raises:
            ValueError: if the folder holds shards of more sentences than the input has.
        """
        known = {self._shard(number) for number in range(self.num_windows)}
        beyond = sorted(name for name in self._sizes if name.startswith("part-") and name not in known)
        if beyond:
            raise ValueError(
                f"{self._folder.name}/{beyond[0]} is beyond the end of the input, which changed. "
                "Make it what it was, or give another folder; finished shards stay."
            )
        content = b"".join(self._index())
        if INDEX not in self._sizes or self._folder.read([INDEX]) != [content]:
            with self._folder.new(INDEX) as path:
                path.write_bytes(content)

    def _index(self) -> Iterator[bytes]:
        """A line for each document, or part of one, of each shard."""
        for number, sealed in enumerate(self._folder.read([_entry(number) for number in range(self.num_windows)])):
            facts = unseal(sealed)
            if facts is None:
                raise ValueError(
                    f"{self._folder.name}/{_entry(number)} was damaged while the run went on; give the same command "
                    "again."
                )
            row = 0
            for document, index, rows in facts["documents"]:
                line = {"shard": self._shard(number), "row": row, "rows": rows, "document": document, "index": index}
                line |= {"number": facts["first"] + row, "checksum": facts["checksum"]}
                row += rows
                yield json.dumps(line).encode() + b"\n"

    def _digest(self, window: Window) -> str:
        """Of the job, and of the sentences and where they stand."""
        places = [[*lines[0], len(lines)] for lines in _by_document(window)]
        return digest_with_job(self._job, json.dumps(places) + digest_of(sentence for _, sentence in window))

    def _shard(self, number: int) -> str:
        return f"part-{number:05d}{self._suffix}"


class _Maker(NamedTuple):
    """Computes a window and writes its shard, here or in a process of Ray's."""

    model: ElmoModel
    tokenizer: ElmoTokenizer
    wanted: Wanted
    batch_words: int
    shards: _Shards

    def begin(self, process: str, device: str) -> None:
        """Prepares another process."""
        self.shards.look(process)
        self.model.to(device)

    def __call__(self, number: int, first: int, window: Window, bar: tqdm | None = None) -> int:
        sentences = [sentence for _, sentence in window]
        kept = embed_window(self.model, self.tokenizer, sentences, self.wanted, self.batch_words, bar)
        self.shards.write(number, first, window, kept)
        return len(window)


def _alone(array: np.ndarray) -> np.ndarray:
    """A copy of a part of a batch, because it would keep the whole batch, padding included; a long text is one."""
    is_most = array.flags.c_contiguous and array.base is not None and 2 * array.nbytes > array.base.nbytes
    return array if is_most else array.copy()


def _entry(number: int) -> str:
    return f"_index/part-{number:05d}.json"


def _by_document(window: Window) -> Iterator[list[Line]]:
    """The lines of each document in a window, in their order."""
    for _, lines in groupby((line for line, _ in window), key=lambda line: line.document):
        yield [*lines]
