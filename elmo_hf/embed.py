"""Embedding a corpus: sentences in, one file of vectors out, in bounded memory and resumable.

Sentences are read in windows of about `WINDOW_WORDS` words. Within a window they are sorted by length and run in
batches, so that little is padded; each finished window is a chunk in `OUT.partial` (see `vector_files.py`). A run
that was interrupted goes on with the first window that is not there; the last step makes OUT of all chunks.

What is kept of each sentence, its boundaries excluded (L layers, n words, P projection):

    all      (L+1, n, 2P)   every layer, the first being the token vector twice
    top      (n, 2P)        the top layer
    mix      (n, 2P)        the first scalar mix
    average  (n, 2P)        the plain mean of all layers
    pooled   (2P,)          the mean of the first scalar mix over the words; zeros for a blank line
"""

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from .digest import sha256_of_file, sha256_of_model
from .modeling_elmo import ElmoModel
from .sentences import Sentence, read_sentences
from .tokenization_elmo import ElmoTokenizer
from .vector_files import WRITERS, chunk_indices, read_chunks, write_chunk

WINDOW_WORDS = 8192
# Most positions of one batch, padding included; a longer text is a batch of its own.
BATCH_WORDS = 4096
DTYPES = ("float32", "float16")

# From an `ElmoModelOutput` to a tensor whose first axis is the batch and whose last but one is the words.
LAYERS: dict[str, Callable[[Any], Tensor]] = {
    "all": lambda output: torch.stack(output.hidden_states, dim=1),
    "top": lambda output: output.last_hidden_state,
    "mix": lambda output: output.elmo_representations[0],
    "average": lambda output: torch.stack(output.hidden_states).mean(dim=0),
    "pooled": lambda output: output.pooler_output,
}


def embed_file(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    source: Path | IO[bytes],
    destination: Path,
    *,
    layers: str = "all",
    dtype: str = "float32",
    split_into_words: bool = False,
    batch_size: int = 32,
    show_progress: bool = False,
) -> int:
    """Embeds every sentence of a file.

    Args:
        model: on the device to run on; it is put into evaluation mode.
        tokenizer: the model's.
        source: a file that `read_sentences` reads, or a binary stream of text lines.
        destination: the new file; its suffix is a key of `WRITERS`.
        layers: a key of `LAYERS`.
        dtype: of the numbers in the file; one of `DTYPES`. The model computes in its own.
        split_into_words: whether sentences are words separated by blanks already.
        batch_size: most sentences of a batch; long ones make smaller batches, of `BATCH_WORDS`.
        show_progress: whether to show a bar of sentences.

    Returns:
        number of sentences.

    Raises:
        ValueError: if an argument is illegal, the input is not of its format, or what was left by an interrupted run
            is of another job.
        FileExistsError: if `destination` exists.
        FileNotFoundError: if `source` does not exist.
    """
    write = _writer_of(destination)
    if layers not in LAYERS:
        raise ValueError(f"`layers` must be one of {', '.join(LAYERS)}, found {layers!r}.")
    if dtype not in DTYPES:
        raise ValueError(f"`dtype` must be one of {', '.join(DTYPES)}, found {dtype!r}.")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, found {batch_size}.")
    if destination.exists():
        raise FileExistsError(f"{destination} exists already; remove it or choose another name.")
    if isinstance(source, Path) and not source.is_file():
        raise FileNotFoundError(f"there is no file {source}.")
    work = destination.with_name(destination.name + ".partial")
    path = source if isinstance(source, Path) else _spool(source, work / "input.txt")

    def sentences() -> Iterator[Sentence]:
        return read_sentences(path, split_into_words)

    model.eval()
    num_sentences = sum(1 for _ in sentences())
    work.mkdir(parents=True, exist_ok=True)
    job = {"layers": layers, "dtype": dtype, "split_into_words": split_into_words, "input": sha256_of_file(path)}
    job |= {"model": sha256_of_model(model.config.to_json_string(), model.state_dict().values())}
    job |= {"tokenizer": _digest_of_tokenizer(tokenizer)}
    _check_job(work / "job.json", job)
    chunks = sorted(work.glob("chunk-*.safetensors"))
    num_done = sum(len(chunk_indices(chunk)) for chunk in chunks)
    with tqdm(total=num_sentences, initial=num_done, unit=" sentences", disable=not show_progress) as bar:
        remaining = itertools.islice(enumerate(sentences()), num_done, None)
        for window in _windows(remaining, tokenizer):
            chunk = work / f"chunk-{len(chunks):08d}.safetensors"
            write_chunk(chunk, _embed_window(model, tokenizer, window, layers, np.dtype(dtype), batch_size, bar))
            chunks.append(chunk)
    finished = work / f"finished{destination.suffix}"
    write(finished, read_chunks(chunks, sentences()))
    finished.replace(destination)
    shutil.rmtree(work)
    return num_sentences


