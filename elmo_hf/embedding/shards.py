"""Embeds any number of documents into shards, each written once; one file of vectors is shards joined at the end.

A folder on a disk or in a store holds, for windows of consecutive sentences:

    part-00000.parquet        the vectors of the first window, and so on; or .safetensors, .npz, .hdf5
    _index.jsonl              which sentences of which document each shard holds; written last
    _job.json                 what the shards are computed with: model, tokenizer, settings
    _index/part-00000.json    the digest of job and sentences, size and checksum of a shard; written after the shard

The working folder `OUT.partial` of one file holds the same, with smaller windows and shards `part-00000.chunk`; at the
end they are joined in OUT, and the folder goes.

Each process reads the whole input once. Of R processes, process r takes windows r, r + R and so on: where the entry
of a window is there and its shard is whole, it goes on; else it computes the shard, writes it, then its entry. So
processes never write the same file, an interruption costs at most the shards in the making, and a run may be continued
with another R, or with Ray. A window depends on its own text alone, so a shard has the same bits for any R, on the same
kind of machine with as many threads each; where a measurement decides how bfloat16 is multiplied, the last bits may
differ. Names that begin with an underscore are no data to pandas, pyarrow, Spark and `datasets`.

A shard is whole if its size is that of its entry, and on a disk also its checksum; a store checks what it keeps itself.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from tqdm import tqdm

from ..disk.whole_files import check_folder_of, check_new_file, named_if_full, only_writer, publish_last
from ..model.modeling_elmo import ElmoModel
from ..text.sentences import raw_texts, storable
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .input_documents import Documents, Window
from .processes import Processes
from .ray_data import RayCluster
from .stores import Folder, is_url
from .vector_files import WRITERS, Record, read_chunk, write_chunk
from .window_vectors import BATCH_WORDS, Arrays, Selection, embed_window

logger = logging.getLogger(__name__)

# What shards may be files of.
FORMATS = ("parquet", "safetensors", "npz", "hdf5")
JOB, INDEX = "_job.json", "_index.jsonl"
# About how many bytes a shard has, if words have 5 letters; and the most characters, as little work may be lost.
SHARD_BYTES, SHARD_CHARACTERS = 1 << 27, 1_000_000
# The characters of a chunk, about 17,000 words of English.
CHUNK_CHARACTERS = 100_000
BLOCK = 1 << 22


def is_folder(output: str) -> bool:
    """Whether an output is a folder of shards: it ends with a slash, is one already, or is in a store."""
    return (
        output.endswith("/")
        or Path(output).is_dir()
        or (is_url(output) and PurePosixPath(output).suffix not in WRITERS)
    )


def embed_documents(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    output: str,
    selection: Selection,
    *,
    shard_format: str = "parquet",
    batch_words: int = BATCH_WORDS,
    processes: Processes | None = None,
    cluster: RayCluster | None = None,
    show_progress: bool = False,
    look: Callable[[list[str]], None] = lambda texts: None,
) -> int:
    """Embeds every sentence of documents, or what an interrupted run left to do.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        documents: what to read, and how.
        output: a folder as of `is_folder`, which is new, empty, or has shards of the same job; or a new file on a disk,
            whose suffix is a key of `WRITERS`.
        selection: what is kept of a sentence.
        shard_format: of a folder, one of `FORMATS`.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        processes: those that share the work, each calling this function with the same arguments; None: this one alone.
        cluster: whose workers compute; None: this process does.
        show_progress: shows a bar of the first process's sentences.
        look: gets the raw texts among the first sentences.

    Returns:
        the number of sentences.

    Raises:
        ValueError: if files of this format cannot hold the vectors, a document cannot be read or changes meanwhile, the
            store cannot be reached, or the folder holds shards of another job or of other sentences.
        BlockingIOError: if another run is writing to this output on a disk.
        FileExistsError: if the file exists, or the folder holds other files.
        NoRoomError: if there is no room on the disk.
    """
    processes = processes or Processes()
    file = None if is_folder(output) else Path(output)
    suffix = f".{shard_format}" if file is None else file.suffix.lower()
    if suffix not in WRITERS or (file is not None and is_url(output)):
        raise ValueError(
            f"vectors are written to a folder ({output}/), or on this disk to a file whose suffix is one of "
            f"{', '.join(WRITERS)}, found {output}."
        )
    selection.check_holder(suffix)
    by_bytes = 6 * SHARD_BYTES // selection.bytes_per_word(model)
    characters = min(SHARD_CHARACTERS, by_bytes) if file is None else CHUNK_CHARACTERS
    job = selection.job(model, tokenizer) | {"split_into_words": documents.split_into_words}
    job |= {"format": shard_format if file is None else "chunk", "shard_characters": characters}
    shards = _Shards(Folder(output if file is None else f"{output}.partial"), job)
    place = file or shards.folder.disk
    with ExitStack() as stack, nullcontext() if place is None else named_if_full(place):
        processes.on_first(lambda: shards.open(file, stack))
        shards.look(f"process {processes.index}")
        maker = _Maker(model.eval(), tokenizer, selection, batch_words, shards)
        windows = documents.windows(characters)
        index, count = processes.index, processes.count
        if documents.stream is not None:  # which cannot be shared, so the first process does all
            windows, count = windows if processes.is_first else iter(()), 1
        if processes.is_first:
            first = [*islice(windows, 1)]
            look(raw_texts(chain.from_iterable(window.sentences for window in first)))
            windows = chain(first, windows)
        missing = shards.missing(windows, index, count)
        with tqdm(unit=" sentences", disable=not (show_progress and processes.is_first)) as bar:
            if cluster is not None:
                cluster.make(maker, missing, bar)
            else:
                for window in missing:
                    maker(window, bar)
        processes.wait()
        processes.on_first(lambda: shards.finish(file))
    return shards.num_sentences


class _Shards:
    """The shards of a folder, and what is known of them."""

    def __init__(self, folder: Folder, job: dict[str, Any]) -> None:
        self.folder, self._job, self._suffix = folder, job, f".{job['format']}"
        self._sizes: dict[str, int] = {}
        self._digests: list[str] = []
        self.num_sentences = 0

    def open(self, file: Path | None, stack: ExitStack) -> None:
        """Keeps other runs out of an output on a disk until `stack` closes, and records the job.

        Args:
            file: the output; None if it is the folder itself.
            stack: what closes in the end.

        Raises:
            FileExistsError: if the file exists, or the folder holds other files.
            ValueError: if the folder holds shards of another job.
        """
        disk = self.folder.disk
        if file is not None:
            check_folder_of(file)
        names = self.folder.sizes()
        if names and JOB not in names and not any(name.startswith("_index/") for name in names):
            raise FileExistsError(f"{self.folder.name} holds other files, such as {min(names)}; give a new folder.")
        if disk is not None:
            if file is None:
                disk.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_writer(file or disk))
            self.folder.remove_leftovers()
            names = self.folder.sizes()
        if file is not None:
            check_new_file(file)
        if file is not None and disk is not None:
            stack.callback(_remove_empty, disk)
        recorded = _unseal(self.folder.read([JOB])[0]) if JOB in names else None
        if recorded is None:
            with self.folder.new(JOB) as path:
                path.write_bytes(_seal(self._job))
        elif other := " and ".join(key for key in self._job if recorded.get(key) != self._job[key]):
            raise ValueError(
                f"{self.folder.name} holds shards of another {other}; choose another output, or delete that folder to "
                "start anew."
            )

    def look(self, process: str) -> None:
        """Lists what is there.

        Raises:
            ValueError: if this process, named so, does not see what the first one wrote.
        """
        self._sizes = self.folder.sizes()
        if JOB not in self._sizes:
            raise ValueError(
                f"{process} does not see {self.folder.name}/{JOB}, which the first process wrote; the "
                "machines must share a file system or a store."
            )

    def missing(self, windows: Iterable[Window], index: int, count: int) -> Iterator[Window]:
        """Gives each window that process `index` of `count` is to compute."""
        for window in windows:
            digest = self._digest(window)
            if window.number % count == index and not self._has(window.number, digest):
                yield window
            self._digests.append(digest)
            self.num_sentences += len(window.lines)

    def _has(self, number: int, digest: str) -> bool:
        """Whether a window's shard is there and whole; says so if it is there and damaged.

        Raises:
            ValueError: if it is of other sentences.
        """
        shard, entry = self._shard(number), _entry(number)
        if entry not in self._sizes:
            return False
        facts = _unseal(self.folder.read([entry])[0])
        if facts is not None and facts.get("of") != digest:
            raise self._changed(shard)
        if facts is not None and facts["size"] == self._sizes.get(shard):
            disk = self.folder.disk
            if disk is None or facts["checksum"] == _checksum_of(disk / shard):
                return True
        logger.warning("%s/%s is damaged; it is computed again.", self.folder.name, shard)
        return False

    def _changed(self, shard: str) -> ValueError:
        return ValueError(
            f"the input changed: {self.folder.name}/{shard} is of other sentences. Make the input what it was, choose "
            "another output, or delete that folder to start anew."
        )

    def write(self, window: Window, arrays: Iterator[tuple[int, Arrays]]) -> None:
        """Writes a window's shard, then its entry.

        Args:
            window: its sentences.
            arrays: place in the window and arrays of each, in any order.
        """
        by_row = {row: {name: _alone(array) for name, array in each.items()} for row, each in arrays}
        texts = (storable(each if isinstance(each, str) else " ".join(each)) for each in window.sentences)
        rows = zip(texts, window.lines, strict=True)
        records = (Record(window.first + row, text, by_row[row], line) for row, (text, line) in enumerate(rows))
        with self.folder.new(self._shard(window.number)) as path:
            WRITERS.get(self._suffix, write_chunk)(path, records)
            facts = {"of": self._digest(window), "size": path.stat().st_size, "checksum": _checksum_of(path)}
        with self.folder.new(_entry(window.number)) as path:
            path.write_bytes(_seal(facts | {"first": window.first, "documents": _spans(window)}))

    def finish(self, file: Path | None) -> None:
        """Joins the entries of all shards into `_index.jsonl`, or the shards into one file.

        Raises:
            ValueError: if the input changed or a shard was damaged meanwhile.
        """
        known = {self._shard(number) for number in range(len(self._digests))}
        for name in sorted(self._sizes):
            if name.startswith("part-") and name not in known:
                raise self._changed(name)
        if file is not None and self.folder.disk is not None:
            written = self.folder.disk / file.name
            try:
                WRITERS[file.suffix.lower()](written, self._records(self.folder.disk))
                publish_last(written, file)
            finally:
                written.unlink(missing_ok=True)  # a full disk gets its room back
            return
        content = b"".join(self._index())
        if INDEX not in self._sizes or self.folder.read([INDEX]) != [content]:
            with self.folder.new(INDEX) as path:
                path.write_bytes(content)

    def _records(self, disk: Path) -> Iterator[Record]:
        """All sentences."""
        for number, facts in enumerate(self._entries()):
            path = disk / self._shard(number)
            if _checksum_of(path) != facts["checksum"]:
                raise _damaged(path)
            yield from read_chunk(path, facts["first"])

    def _index(self) -> Iterator[bytes]:
        """A line for each document, or part of one, of each shard."""
        for number, facts in enumerate(self._entries()):
            row = 0
            for document, index, rows in facts["documents"]:
                line = {"shard": self._shard(number), "row": row, "rows": rows, "document": document, "index": index}
                line |= {"number": facts["first"] + row, "checksum": facts["checksum"]}
                row += rows
                yield json.dumps(line).encode() + b"\n"

    def _entries(self) -> Iterator[dict[str, Any]]:
        """What is recorded of each shard, which this or another process wrote, or an earlier run."""
        entries = self.folder.read([_entry(number) for number in range(len(self._digests))])
        for number, (sealed, digest) in enumerate(zip(entries, self._digests, strict=True)):
            facts = _unseal(sealed)
            if facts is None:
                raise _damaged(f"{self.folder.name}/{_entry(number)}")
            if facts.get("of") != digest:  # another process read other sentences
                raise self._changed(self._shard(number))
            yield facts

    def _digest(self, window: Window) -> str:
        """Of the job, and of the sentences and where they stand."""
        sentences = hashlib.sha256()
        for sentence in window.sentences:
            sentences.update(json.dumps(sentence).encode() + b"\n")
        content = json.dumps(self._job) + json.dumps(_spans(window)) + sentences.hexdigest()
        return hashlib.sha256(content.encode()).hexdigest()

    def _shard(self, number: int) -> str:
        return f"part-{number:05d}{self._suffix}"


class _Maker(NamedTuple):
    """Computes a window and writes its shard, here or in a process of Ray's."""

    model: ElmoModel
    tokenizer: ElmoTokenizer
    selection: Selection
    batch_words: int
    shards: _Shards

    def begin(self, process: str, device: str) -> None:
        """Prepares another process."""
        self.shards.look(process)
        self.model.to(device)

    def __call__(self, window: Window, bar: tqdm | None = None) -> None:
        arrays = embed_window(self.model, self.tokenizer, window.sentences, self.selection, self.batch_words, bar)
        self.shards.write(window, arrays)


