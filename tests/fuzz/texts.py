"""Targets that read texts by commands: `embed`, `score`, `vocab`, of plain text, JSON lines and CoNLL-U, also gzipped.

A plain reader, with nothing but Python's own modules, says which sentences a file holds, or that it is no such file.
`embed` must give each its vectors, `score` each word a row, and `vocab` all words by frequency.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet
from commands import run as command
from tiny_lm import tiny_lm, tiny_tokenizer_of

from .mutators import Files
from .outcomes import Refusal, Wrong
from .target import INPUT, Target

Sentence = str | list[str]
TEXT = """the ferry left at dawn .

Yes
ten naïve unseen 日本語 Übung , late extraordinarily
the harbour .
"""
JSONL = """{"text": "the ferry left at dawn ."}
{"text": ""}
{"words": ["Yes", ",", "ten"]}
{"words": ["naïve", "日本語"]}
"""
CONLLU = "# sent_id = 1\n" + "".join(
    f"{number}\t{word}" + "\t_" * 8 + "\n"
    for number, word in (("1-2", "dámelo"), (1, "the"), (2, "ferry"), (3, "left"))
)
CONLLU += "\n" + "1\tnaïve" + "\t_" * 8 + "\n1.1\tgone" + "\t_" * 8 + "\n2\t日本語" + "\t_" * 8 + "\n\n"
CONTENTS = {"txt": TEXT, "jsonl": JSONL, "conllu": CONLLU}


class Unreadable(Exception):
    """A plain reader cannot read the file either."""


def plain_sentences(kind: str, content: bytes) -> list[Sentence]:
    """The sentences of a file.

    Args:
        kind: the end of its name.
        content: its bytes.
    """
    try:
        if kind.endswith(".gz"):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
        kind = kind.removesuffix(".gz")
        lines = text.split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
        readers = {"txt": iter, "jsonl": _json_lines, "conllu": _conllu}
        return [each.rstrip("\r") if kind == "txt" else each for each in readers[kind](lines)]  # type: ignore[operator]
    except (ValueError, KeyError, TypeError, OSError, EOFError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _json_lines(lines: list[str]) -> Iterator[Sentence]:
    for line in lines:
        value: Any = json.loads(line) if line.strip() else ""
        if isinstance(value, dict):
            found = [value[key] for key in ("words", "tokens", "text", "sentence") if key in value]
            value = next((each for each in found if each is not None), "" if found else None)
        if not isinstance(value, str) and not all(isinstance(word, str) for word in value):
            raise ValueError
        yield value if isinstance(value, str) else list(value)


def _conllu(lines: list[str]) -> Iterator[Sentence]:
    words: list[str] = []
    for line in [*lines, ""]:
        line = line.rstrip("\r")
        if line and not line.startswith("#"):
            number, word, *others = line.split("\t")
            if len(others) != 8:
                raise ValueError
            words += [word] if number.isdigit() else []
        elif not line and words:
            yield words
            words = []


def call(*arguments: object) -> None:
    """Runs a command in this process; its `Error: ...` becomes a `Refusal`, any other error is raised as it is."""
    result = command(*arguments)
    if result.exit_code == 0:
        return
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    text = result.stderr.rpartition("Error: ")[2].strip()
    raise Refusal(text if "Error: " in result.stderr else f"exit code {result.exit_code} without an error")


def expected(kind: str, files: Files) -> list[Sentence]:
    """What a plain reader finds in the only file; a command that read more than it does is wrong."""
    try:
        return plain_sentences(kind, files[f"x.{kind}"] or b"")
    except Unreadable as error:
        raise Wrong(f"read although it is no {kind}: {error!s:.80}") from error


def words_of(sentence: Sentence) -> list[str]:
    """The words of a sentence in a text of words."""
    return sentence.split() if isinstance(sentence, str) else sentence


def embed(kind: str, model: Path, files: Files, known: dict[tuple[str, ...], np.ndarray]) -> None:
    """Runs `embed`; `known` gets the vectors of the first call's sentences."""
    call("embed", model, f"{INPUT}/x.{kind}", "-o", "out.hdf5", "--split-into-words", "--layers", "average")
    sentences, is_first = expected(kind, files), not known
    with h5py.File("out.hdf5") as file:
        if len(file) - 1 != len(sentences):
            raise Wrong(f"{len(file) - 1} vectors of {len(sentences)} sentences")
        for index, sentence in enumerate(sentences):
            vectors, words = file[str(index)][()], words_of(sentence)
            is_other = tuple(words) in known and not np.allclose(vectors, known[tuple(words)], rtol=0, atol=1e-5)
            if len(vectors) != len(words) or not np.isfinite(vectors).all() or is_other:
                raise Wrong(f"other vectors of sentence {index}")
            if is_first:
                known[tuple(words)] = vectors


def score(kind: str, model: Path, files: Files) -> None:
    """Runs `score`."""
    call("score", model, f"{INPUT}/x.{kind}", "--words", "whitespace", "--per-word", "out.parquet")
    rows = pyarrow.parquet.read_table("out.parquet").to_pylist()
    found: dict[int, list[str]] = {}
    for row in rows:
        found.setdefault(row["sentence"], []).append(row["word"])
    # No file can hold half a surrogate pair.
    sentences = {
        index: [word.encode("utf-8", "replace").decode() for word in words_of(sentence)]
        for index, sentence in enumerate(expected(kind, files))
    }
    if {index: words[1:-1] for index, words in found.items()} != {
        index: each for index, each in sentences.items() if each
    }:
        raise Wrong("other words than the file's")


def vocab(kind: str, model: Path, files: Files) -> None:
    """Runs `vocab`."""
    call("vocab", f"{INPUT}/x.{kind}", "-o", "out.txt")
    counts = Counter(word for sentence in expected(kind, files) for word in words_of(sentence))
    special = ["<S>", "</S>", "<UNK>"]
    listed = [word for _, word in sorted((-count, word) for word, count in counts.items()) if is_line(word)]
    lines = Path("out.txt").read_bytes().decode().split("\n")[:-1]
    if lines != [*special, *(word for word in listed if word not in (*special, "<pad>", "!!!MAXTERMID"))]:
        raise Wrong("other words than the file's")


def is_line(word: str) -> bool:
    """Whether a vocabulary file can hold the word."""
    is_text = word == word.encode("utf-8", "replace").decode()
    return is_text and word != "" and word.strip() == word and not set(word) & set("\r\n")


def make(name: str, kind: str, work: Path) -> Target:
    """The target of a command and a kind of text."""
    content = CONTENTS[kind.removesuffix(".gz")].encode()
    files: Files = {f"x.{kind}": gzip.compress(content) if kind.endswith(".gz") else content}
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, work)
    model.save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")
    if name == "embed":
        runner = partial(embed, kind, work / "model", known={})
    else:
        runner = partial({"score": score, "vocab": vocab}[name], kind, work / "model")
    return Target(f"{name}-{kind.replace('.', '-')}", files, runner)


KINDS = ("txt", "jsonl", "conllu", "txt.gz", "jsonl.gz")
TARGETS = {
    f"{name}-{kind.replace('.', '-')}": partial(make, name, kind)
    for name in ("embed", "score", "vocab")
    for kind in KINDS
}
