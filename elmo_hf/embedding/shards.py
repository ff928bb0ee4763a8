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
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from tqdm import tqdm

from ..disk.checksums import sum_lines
from ..disk.whole_files import (
    check_new_file,
    leftover,
    move_into_place,
    named_if_full,
    only_writer,
    refuse_existing,
    refuse_file_in_place,
)
from ..public import ElmoModel, ElmoTokenizer
from ..text.batches import BATCH_POSITIONS
from ..text.first_look import Count
from ..text.notes import note
from ..text.sentences import Protein, Sentence, storable
from .input_documents import Documents, Line, SentenceWindow
from .processes import Alone
from .shard_files import (
    ENTRIES,
    INDEX,
    JOB,
    SHARD_SUMS,
    Entry,
    checksum_of,
    entry_name,
    entry_of,
    holds_shards,
    name_in_list,
)
from .stores import Folder, is_url
from .vector_files import WRITERS, Record, read_chunk, write_chunk
from .window_vectors import Arrays, Selection, embed_window

if TYPE_CHECKING:
    from accelerate import PartialState

logger = logging.getLogger(__name__)

# The file among the shards of a single file that says which file was joined from them.
JOINED = "_joined.txt"
# Formats of shards.
FORMATS = ("parquet", "safetensors", "npz", "hdf5")
# The approximate bytes of a shard's vectors, and the characters of a word in that estimate: 5 letters and a blank.
SHARD_BYTES = 1 << 27
CHARACTERS_PER_WORD = 6
# The most characters of a shard, which limit the work at risk.
SHARD_CHARACTERS = 1_000_000
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

    def __call__(self, window: SentenceWindow, bar: tqdm | None = None) -> None:
        """Makes the shard of a window; the bar counts sentences."""
        arrays_by_row: dict[int, Arrays] = {}
        vectors = embed_window(
            self.model, self.tokenizer, window.sentences, self.selection, self.batch_words, window.first
        )
        for row, arrays in vectors:
            arrays_by_row[row] = {name: _copy_of_part(array) for name, array in arrays.items()}
            if bar is not None:
                bar.update()
        self.shards.write(window, arrays_by_row)


@dataclass(frozen=True)
class EmbeddingOptions:
    """How documents are embedded, besides what is kept of a sentence.

    Attributes:
        shard_format: the format of a folder's shards, one of `FORMATS`.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        window_characters: characters of a shard; None: about `SHARD_BYTES` of vectors, for a file `CHUNK_CHARACTERS`.
        processes: those that share the work and call `embed_documents` with the same arguments.
        make_shards: a function that makes the shards of windows, in any order; None: this process makes them one by
            one.
        show_progress: whether to show a bar of the first process's sentences, and to note how many shards are there.
        look: a function that is called with the raw texts among the first sentences.
    """

    shard_format: str = "parquet"
    batch_words: int = BATCH_POSITIONS
    window_characters: int | None = None
    processes: "Alone | PartialState" = field(default_factory=Alone)
    make_shards: Callable[[Maker, Iterable[SentenceWindow], tqdm], None] | None = None
    show_progress: bool = False
    look: Callable[[list[str]], None] | None = None


