"""Embeds any number of documents into shards, each written once; a single file is joined from shards at the end.

A folder on a disk or in a store holds, for windows of consecutive sentences:

    part-00000.parquet        the vectors of the first window, and so on; or .safetensors, .npz, .hdf5
    _job.json                 the model, tokenizer and settings that made the shards
    _index/part-00000.txt     the digest of job and sentences, checksum and size of a shard; written after the shard
    _index.jsonl              the documents and sentences in each shard; written when all shards are there
    _index/SHA256SUMS         the checksums of the files without vectors; written last

For a single output file, the working folder `OUT.partial` has the same files, with smaller windows and shards
`part-00000.chunk`; at the end they are joined in OUT, and the folder is removed.

Each of R processes reads the whole input once; process r takes windows r, r + R and so on. If a window has an entry and
its shard is whole, it is skipped; otherwise the process computes the shard, writes it, then its entry. So no two
processes write the same file, an interruption loses at most the unfinished shards, and a run may be continued with
another R, or with Ray. A shard depends only on its own text, so it has the same bits for any R, on the same kind of
machine and number of threads; where a measurement decides how bfloat16 is multiplied, the last bits may differ. pandas,
pyarrow, Spark and `datasets` ignore names that begin with an underscore.

A shard is whole if it has the size that its entry records, and on a disk also the checksum; a store has its own checks.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from ..disk.checksums import sum_lines
from ..disk.whole_files import leftover, named_if_full, only_writer, publish, refuse_existing
from ..model.tokenization_elmo import ElmoTokenizer
from ..public import ElmoModel
from ..text.first_look import Count, is_blank, raw_texts
from ..text.sentences import Protein, Sentence, storable
from .input_documents import Documents, Window
from .processes import Alone
from .shard_files import INDEX, JOB, SHARD_SUMS, checksum_of, entry_name, name_in_list
from .stores import Folder, is_url
from .vector_files import WRITERS, Record, read_chunk, write_chunk
from .window_vectors import BATCH_WORDS, Arrays, Selection, embed_window

if TYPE_CHECKING:
    from accelerate import PartialState

logger = logging.getLogger(__name__)

# Formats of shards.
FORMATS = ("parquet", "safetensors", "npz", "hdf5")
# The approximate bytes of a shard if words have 5 letters, and its most characters, which limit the work at risk.
SHARD_BYTES, SHARD_CHARACTERS = 1 << 27, 1_000_000
# The characters of a chunk, about 17,000 words of English.
CHUNK_CHARACTERS = 100_000


def is_folder(output: str) -> bool:
    """Whether an output is a folder of shards: it ends with a slash, is a folder already, or is in a store."""
    return (
        output.endswith("/")
        or Path(output).is_dir()
        or (is_url(output) and PurePosixPath(output).suffix not in WRITERS)
    )


class Maker(NamedTuple):
    """Computes a window and writes its shard, here or in another process."""

    model: ElmoModel
    tokenizer: ElmoTokenizer
    selection: Selection
    batch_words: int
    shards: "Shards"

    def __call__(self, window: Window, bar: tqdm | None = None) -> None:
        """Makes the shard of a window; the bar counts sentences."""
        texts = window.sentences
        arrays = embed_window(self.model, self.tokenizer, texts, self.selection, self.batch_words, bar, window.first)
        self.shards.write(window, arrays)


def embed_documents(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    output: str,
    selection: Selection,
    *,
    shard_format: str = "parquet",
    batch_words: int = BATCH_WORDS,
    window_characters: int | None = None,
    processes: "Alone | PartialState | None" = None,
    make: Callable[[Maker, Iterable[Window], tqdm], None] | None = None,
    show_progress: bool = False,
    look: Callable[[list[str]], None] = lambda texts: None,
) -> Count:
    """Embeds every sentence of documents, or the rest that an interrupted run left.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        documents: the documents to read.
        output: a folder (see `is_folder`) that is new, empty, or has shards of the same job; or a new file on a disk,
            whose suffix is a key of `WRITERS`.
        selection: the vectors to keep of a sentence.
        shard_format: the format of a folder's shards, one of `FORMATS`.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        window_characters: characters of a shard; None: about `SHARD_BYTES` of vectors, for a file `CHUNK_CHARACTERS`.
        processes: those that share the work and call this function with the same arguments; None: only this process.
        make: a function that makes the shards of windows, in any order; None: this process makes them one by one.
        show_progress: shows a bar of the first process's sentences.
        look: a function that is called with the raw texts among the first sentences.

    Returns:
        the number of sentences, and of blank ones among them.

    Raises:
        ValueError: if files of this format cannot hold the vectors, there are no sentences, a document cannot be read
            or changes meanwhile, or the folder holds shards of another job or of other sentences.
        BlockingIOError: if another run is writing to this output on a disk.
        FileExistsError: if the file exists, or the folder holds other files.
        OSError: if there is no room on the disk; and other errors, if a store cannot be reached.
    """
    processes = processes or Alone()
    file = None if is_folder(output) else Path(output)
    suffix = f".{shard_format}" if file is None else file.suffix.lower()
    if suffix not in WRITERS or (file is not None and is_url(output)):
        raise ValueError(
            "vectors are written to a new folder, DIR/, or on this disk to a new file whose suffix is one of "
            f"{', '.join(WRITERS)}, found {output}."
        )
    selection.check(suffix)
    by_bytes = 6 * SHARD_BYTES // selection.bytes_per_word(model)
    characters = window_characters or (CHUNK_CHARACTERS if file else min(SHARD_CHARACTERS, by_bytes))
    job: dict[str, Any] = {} if documents.protein_names is None else documents.protein_names.job()
    job |= selection.job(model, tokenizer) | {"split_into_words": documents.split_into_words}
    job |= {"format": "chunk" if file else shard_format, "shard_characters": characters}
    shards = Shards(Folder(f"{output}.partial" if file else output), job, file)
    windows = documents.windows(characters)
    index, count = processes.process_index, processes.num_processes
    if documents.stream is not None:  # standard input cannot be shared, so the first process does all
        windows, count = windows if processes.is_main_process else iter(()), 1
    with ExitStack() as stack:
        if processes.is_main_process:
            is_new = shards.begin(stack)
            first = [*islice(windows, 1)]  # reads first: if that fails, nothing is written
            if not first and is_new:
                raise ValueError(f"there are no sentences in {', '.join(documents.names) or output:.200}.")
            look(raw_texts(chain.from_iterable(window.sentences for window in first)))
            windows = chain(first, windows)
            if is_new:
                shards.record_job()
        processes.wait_for_everyone()
        shards.look()
        with tqdm(unit=" sentences", disable=not (show_progress and processes.is_main_process)) as bar:
            maker = Maker(model.eval(), tokenizer, selection, batch_words, shards)
            missing = shards.missing(windows, index, count)
            if make is not None:
                make(maker, missing, bar)
            else:
                for window in missing:
                    maker(window, bar)
        processes.wait_for_everyone()
        if processes.is_main_process:
            shards.finish()
    return shards.count


class Shards:
    """The shards of a folder and their entries; errors are those of `embed_documents`.

    Attributes:
        count: of the sentences in the windows that were read.
    """

    def __init__(self, folder: Folder, job: dict[str, Any], file: Path | None) -> None:
        """Writes nothing yet; the shards are joined in `file` if there is one."""
        self._folder, self._job, self._file = folder, json.dumps(job, indent=1), file
        self._joined: Path | None = None  # where the single file is written
        self._suffix = f".{job['format']}"
        self._sizes: dict[str, int] = {}
        self._windows: list[tuple[str, int, list[list[Any]]]] = []  # digest, first sentence and spans of each
        self.count = Count(0, 0)

    def begin(self, stack: ExitStack) -> bool:
        """Keeps other runs from writing an output on a disk until `stack` closes.

        Returns:
            whether there are no shards yet.
        """
        place = self._file or self._folder.disk
        if place is not None:
            if self._file is None:
                place.parent.mkdir(parents=True, exist_ok=True)
            self._joined = stack.enter_context(only_writer(place))
            stack.enter_context(named_if_full(place))
        if self._file is not None:
            refuse_existing(self._file, is_folder=False)
        names = self._folder.sizes()
        if names and JOB not in names:
            raise FileExistsError(f"{self._folder.name} holds other files, such as {min(names)}; give a new folder.")
        return not any(name.startswith("part-") for name in names)

    def record_job(self) -> None:
        """Records the model, tokenizer and settings of the shards."""
        with self._folder.new(JOB) as path:
            path.write_text(self._job, encoding="utf-8")

    def look(self) -> None:
        """Lists the files that exist, which must be of this job."""
        self._sizes = self._folder.sizes()
        recorded = self._folder.read([JOB])[0].decode(errors="replace")
        lines, recorded_lines = self._job.splitlines(), recorded.splitlines()
        other = " ".join(line for line in lines if line not in recorded_lines)
        beyond = " ".join(line for line in recorded_lines if line not in lines)
        if other or beyond:
            difference = f"than {other}" if other else f"with {beyond}"
            raise ValueError(
                f"{self._folder.name} holds shards of another job {difference}; choose another output, or delete that "
                "folder to start again."
            )

    def missing(self, windows: Iterable[Window], index: int, count: int) -> Iterator[Window]:
        """Gives each window that process `index` of `count` is to compute."""
        for window in windows:
            window = window._replace(digest=self._digest(window))
            if window.number % count == index and not self._has(window.number, window.digest):
                yield window
            self._windows.append((window.digest, window.first, _spans(window)))
            num_blank = self.count.blank + sum(map(is_blank, window.sentences))
            self.count = Count(self.count.sentences + len(window.lines), num_blank)

    def _has(self, number: int, digest: str) -> bool:
        """Whether a window's shard exists and is whole; prints a note if it is damaged."""
        shard, entry = self._shard(number), entry_name(number)
        if shard not in self._sizes or entry not in self._sizes:
            return False
        checksum, size = self._facts(self._folder.read([entry])[0], number, digest)
        disk = self._folder.disk
        if size == str(self._sizes[shard]) and (disk is None or checksum == _checksum_of(disk / shard)):
            return True
        logger.warning("%s/%s is damaged; it is computed again.", self._folder.name, shard)
        return False

    def _facts(self, entry: bytes, number: int, digest: str) -> list[str]:
        """The checksum and the size of a shard from its entry; two empty values if the entry is damaged."""
        found = entry.decode(errors="replace").split()
        if len(found) != 3:
            return ["", ""]
        if found[0] != digest:
            self._refuse(self._shard(number))
        return found[1:]

    def _refuse(self, shard: str) -> NoReturn:
        raise ValueError(
            f"the input changed: {self._folder.name}/{shard} holds other sentences, or its proteins have other names. "
            "Restore the input, choose another output, or delete that folder to start again."
        )

    def write(self, window: Window, arrays: Iterator[tuple[int, Arrays]]) -> None:
        """Writes a window's shard, then its entry.

        Args:
            window: its sentences.
            arrays: the place in the window and the arrays of each sentence, in any order.
        """
        by_row = {row: {name: _alone(array) for name, array in each.items()} for row, each in arrays}
        rows = zip(window.sentences, window.lines, strict=True)
        records = (
            Record(window.first + row, storable(_shown(sentence)), by_row[row], line, isinstance(sentence, Protein))
            for row, (sentence, line) in enumerate(rows)
        )
        with self._folder.new(self._shard(window.number)) as path:
            WRITERS.get(self._suffix, write_chunk)(path, records)
            facts = window.digest, _checksum_of(path), str(path.stat().st_size)
        with self._folder.new(entry_name(window.number)) as path:
            path.write_text(" ".join(facts) + "\n", encoding="ascii")

    def finish(self) -> None:
        """Writes the index and the checksums; or joins the shards in the single file, under another name at first."""
        known = {self._shard(number) for number in range(len(self._windows))}
        if beyond := sorted(name for name in self._sizes if name.startswith("part-") and name not in known):
            self._refuse(beyond[0])
        self._folder.remove_leftovers()
        entries = self._folder.read([entry_name(number) for number in range(len(self._windows))])
        if self._file is not None and self._joined is not None and self._folder.disk is not None:
            WRITERS[self._file.suffix.lower()](self._joined, self._records(self._folder.disk, entries))
            publish(self._joined, self._file)
            with leftover(self._folder.disk):
                self._folder.disk.replace(self._joined)  # removed here, or by a later process if this one is killed
            return
        content = {JOB: self._folder.read([JOB])[0], INDEX: "".join(self._index(entries)).encode()}
        content |= {entry_name(number): entry for number, entry in enumerate(entries)}
        self._renew(INDEX, content[INDEX])
        digests = {name_in_list(name): hashlib.sha256(data).hexdigest() for name, data in content.items()}
        self._renew(SHARD_SUMS, sum_lines(digests).encode())

    def _renew(self, name: str, content: bytes) -> None:
        """Writes a file unless it has this content."""
        if name not in self._sizes or self._folder.read([name]) != [content]:
            with self._folder.new(name) as path:
                path.write_bytes(content)

    def _records(self, disk: Path, entries: Sequence[bytes]) -> Iterator[Record]:
        """All sentences."""
        for number, _ in enumerate(self._checksums(entries)):
            _, first, spans = self._windows[number]
            lines = ((document, index + row) for document, index, rows in spans for row in range(rows))
            yield from read_chunk(disk / self._shard(number), first, lines)

    def _index(self, entries: Sequence[bytes]) -> Iterator[str]:
        """A line for each document, or part of a document, in each shard."""
        for number, checksum in enumerate(self._checksums(entries)):
            _, first, spans = self._windows[number]
            row = 0
            for document, index, rows in spans:
                line = {"shard": self._shard(number), "row": row, "rows": rows, "document": document, "index": index}
                yield json.dumps(line | {"number": first + row, "checksum": checksum}) + "\n"
                row += rows

    def _checksums(self, entries: Sequence[bytes]) -> Iterator[str]:
        """The checksum of each shard, whether this process, another one or an earlier run wrote its entry."""
        for number, (entry, (digest, _, _)) in enumerate(zip(entries, self._windows, strict=True)):
            checksum, _ = self._facts(entry, number, digest)
            shard = f"{self._folder.name}/{self._shard(number)}"
            if not checksum or (self._file is not None and checksum != _checksum_of(Path(shard))):
                raise ValueError(f"{shard} was damaged while the run went on; give the same command again.")
            yield checksum

    def _digest(self, window: Window) -> str:
        """The digest of the job, of a window's sentences and of their places."""
        digest = hashlib.sha256((self._job + json.dumps(_spans(window))).encode())
        for sentence in window.sentences:
            # Shards of earlier versions have other keys, so proteins are not digested as they were there.
            named = {"name": sentence.name, "residues": sentence} if isinstance(sentence, Protein) else sentence
            digest.update(json.dumps(named).encode() + b"\n")
        return digest.hexdigest()

    def _shard(self, number: int) -> str:
        return f"part-{number:05d}{self._suffix}"


def _alone(array: np.ndarray) -> np.ndarray:
    """Copies a part of a batch, because a view would keep the whole batch; a long text is a whole batch."""
    is_most = array.flags.c_contiguous and array.base is not None and 2 * array.nbytes > array.base.nbytes
    return array if is_most else array.copy()


def _shown(sentence: Sentence) -> str:
    """The string that stands for a sentence in a file: its text, or the name of a protein."""
    if isinstance(sentence, Protein):
        return sentence.name
    return sentence if isinstance(sentence, str) else " ".join(sentence)


def _spans(window: Window) -> list[list[Any]]:
    """For each document in a window: its name, its first sentence there, and the number of sentences."""
    parts = ([*lines] for _, lines in groupby(window.lines, key=lambda line: line[0]))
    return [[*lines[0], len(lines)] for lines in parts]


def _checksum_of(path: Path) -> str:
    """The CRC-32C of a file in hexadecimal."""
    with path.open("rb") as file:
        return checksum_of(file)