def _alone(array: np.ndarray) -> np.ndarray:
    """A copy of a part of a batch, because it would keep the whole batch, padding included; a long text is one."""
    is_most = array.flags.c_contiguous and array.base is not None and 2 * array.nbytes > array.base.nbytes
    return array if is_most else array.copy()


def _remove_empty(folder: Path) -> None:
    """Removes a working folder without shards, such as that of an input that could not be read."""
    if not (folder / "_index").is_dir():
        shutil.rmtree(folder, ignore_errors=True)


def _entry(number: int) -> str:
    return f"_index/part-{number:05d}.json"


def _spans(window: Window) -> list[list[Any]]:
    """Of each document in a window: its name, the first of its sentences, and how many there are."""
    parts = ([*lines] for _, lines in groupby(window.lines, key=lambda line: line.document))
    return [[*lines[0], len(lines)] for lines in parts]


def _seal(value: dict[str, Any]) -> bytes:
    """A JSON object, and above it a line with its checksum."""
    content = json.dumps(value).encode()
    return b"%08x\n" % google_crc32c.value(content) + content


def _unseal(sealed: bytes) -> dict[str, Any] | None:
    """The object that `_seal` took; None if it is damaged."""
    checksum, _, content = sealed.partition(b"\n")
    return json.loads(content) if checksum == b"%08x" % google_crc32c.value(content) else None


def _checksum_of(path: Path) -> str:
    """The CRC-32C of a file in hexadecimal."""
    checksum = google_crc32c.Checksum()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            checksum.update(block)
    return checksum.hexdigest().decode()


def _damaged(path: str | Path) -> ValueError:
    return ValueError(f"{path} was damaged while the run went on; give the same command again.")