def embed_documents(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    output: str,
    selection: Selection,
    options: EmbeddingOptions | None = None,
) -> Count:
    """Embeds every sentence of documents, or the rest that an interrupted run left.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        documents: the documents to read.
        output: a folder (see `is_folder`) that is new, empty, or has shards of the same job; or a new file on a disk,
            whose suffix is a key of `WRITERS`.
        selection: the vectors to keep of a sentence.
        options: everything else; None: the defaults.

    Returns:
        the number of sentences, and of blank ones and proteins among them.

    Raises:
        ValueError: if files of this format cannot hold the vectors, there are no sentences, a document cannot be read
            or changes meanwhile, or the folder holds shards of another job or of other sentences.
        BlockingIOError: if another run is writing to this output on a disk.
        FileExistsError: if the file exists, or the folder holds other files.
        NotADirectoryError: if a file has the place of the folder, or of one above it.
        OSError: if there is no room on the disk; and other errors, if a store cannot be reached.
    """
    if options is None:
        options = EmbeddingOptions()
    processes = options.processes
    shards, characters = _plan_shards(model, tokenizer, documents, output, selection, options)
    windows = documents.windows(characters)
    num_readers = processes.num_processes
    if documents.stream is not None:  # standard input cannot be shared, so the first process does all
        num_readers = 1
        if not processes.is_main_process:
            windows = iter(())
    unit = ""  # of the bar, which the main process shows
    with ExitStack() as stack:
        if processes.is_main_process:
            is_new = shards.begin(stack)
            first = list(islice(windows, 1))  # reads first: if that fails, nothing is written
            if not first and is_new:
                raise ValueError(f"there are no sentences in {', '.join(documents.names) or output:.200}.")
            if options.look is not None:
                options.look(documents.texts_of(chain.from_iterable(window.sentences for window in first)))
            unit = _unit_of(first)
            windows = chain(first, windows)
            if is_new:
                shards.record_job()
        processes.wait_for_everyone()
        shards.check_job()
        shows_bar = options.show_progress and processes.is_main_process
        if shows_bar:
            shards.note_earlier()
        with tqdm(unit=unit, disable=not shows_bar) as bar:
            maker = Maker(model.eval(), tokenizer, selection, options.batch_words, shards)
            missing = shards.missing(windows, processes.process_index, num_readers)
            make_shards = _make_one_by_one if options.make_shards is None else options.make_shards
            make_shards(maker, missing, bar)
        processes.wait_for_everyone()
        if processes.is_main_process:
            shards.finish()
    return shards.count


def _unit_of(windows: Iterable[SentenceWindow]) -> str:
    """What the progress bar counts: the proteins of windows that have no other sentences, else sentences."""
    sentences = chain.from_iterable(window.sentences for window in windows)
    are_proteins = [isinstance(sentence, Protein) for sentence in sentences]
    if are_proteins and all(are_proteins):
        return " proteins"
    return " sentences"


def _make_one_by_one(maker: Maker, windows: Iterable[SentenceWindow], bar: tqdm) -> None:
    for window in windows:
        maker(window, bar)


def suffix_of_writer(output: str, shard_format: str) -> str:
    """The key of `WRITERS` for an output: the format of its shards, or the suffix of the file, in lower case."""
    if is_folder(output):
        return f".{shard_format}"
    return Path(output).suffix.lower()


def check_output(output: str, selection: Selection, shard_format: str, is_main_process: bool = True) -> None:
    """Checks an output before a model is loaded for it; `embed_documents` refuses the same outputs, and more.

    Args:
        output: as in `embed_documents`.
        selection: the vectors to keep of a sentence.
        shard_format: the format of a folder's shards.
        is_main_process: whether this process is the one of several that locks a single file, to learn whether it can be
            written and to remove what a killed run left.

    Raises:
        ValueError: if no format has the suffix of a single file, if the file is to be in a store, or if files of the
            format cannot hold the selection.
        FileExistsError: if the file exists, or the folder holds other files than shards of a job.
        FileNotFoundError: in the main process, if there is no folder for the file.
        NotADirectoryError: if a file has the place of the folder of shards, or of one above it.
        BlockingIOError: in the main process, if another run is writing the file.
    """
    suffix = suffix_of_writer(output, shard_format)
    _refuse_other_suffix(output, suffix)
    selection.check(suffix)
    if not is_folder(output):
        file = Path(output)
        if is_main_process:
            # If another process is writing, it removes its shards itself.
            with suppress(OSError), only_writer(file):
                _remove_joined(file)
            check_new_file(file)
        else:
            refuse_existing(file, is_folder=False)
    folder = Folder(folder_of_shards(output))
    _refuse_file(folder)
    _refuse_other_files(folder)