Window = list[tuple[int, list[str]]]


def _windows(sentences: Iterable[tuple[int, Sentence]], tokenizer: ElmoTokenizer) -> Iterator[Window]:
    """Groups consecutive sentences, split into words, until they have `WINDOW_WORDS` words and boundaries."""
    window: Window = []
    num_words = 0
    for index, sentence in sentences:
        words = tokenizer.tokenize(sentence) if isinstance(sentence, str) else sentence
        window.append((index, words))
        num_words += len(words) + tokenizer.num_special_tokens_to_add()
        if num_words >= WINDOW_WORDS:
            yield window
            window, num_words = [], 0
    if window:
        yield window


@torch.inference_mode()
def _embed_window(
    model: ElmoModel,
    tokenizer: ElmoTokenizer,
    window: Window,
    layers: str,
    dtype: np.dtype,
    batch_size: int,
    bar: tqdm,
) -> dict[int, np.ndarray]:
    """The vectors of one window by sentence, computed in batches of about equal lengths."""
    by_length = sorted(window, key=lambda item: len(item[1]), reverse=True)
    vectors = {}
    while by_length:
        longest = len(by_length[0][1]) + tokenizer.num_special_tokens_to_add()
        size = min(batch_size, max(1, BATCH_WORDS // longest))
        batch, by_length = by_length[:size], by_length[size:]
        inputs = tokenizer([words for _, words in batch], is_split_into_words=True, padding=True, return_tensors="pt")
        output = model(**inputs.to(model.device), output_hidden_states=True)
        rows = LAYERS[layers](output).float().cpu().numpy().astype(dtype)
        for (index, words), row in zip(batch, rows, strict=True):
            vectors[index] = np.ascontiguousarray(row if layers == "pooled" else row[..., 1 : 1 + len(words), :])
        bar.update(len(batch))
    return vectors


def _writer_of(destination: Path) -> Callable[..., None]:
    suffix = destination.suffix.lower()
    if suffix not in WRITERS:
        raise ValueError(f"the output's suffix must be one of {', '.join(WRITERS)}, found {destination.name!r}.")
    return WRITERS[suffix]


def _spool(stream: IO[bytes], path: Path) -> Path:
    """Keeps a stream in a file, to be read twice."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def _check_job(path: Path, job: dict[str, Any]) -> None:
    """Records what a working folder is for; a later run must want the same."""
    if not path.exists():
        path.write_text(json.dumps(job), encoding="utf-8")
        return
    recorded = json.loads(path.read_text(encoding="utf-8"))
    differing = [key for key in job if recorded.get(key) != job[key]]
    if differing:
        raise ValueError(
            f"{path.parent} was left by an interrupted run with another {' and '.join(differing)}; "
            "delete that folder to start anew."
        )


def _digest_of_tokenizer(tokenizer: ElmoTokenizer) -> str:
    """Tells tokenizers apart by their splitter and vocabulary."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
