"""Embeds a corpus: sentences in, one file of vectors out, in bounded memory, resumable, by one process or many.

Sentences are read in windows of about `WINDOW_CHARACTERS`. In a window each distinct word goes through the tokenizer
and the token encoder once, and the sentences are sorted by length into batches, so that there is little padding. The
vectors of a window become one chunk in `OUT.partial` (see `working_folder.py`); the last step joins all chunks in OUT.

A run that continues an interrupted one computes only the missing windows. Of R processes, process r computes every R-th
missing window, starting with the r-th. A window does not depend on R, so OUT has the same bits for any R, on the same
kind of machine with as many threads each. An interrupted run may continue with another R. A second run with the same
OUT is refused while the first one lives. The input is read again for the vectors, and again for OUT; it must not have
changed.

Vectors kept of a sentence, without its boundaries (L layers, n words, P projection):

    all      (L+1, n, 2P)   every layer; the first is the token vector twice
    top      (n, 2P)        the top layer
    mix      (n, 2P)        the first scalar mix
    average  (n, 2P)        the plain mean of all layers
    pooled   (2P,)          the mean of the first scalar mix over the words; zeros for a blank line

Glossary: B sentences of a batch, T positions of its longest one, boundaries included; V distinct words of a window.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from ..batches import batches_by_length
from ..files import named_if_full, only_writer, publish_last, sha256_of_model
from ..model.modeling_elmo import ElmoModel
from ..sentences import Sentence, read_sentences
from ..tokenizer.text_to_words import to_words
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .arguments import BATCH_WORDS, check_paths, check_suffix
from .processes import Processes
from .vector_files import WRITERS, Record
from .working_folder import WorkingFolder, digest_of

# About 17,000 words of English: the most work that an interruption loses, and the unit that processes share.
WINDOW_CHARACTERS = 100_000
DTYPES = ("float32", "float16")

# From the model, its layers `(B, T, 2P)`, and masks `(B, T)` of words with and without boundaries, to the tensors kept.
LAYERS: dict[str, Callable[[ElmoModel, list[Tensor], Tensor, Tensor], list[Tensor]]] = {
    "all": lambda model, layers, mask, is_text: layers,
    "top": lambda model, layers, mask, is_text: layers[-1:],
    "mix": lambda model, layers, mask, is_text: [model.mix(layers, mask)[0]],
    "average": lambda model, layers, mask, is_text: [sum(layers[1:], layers[0]) / len(layers)],
    "pooled": lambda model, layers, mask, is_text: [model.pool(model.mix(layers, mask)[0], is_text)],
}

Window = list[tuple[int, Sentence]]


class Input(NamedTuple):
    """A file of sentences, and how to read it: arguments of `read_sentences`."""

    path: Path
    split_into_words: bool = False
    encoding: str = "utf-8"

    def windows(self) -> Iterator[Window]:
        """Consecutive sentences, with their indices, until they have `WINDOW_CHARACTERS`.

        It counts characters, one more for each sentence. To count words, a process would have to tokenize all windows.
        """
        window: Window = []
        num_characters = 0
        for index, sentence in enumerate(read_sentences(*self)):
            window.append((index, sentence))
            num_characters += 1 + len(sentence if isinstance(sentence, str) else " ".join(sentence))
            if num_characters >= WINDOW_CHARACTERS:
                yield window
                window, num_characters = [], 0
        if window:
            yield window


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


def embed_file(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    source: Path | IO[bytes],
    destination: Path,
    *,
    layers: str = "all",
    dtype: str = "float32",
    split_into_words: bool = False,
    encoding: str = "utf-8",
    batch_words: int = BATCH_WORDS,
    show_progress: bool = False,
    processes: Processes | None = None,
) -> int:
    """Embeds every sentence of a file.

    Args:
        model: on the device to run on; afterwards it is in evaluation mode.
        tokenizer: the model's.
        source: a file that `read_sentences` reads, or a binary stream of text lines, which the first process reads.
        destination: the new file; its suffix is a key of `WRITERS`.
        layers: a key of `LAYERS`.
        dtype: of the numbers in the file, one of `DTYPES`. The model computes in its own.
        split_into_words: whether sentences are words separated by blanks already.
        encoding: of the input's characters.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        show_progress: shows a bar of the first process's sentences.
        processes: those that share the work, each calling this function with the same arguments; None: this one alone.

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
    processes = processes or Processes()
    _check_arguments(destination, layers, dtype, batch_words)
    job = {"layers": layers, "dtype": dtype, "split_into_words": split_into_words}
    job |= {"window_characters": WINDOW_CHARACTERS, "tokenizer": _digest_of_tokenizer(tokenizer)}
    job |= {"model": sha256_of_model(model.config.to_json_string(), model.state_dict().values())}
    work = WorkingFolder(destination.with_name(destination.name + ".partial"), job)
    with ExitStack() as stack, named_if_full(destination):
        how = (split_into_words, encoding)
        plan = processes.on_first(lambda: _prepare(source, how, destination, work, stack))
        if not work.is_open():
            raise ValueError(
                f"process {processes.index} does not see {work.path}, which the first process made; the machines must "
                "share a file system."
            )
        model.eval()
        own = set(plan.missing[processes.index :: processes.count])
        total = sum(plan.window_sizes[index] for index in own)
        with tqdm(total=total, unit=" sentences", disable=not (show_progress and processes.is_first)) as bar:
            for index, window in _checked_windows(plan, work) if own else ():
                if index in own:
                    vectors = _embed_window(model, tokenizer, window, layers, dtype, batch_words, bar)
                    work.write(index, plan.digests[index], vectors)
        processes.wait()
        processes.on_first(lambda: _finish(plan, work, destination))
    return sum(plan.window_sizes)