def _refuse_other_suffix(output: str, suffix: str) -> None:
    """Raises ValueError if no format has the suffix of an output, or if a single file is to be in a store."""
    is_file_in_store = is_url(output) and not is_folder(output)
    if suffix not in WRITERS or is_file_in_store:
        raise ValueError(
            "vectors are written to a new folder, DIR/, or on this disk to a new file whose suffix is one of "
            f"{', '.join(WRITERS)}, found {output}."
        )


def _refuse_file(folder: Folder) -> None:
    """Raises NotADirectoryError if a file on the disk has the place of a folder of shards, or of one above it."""
    if folder.disk is not None:
        refuse_file_in_place(folder.disk)


def _refuse_other_files(folder: Folder) -> None:
    """Raises FileExistsError if a folder holds files without the record of a job, so that no run can go on there."""
    names = folder.sizes()
    if not names or JOB in names:
        return
    if holds_shards(folder):
        raise FileExistsError(
            f"{folder.name} holds files of shards, such as {min(names)}, but not {JOB}, which says how they were made; "
            "put that file back, choose another output, or delete the folder to start again."
        )
    raise FileExistsError(f"{folder.name} holds other files, such as {min(names)}; choose another output.")


def _plan_shards(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    documents: Documents,
    output: str,
    selection: Selection,
    options: EmbeddingOptions,
) -> tuple["Shards", int]:
    """The shards of an output, of which nothing is written yet, and the characters of a shard."""
    file = None if is_folder(output) else Path(output)
    suffix = suffix_of_writer(output, options.shard_format)
    _refuse_other_suffix(output, suffix)
    selection.check(suffix)
    selection.check_number(model)
    if options.window_characters is not None:
        characters = options.window_characters
    elif file is not None:
        characters = CHUNK_CHARACTERS
    else:
        by_bytes = CHARACTERS_PER_WORD * SHARD_BYTES // selection.bytes_per_word(model)
        characters = min(SHARD_CHARACTERS, by_bytes)
    job: dict[str, Any] = {}
    if documents.protein_names is not None:
        job |= documents.protein_names.job()
    job |= selection.job(model, tokenizer)
    job["split_into_words"] = documents.split_into_words
    job["format"] = options.shard_format if file is None else "chunk"
    job["shard_characters"] = characters
    folder = Folder(folder_of_shards(output))
    return Shards(folder, job, file), characters


def folder_of_shards(output: str) -> str:
    """Where the shards are until the run is complete: in the output, if it is a folder, or beside a file."""
    return output if is_folder(output) else f"{output}.partial"


class Span(NamedTuple):
    """Consecutive sentences of one document in a window."""

    document: str
    first: int  # the number of the first sentence in its document, from 0
    rows: int  # how many sentences


class WindowRecord(NamedTuple):
    """What is known of a window after it was read; its sentences are not kept."""

    digest: str  # of the job and the sentences
    first: int  # the number of sentences before the window
    spans: list[Span]


