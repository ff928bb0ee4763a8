"""Embeds a corpus: sentences in, one file of vectors out, in bounded memory, resumable, by one process or many.

Sentences are read in windows of about `WINDOW_CHARACTERS` (see `window_vectors.py`). The vectors of a window become one
chunk in `OUT.partial` (see `working_folder.py`); the last step joins all chunks in OUT. Folders of shards are the work
of `shards.py`.

A run that continues an interrupted one computes only the missing windows. Of R processes, process r computes every R-th
missing window, starting with the r-th. A window does not depend on R, so OUT has the same bits for any R, on the same
kind of machine with as many threads each, but for the last ones where a measurement decides how bfloat16 is multiplied
(`scan/packed_weights.py`). An interrupted run may continue with another R. A second run with the same OUT is refused
while the first one lives. The input is read again for the vectors, and again for OUT; it must not have changed.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from glob import has_magic
from pathlib import Path
from typing import IO, Any, NamedTuple

from tqdm import tqdm

from ..disk.whole_files import check_folder_of, check_new_file, named_if_full, only_writer, publish_last
from ..model.modeling_elmo import ElmoModel
from ..sentences import Sentence, read_sentences
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .how import How
from .inputs import windows_of
from .processes import Processes
from .stores import is_url
from .vector_files import MOST_TENSORS, WRITERS, Record
from .window_vectors import embed_window
from .working_folder import WorkingFolder, digest_of

# About 17,000 words of English: the most work that an interruption loses, and the unit that processes share.
WINDOW_CHARACTERS = 100_000

Window = list[tuple[int, Sentence]]


class Input(NamedTuple):
    """A file of sentences, and how to read it: arguments of `read_sentences`."""

    path: Path
    split_into_words: bool = False
    encoding: str = "utf-8"

    def windows(self) -> Iterator[Window]:
        """Consecutive sentences, with their indices, until they have `WINDOW_CHARACTERS`."""
        return windows_of(enumerate(read_sentences(*self)), WINDOW_CHARACTERS)


class Plan(NamedTuple):
    """What is to be done.

    Attributes:
        source: the input.
        window_sizes: sentences of each window.
        digests: what each window's sentences must be.
        missing: indices of the windows to compute.
    """

    source: Input
    window_sizes: list[int]
    digests: list[str]
    missing: list[int]


def check_one_file(output: str, sources: list[str], has_rows: bool, is_ray: bool) -> None:
    """Checks that one file can hold the vectors of sources.

    Args:
        output: of `elmo-hf embed`.
        sources: files, patterns, folders, datasets, or `"-"`.
        has_rows: whether they are datasets.
        is_ray: whether Ray's workers write.

    Raises:
        ValueError: if it cannot, naming a folder, which can.
    """
    (source, *others) = sources
    is_many = others or is_url(source) or has_rows or (has_magic(source) and not Path(source).is_file())
    if is_many or Path(source).is_dir() or is_url(output) or is_ray:
        raise ValueError(
            "one file of vectors takes one file of sentences, and neither stores nor Ray write it; give a folder: "
            f"`-o {output.removesuffix(Path(output).suffix)}/`."
        )


def embed_file(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    source: Path | IO[bytes],
    destination: Path,
    *,
    split_into_words: bool = False,
    encoding: str = "utf-8",
    **options: Any,
) -> int:
    """Embeds every sentence of a file.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        source: a file that `read_sentences` reads, or a binary stream of text lines, which the first process reads.
        destination: the new file; its suffix is a key of `WRITERS`.
        split_into_words: whether sentences are words separated by blanks already.
        encoding: of the input's characters.
        **options: fields of `How`.

    Returns:
        the number of sentences.

    Raises:
        ValueError: if an argument is illegal, the input has a wrong format or changes while it is read, or an
            interrupted run left another job.
        BlockingIOError: if another run is writing `destination`.
        FileExistsError: if `destination` exists.
        FileNotFoundError: if `source` does not exist.
        NoRoomError: if there is no room on the disk.
    """
    how = How(**options)
    processes, wanted = how.processes or Processes(), how.wanted
    if destination.suffix.lower() not in WRITERS:
        raise ValueError(f"the output's suffix must be one of {', '.join(WRITERS)}, found {destination.name!r}.")
    wanted.check(destination.suffix.lower(), how.batch_words)
    job = wanted.job(model, tokenizer) | {"split_into_words": split_into_words, "window_characters": WINDOW_CHARACTERS}
    work = WorkingFolder(destination.with_name(destination.name + ".partial"), job)
    with ExitStack() as stack, named_if_full(destination):
        reading = (split_into_words, encoding)
        plan = processes.on_first(lambda: _prepare(source, reading, how, destination, work, stack))
        if not work.is_open():
            raise ValueError(
                f"process {processes.index} does not see {work.path}, which the first process made; the machines must "
                "share a file system."
            )
        model.eval()
        own = set(plan.missing[processes.index :: processes.count])
        total = sum(plan.window_sizes[index] for index in own)
        with tqdm(total=total, unit=" sentences", disable=not (how.show_progress and processes.is_first)) as bar:
            for index, window in _checked_windows(plan, work) if own else ():
                if index in own:
                    kept = embed_window(model, tokenizer, [each for _, each in window], wanted, how.batch_words, bar)
                    work.write(index, plan.digests[index], ((window[row][0], each) for row, each in kept))
        processes.wait()
        processes.on_first(lambda: _finish(plan, work, destination))
    return sum(plan.window_sizes)


def _prepare(
    source: Path | IO[bytes],
    reading: tuple[bool, str],
    how: How,
    destination: Path,
    work: WorkingFolder,
    stack: ExitStack,
) -> Plan:
    """Keeps other runs out until `stack` closes, reads the input once, and opens the working folder."""
    check_folder_of(destination)
    stack.enter_context(only_writer(destination))
    check_new_file(destination)
    stack.callback(_remove_unless_open, work)
    read_from = Input(source if isinstance(source, Path) else _spool(source, work.path / "input.txt"), *reading)
    sizes: list[int] = []
    digests: list[str] = []
    for window in how.looked_at(read_from.windows()):
        sizes.append(len(window))
        digests.append(digest_of(sentence for _, sentence in window))
    most = MOST_TENSORS // how.wanted.arrays_per_sentence
    if destination.suffix.lower() == ".safetensors" and sum(sizes) > most:
        raise ValueError(
            f"a .safetensors file can hold at most {most:,} sentences of this kind, because its header is limited; the "
            f"input has {sum(sizes):,}. Choose .hdf5, .npz or .parquet, or a folder: "
            f"`-o {destination.with_suffix('')}/`."
        )
    return Plan(read_from, sizes, digests, work.open(digests))


def _remove_unless_open(work: WorkingFolder) -> None:
    """Removes a working folder that holds no job, such as that of a stream that could not be read."""
    if not work.is_open():
        shutil.rmtree(work.path, ignore_errors=True)


def _checked_windows(plan: Plan, work: WorkingFolder) -> Iterator[tuple[int, Window]]:
    """Reads the input again, window by window.

    Raises:
        ValueError: if it is not what it was.
    """
    count = 0
    for window in plan.source.windows():
        sentences = (sentence for _, sentence in window)
        if count == len(plan.digests) or digest_of(sentences) != plan.digests[count]:
            break
        yield count, window
        count += 1
    else:
        if count == len(plan.digests):
            return
    raise ValueError(
        f"{plan.source.path} changed while it was being embedded, so nothing was written. Make it what it was, or "
        f"delete {work.path}; then give the same command again."
    )


def _finish(plan: Plan, work: WorkingFolder, destination: Path) -> None:
    """Joins the chunks."""
    written = work.path / destination.name
    try:
        WRITERS[destination.suffix.lower()](written, _records(plan, work))
        publish_last(written, destination)
    finally:
        written.unlink(missing_ok=True)  # a full disk gets its room back


def _records(plan: Plan, work: WorkingFolder) -> Iterator[Record]:
    for index, window in _checked_windows(plan, work):
        for (number, sentence), (found, kept) in zip(window, work.read(index, plan.digests[index]), strict=True):
            assert number == found
            yield Record(number, sentence, kept)


def _spool(stream: IO[bytes], path: Path) -> Path:
    """Copies a stream to a file, which can be read twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return path