def _check_arguments(destination: Path, layers: str, dtype: str, batch_words: int) -> None:
    check_suffix(destination)
    if layers not in LAYERS:
        raise ValueError(f"`layers` must be one of {', '.join(LAYERS)}, found {layers!r}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, found {dtype!r}.")
    if batch_words < 1:
        raise ValueError(f"`batch_words` must be at least 1, found {batch_words}.")


def _prepare(
    source: Path | IO[bytes], how: tuple[bool, str], destination: Path, work: WorkingFolder, stack: ExitStack
) -> Plan:
    """Keeps other runs out until `stack` closes, reads the input once, and opens the working folder."""
    stack.enter_context(only_writer(destination))
    check_paths(source if isinstance(source, Path) else None, destination)
    stack.callback(_remove_unless_open, work)
    read_from = Input(source if isinstance(source, Path) else _spool(source, work.path / "input.txt"), *how)
    sizes, digests = [], []
    for window in read_from.windows():
        sizes.append(len(window))
        digests.append(digest_of(sentence for _, sentence in window))
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
        for (number, sentence), (found, vectors) in zip(window, work.read(index, plan.digests[index]), strict=True):
            assert number == found
            yield Record(number, sentence, vectors)


def _embed_window(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    window: Window,
    layers: str,
    dtype: str,
    batch_words: int,
    bar: tqdm,
) -> Iterator[tuple[int, np.ndarray]]:
    """Gives the indices and vectors of a window's sentences, the longest ones first."""
    texts = [to_words(each, False, tokenizer.split_text).words if isinstance(each, str) else each for _, each in window]
    words = _Words.of_texts(model, tokenizer, texts)
    for batch in batches_by_length([len(text) + 2 * words.num_begins for text in texts], batch_words):
        vectors = _embed_batch(model, words, [texts[row] for row in batch], layers, dtype)
        yield from zip((window[row][0] for row in batch), vectors, strict=True)
        bar.update(len(batch))


class _Words(NamedTuple):
    """The V distinct words of a window, sorted, with the boundaries before and after them, if the model reads any."""

    places: dict[str, int]  # of each word among all V (+ 2)
    num_begins: int  # 1 with boundaries, else 0
    vectors: Tensor  # (V + 2, P), of the token encoder
    is_text: Tensor  # (V + 2), False on boundaries

    @classmethod
    @torch.inference_mode()
    def of_texts(cls, model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]]) -> "_Words":
        words = sorted({word for text in texts for word in text})
        ids = tokenizer([words], is_split_into_words=True, return_tensors="pt")["input_ids"].to(model.device)
        num_begins = tokenizer.num_special_tokens_to_add() // 2
        places = {word: place for place, word in enumerate(words, num_begins)}
        mask = torch.ones(ids.shape[:2], dtype=torch.bool, device=ids.device)
        return cls(places, num_begins, model.embed_words(ids, mask)[0][0], ~model.boundaries(ids)[0])


@torch.inference_mode()
def _embed_batch(model: ElmoModel, words: _Words, texts: list[list[str]], layers: str, dtype: str) -> list[np.ndarray]:
    """The vectors kept of each text."""
    begin, end = [0] * words.num_begins, [len(words.vectors) - 1] * words.num_begins
    rows = [torch.tensor([*begin, *map(words.places.__getitem__, text), *end], dtype=torch.long) for text in texts]
    places = pad_sequence(rows, batch_first=True, padding_value=-1).to(model.device)  # (B, T), -1 on padding
    mask = places >= 0
    vectors = words.vectors[places].masked_fill(~mask.unsqueeze(-1), 0)
    tensors = LAYERS[layers](model, model.bilm(vectors, mask)[0], mask, mask & words.is_text[places])
    kept = [tensor.to(getattr(torch, dtype)).cpu().numpy() for tensor in tensors]
    if layers == "pooled":
        return list(kept[0])
    parts = [slice(words.num_begins, words.num_begins + len(text)) for text in texts]
    if layers == "all":
        return [np.stack([layer[row, part] for layer in kept]) for row, part in enumerate(parts)]
    return [kept[0][row, part] for row, part in enumerate(parts)]


def _spool(stream: IO[bytes], path: Path) -> Path:
    """Copies a stream to a file, which can be read twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def _digest_of_tokenizer(tokenizer: ElmoTokenizer) -> str:
    """Depends on the splitter and the vocabulary."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