class Shards:
    """The shards of a folder and their entries; errors are those of `embed_documents`.

    Attributes:
        count: of the sentences in the windows that were read.
    """

    def __init__(self, folder: Folder, job: dict[str, Any], file: Path | None) -> None:
        """Writes nothing yet; the shards are joined in `file` if there is one."""
        self._folder = folder
        self._job = json.dumps(job, indent=1)
        self._file = file
        self._joined: Path | None = None  # where the single file is written
        self._suffix = f".{job['format']}"
        self._sizes: dict[str, int] = {}
        self._windows: list[WindowRecord] = []
        self.count = Count()

    def begin(self, stack: ExitStack) -> bool:
        """Keeps other runs from writing an output on a disk until `stack` closes.

        Returns:
            whether there are no shards yet.
        """
        _refuse_file(self._folder)
        place = self._folder.disk if self._file is None else self._file
        if place is not None:
            if self._file is None:
                place.parent.mkdir(parents=True, exist_ok=True)
            self._joined = stack.enter_context(only_writer(place))
            stack.enter_context(named_if_full(place))
        if self._file is not None:
            _remove_joined(self._file)
            refuse_existing(self._file, is_folder=False)
        _refuse_other_files(self._folder)
        return not any(name.startswith("part-") for name in self._folder.sizes())

    def record_job(self) -> None:
        """Records the model, tokenizer and settings of the shards."""
        with self._folder.new(JOB) as path:
            path.write_text(self._job, encoding="utf-8")

    def check_job(self) -> None:
        """Lists the files that exist, which must be of this job."""
        self._sizes = self._folder.sizes()
        recorded = self._folder.read([JOB])[0].decode(errors="replace")
        settings = _lines_of_json(self._job)
        recorded_settings = _lines_of_json(recorded)
        other = ", ".join(line for line in settings if line not in recorded_settings)
        beyond = ", ".join(line for line in recorded_settings if line not in settings)
        if other or beyond:
            difference = f"than {other}" if other else f"with {beyond}"
            raise ValueError(
                f"{self._folder.name} holds shards of another job {difference}; choose another output, or delete that "
                "folder to start again."
            )

    def note_earlier(self) -> None:
        """Prints how many shards an earlier run finished; `check_job` has listed them."""
        shards = [name for name in self._sizes if name.startswith("part-")]
        num_finished = sum(entry_of(shard) in self._sizes for shard in shards)
        if num_finished == 1:
            note(f"1 finished shard is in {self._folder.name} already; only the others are computed.")
        elif num_finished > 1:
            note(f"{num_finished:,} finished shards are in {self._folder.name} already; only the others are computed.")

    def missing(self, windows: Iterable[SentenceWindow], index: int, count: int) -> Iterator[SentenceWindow]:
        """Gives each window that process `index` of `count` is to compute."""
        for window in windows:
            window = window._replace(digest=self._digest(window))
            if window.number % count == index and not self._has(window.number, window.digest):
                yield window
            self._windows.append(WindowRecord(window.digest, window.first, _spans(window)))
            self.count = self.count.plus(window.sentences)

    def _has(self, number: int, digest: str) -> bool:
        """Whether a window's shard exists and is whole; prints a note if it is damaged."""
        shard = self._shard(number)
        name = entry_name(number)
        if shard not in self._sizes or name not in self._sizes:
            return False
        entry = self._read_entry(self._folder.read([name])[0], number, digest)
        if entry is not None and self._is_whole(shard, entry):
            return True
        logger.warning("%s/%s is damaged; it is computed again.", self._folder.name, shard)
        return False

    def _is_whole(self, shard: str, entry: Entry) -> bool:
        """Whether a shard has the size of its entry, and on a disk also the checksum."""
        if entry.size != self._sizes[shard]:
            return False
        disk = self._folder.disk
        return disk is None or entry.checksum == _checksum_of(disk / shard)

    def _read_entry(self, content: bytes, number: int, digest: str) -> Entry | None:
        """The entry of a shard, which must be of the window with this digest; None if it is damaged."""
        entry = Entry.read(content)
        if entry is not None and entry.digest != digest:
            self._refuse_shard(self._shard(number))
        return entry

    def _refuse_shard(self, shard: str) -> NoReturn:
        entry = f"{self._folder.name}/{entry_of(shard)}"
        raise ValueError(
            f"the input changed: {self._folder.name}/{shard} holds other sentences, or its proteins have other names, "
            f"or its text was read in another encoding; or its entry, {entry}, is damaged. If the input or its "
            "encoding changed, restore it, choose another output, or delete that folder to start again. If it did not, "
            f"delete {entry}: only its shard is computed again."
        )

    def write(self, window: SentenceWindow, arrays_by_row: Mapping[int, Arrays]) -> None:
        """Writes a window's shard, then its entry.

        Args:
            window: its sentences.
            arrays_by_row: the arrays of each sentence by its place in the window.
        """
        write_records = WRITERS.get(self._suffix, write_chunk)
        with self._folder.new(self._shard(window.number)) as path:
            write_records(path, _records_of_window(window, arrays_by_row))
            entry = Entry(window.digest, _checksum_of(path), path.stat().st_size)
        with self._folder.new(entry_name(window.number)) as path:
            path.write_text(entry.line, encoding="ascii")

    def finish(self) -> None:
        """Writes the index and the checksums; or joins the shards in the single file, under another name at first."""
        self._refuse_beyond()
        self._folder.remove_leftovers()
        entries = self._folder.read([entry_name(number) for number in range(len(self._windows))])
        if self._file is None:
            self._write_index(entries)
        else:
            self._join(self._file, entries)

    def _refuse_beyond(self) -> None:
        """Refuses shards and entries of more windows than the input has."""
        shards = [self._shard(number) for number in range(len(self._windows))]
        names = {*shards, *map(entry_of, shards)}
        of_shards = [name for name in self._sizes if name.startswith(("part-", f"{ENTRIES}part-"))]
        beyond = sorted(name for name in of_shards if name not in names)
        if beyond:
            shards_beyond = [name for name in beyond if not name.startswith(ENTRIES)]
            first = shards_beyond[0] if shards_beyond else beyond[0]
            raise ValueError(
                f"the input changed: {self._folder.name}/{first} is beyond its last shard; or the file is a copy. "
                "Restore the input, remove the file if it is a copy, choose another output, or delete that folder to "
                "start again."
            )

    def _join(self, file: Path, entries: Sequence[bytes]) -> None:
        """Joins the shards in the single file, and removes their folder."""
        folder, joined = self._folder.disk, self._joined
        assert folder is not None, "The shards of a single file are on a disk."
        assert joined is not None, "`begin` names the place where the single file is written."
        write_records = WRITERS[file.suffix.lower()]
        write_records(joined, self._all_records(folder, entries))
        (folder / JOINED).write_text(identity_of(joined), encoding="ascii")
        move_into_place(joined, file)
        with leftover(folder):
            folder.replace(joined)  # removed here, or by a later process if this one is killed

    def _write_index(self, entries: Sequence[bytes]) -> None:
        """Writes the index of a folder of shards, and the checksums of its files without vectors."""
        index = "".join(self._index_lines(entries)).encode()
        self._renew(INDEX, index)
        contents = {JOB: self._folder.read([JOB])[0], INDEX: index}
        for number, entry in enumerate(entries):
            contents[entry_name(number)] = entry
        digests = {name_in_list(name): hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        self._renew(SHARD_SUMS, sum_lines(digests).encode())

    def _renew(self, name: str, content: bytes) -> None:
        """Writes a file unless it has this content."""
        if name not in self._sizes or self._folder.read([name]) != [content]:
            with self._folder.new(name) as path:
                path.write_bytes(content)

    def _all_records(self, folder: Path, entries: Sequence[bytes]) -> Iterator[Record]:
        """The records of all windows, read from their chunks."""
        for number, _ in enumerate(self._checksums(entries)):
            window = self._windows[number]
            yield from read_chunk(folder / self._shard(number), window.first, _lines_of(window.spans))

    def _index_lines(self, entries: Sequence[bytes]) -> Iterator[str]:
        """A line for each document, or part of a document, in each shard."""
        for number, checksum in enumerate(self._checksums(entries)):
            window = self._windows[number]
            row = 0
            for span in window.spans:
                facts = {
                    "shard": self._shard(number),
                    "row": row,
                    "rows": span.rows,
                    "document": span.document,
                    "index": span.first,
                    "number": window.first + row,
                    "checksum": checksum,
                }
                yield json.dumps(facts) + "\n"
                row += span.rows

    def _checksums(self, entries: Sequence[bytes]) -> Iterator[str]:
        """The checksum of each shard, whether this process, another one or an earlier run wrote its entry."""
        for number, (content, window) in enumerate(zip(entries, self._windows, strict=True)):
            entry = self._read_entry(content, number, window.digest)
            shard = f"{self._folder.name}/{self._shard(number)}"
            if entry is None or (self._file is not None and entry.checksum != _checksum_of(Path(shard))):
                raise ValueError(f"{shard} was damaged while the run went on; give the same command again.")
            yield entry.checksum

    def _digest(self, window: SentenceWindow) -> str:
        """The digest of the job, of a window's sentences and of their places."""
        digest = hashlib.sha256((self._job + json.dumps(_spans(window))).encode())
        for sentence in window.sentences:
            # Shards of earlier versions have other keys, so proteins are not digested as they were there.
            named = {"name": sentence.name, "residues": sentence} if isinstance(sentence, Protein) else sentence
            digest.update(json.dumps(named).encode())
            digest.update(b"\n")
        return digest.hexdigest()

    def _shard(self, number: int) -> str:
        return f"part-{number:05d}{self._suffix}"


def _remove_joined(file: Path) -> None:
    """Removes the shards of a file that was joined from them by a process that was killed afterwards."""
    folder = Path(folder_of_shards(str(file)))
    mark = folder / JOINED
    if file.exists() and mark.is_file() and mark.read_text(encoding="ascii", errors="replace") == identity_of(file):
        with leftover(folder):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != mark:
                    path.unlink()
            shutil.rmtree(folder)  # with the mark last, by which the next process knows what a killed one left


def identity_of(file: Path) -> str:
    """What a file keeps when it is renamed, but not when it is copied: its number on the disk, and its size."""
    status = file.stat()
    return f"{status.st_ino} {status.st_size}\n"


def _copy_of_part(array: np.ndarray) -> np.ndarray:
    """Copies a part of a batch, because a view would keep the whole batch; a long text is a whole batch."""
    is_most = array.flags.c_contiguous and array.base is not None and 2 * array.nbytes > array.base.nbytes
    return array if is_most else array.copy()


def _records_of_window(window: SentenceWindow, arrays_by_row: Mapping[int, Arrays]) -> Iterator[Record]:
    """The records of a window's sentences, in their order."""
    for row, (sentence, line) in enumerate(zip(window.sentences, window.lines, strict=True)):
        text = storable(_text_of(sentence))
        is_protein = isinstance(sentence, Protein)
        yield Record(window.first + row, text, arrays_by_row[row], line, is_protein)


def _text_of(sentence: Sentence) -> str:
    """The string that stands for a sentence in a file: its text, or the name of a protein."""
    if isinstance(sentence, Protein):
        return sentence.name
    return sentence if isinstance(sentence, str) else " ".join(sentence)


def _lines_of_json(text: str) -> list[str]:
    """The lines of a JSON object as it is written here, without indents and the commas at their ends."""
    return [line.strip().rstrip(",") for line in text.splitlines()]


def _spans(window: SentenceWindow) -> list[Span]:
    """The parts of a window by their documents."""
    spans = []
    for document, group in groupby(window.lines, key=lambda line: line[0]):
        lines = list(group)
        _, first = lines[0]
        spans.append(Span(document, first, len(lines)))
    return spans


def _lines_of(spans: Iterable[Span]) -> Iterator[Line]:
    """The place of each sentence of a window, from its spans."""
    for document, first, rows in spans:
        for row in range(rows):
            yield document, first + row


def _checksum_of(path: Path) -> str:
    """The CRC-32C of a file in hexadecimal."""
    with path.open("rb") as file:
        return checksum_of(file)
