"""Builds the training text of the shipped model: `python examples/tiny_model/build_corpus.py REPOSITORIES OUT`.

`sources.tsv` names the repositories, their commits, the files to read, and why the text is in the public domain.
REPOSITORIES holds a clone of each, or its bare git folder: REPOSITORIES/OWNER/NAME. OUT receives `train.txt`, `dev.txt`
(some of each source) and `test/SOURCE.txt`, one sentence per line, words between blanks, and `table.tsv`: the words of
each source. The same commits give the same text. `OUT/documents` has the cleaned documents; an interrupted build
continues from them. `elmo-hf vocab` and `elmo-hf pretrain` then train on this text.
"""

import argparse
import csv
import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from documents import Document, read_documents, write_documents
from duplicates import Duplicates
from sources import SOURCES, Source, read_sources

HELD_OUT = {"test": 40_000, "dev": 10_000}  # words of a source, at most
LARGEST_SHARE = 0.04  # of a source's words, for each of these sets
LARGEST_HELD_OUT = 800_000  # bytes of a file; a larger one is read for training
BYTES_PER_WORD = 6
SHORTEST = 20  # words of a document
COUNTS = ("files", "unreadable", "empty", "duplicates", "train", "dev", "test")


class Joiner:
    """Joins the sources; a document or a paragraph that has already occurred is left out."""

    def __init__(self, output: Path) -> None:
        """Starts a corpus in a folder with the cleaned documents."""
        self._output = output
        self._paragraphs: set[str] = set()
        self._duplicates = Duplicates()

    def add(self, source: Source, train: TextIO, dev: TextIO) -> Counter[str]:
        """Writes a source; counts its files, the parts left out, and the words in each part."""
        path = documents_file(self._output, source)
        size = path.stat().st_size
        budget = {part: min(words, LARGEST_SHARE * size / BYTES_PER_WORD) for part, words in HELD_OUT.items()}
        counts: Counter[str] = Counter()
        with (self._output / "test" / f"{source.source}.txt").open("w", encoding="utf-8") as test:
            files = {"train": train, "dev": dev, "test": test}
            for document, sentences in self._new_ones(path, counts):
                small = document.size <= LARGEST_HELD_OUT
                part = next((name for name, words in budget.items() if small and counts[name] < words), "train")
                files[part].writelines(f"{sentence}\n" for sentence in sentences)
                counts[part] += count_words(sentences)
        return counts

    def _new_ones(self, path: Path, counts: Counter[str]) -> Iterator[tuple[Document, list[str]]]:
        """The documents that are new, and their sentences."""
        for document in read_documents(path):
            counts["files"] += 1
            sentences = []
            for key, paragraph in document.paragraphs:
                if self._is_new(key):
                    sentences += paragraph
            if document.error:
                counts["unreadable"] += 1
            elif count_words(sentences) < SHORTEST:
                counts["empty"] += 1
            elif not self._duplicates.is_new(document.sketch):
                counts["duplicates"] += 1
            else:
                yield document, sentences

    def _is_new(self, key: str) -> bool:
        if not key:
            return True
        is_known = key in self._paragraphs
        self._paragraphs.add(key)
        return not is_known


def count_words(sentences: list[str]) -> int:
    """Words of sentences whose words are between blanks."""
    return sum(sentence.count(" ") + 1 for sentence in sentences)


def documents_file(output: Path, source: Source) -> Path:
    """The file with the cleaned documents of a source; another commit, pattern or form has another file."""
    read = f"{source.repository}\t{source.commit}\t{source.files}\t{source.form}"
    return output / "documents" / f"{source.source}-{hashlib.sha256(read.encode('utf-8')).hexdigest()[:12]}.jsonl"


def build(sources: list[Source], repositories: Path, output: Path) -> list[dict[str, str | int]]:
    """Writes the corpus and its table; returns the table's rows."""
    for folder in ("documents", "test"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    for source in sources:
        write_documents(source, repositories / source.folder, documents_file(output, source))
        print(f"{source.source}: cleaned", flush=True)
    joiner = Joiner(output)
    rows: list[dict[str, str | int]] = []
    with (
        (output / "train.txt").open("w", encoding="utf-8") as train,
        (output / "dev.txt").open("w", encoding="utf-8") as dev,
    ):
        for source in sources:
            counts = joiner.add(source, train, dev)
            row: dict[str, str | int] = {"source": source.source, "kind": source.kind, "years": source.years}
            rows.append(row | {name: counts[name] for name in COUNTS})
    with (output / "table.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, rows[0], delimiter="\t", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return rows


def main() -> None:
    """Builds the corpus and prints its table and totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", type=Path, help="folder with the clones, as OWNER/NAME")
    parser.add_argument("output", type=Path, help="folder for the text")
    arguments = parser.parse_args()
    sources = read_sources(SOURCES)
    rows = build(sources, arguments.repositories, arguments.output)
    print((arguments.output / "table.tsv").read_text(encoding="utf-8"), end="")
    words = [int(row["train"]) for row in rows]
    recent = sum(count for count, source in zip(words, sources, strict=True) if source.is_recent)
    print(f"{sum(words):,} words for training, {recent / sum(words):.1%} written after 1990")


if __name__ == "__main__":
    main()
