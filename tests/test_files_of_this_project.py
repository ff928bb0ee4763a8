"""What is read of the files of this project and of public corpora stays as it is, whatever formats are recognised."""

import hashlib
import json
from pathlib import Path

import pytest

from elmo_hf.text.sentences import read_sentences
from tests.helpers.checkpoints import shared

ROOT = Path(__file__).parents[1]
# Of each file the column, the number of sentences, the first one, and the SHA-256 of all as a JSON array.
GOLDEN = [
    ("elmo_hf/tiny_model/words.txt", None, 20000, "<S>", "ae51003914bedb7e"),
    ("examples/sentences.txt", None, 8, "We sat on the bank of the river.", "e5bacbdcc4c2a524"),
    (
        "examples/periods/1890.txt",
        None,
        9,
        "The prisoner was led back to his cell, and the door was",
        "e02cf6ee7bbfe034",
    ),
    (
        "examples/periods/2020.txt",
        None,
        8,
        "She called him on her cell, but nobody answered. Her cell",
        "ec3e63b38da50ada",
    ),
    ("examples/sea_or_house.jsonl", None, 20, "The ship sailed out of the harbour at dawn.", "13cbc5556248781c"),
    (
        "examples/space/sentences.txt",
        None,
        153,
        "We walked along the bank of the river until it was dark.",
        "b58fcbf7142ee107",
    ),
    ("examples/reading_times.csv", "word", 22, "She", "a57e35838f4ccaab"),
    ("tests/fixtures/bilm_tf_lm_tiny/text.txt", None, 18, "the ferry left the harbour late .", "8c54e65b0d259bca"),
    ("tests/fixtures/bilm_tf_lm_tiny/vocab.txt", None, 28, "<S>", "74cc9a13e5cfa0ca"),
]


@pytest.mark.parametrize(("name", "column", "number", "first", "digest"), GOLDEN, ids=[row[0] for row in GOLDEN])
def test_the_sentences_of_a_file_of_this_project_are_as_ever(
    name: str, column: str | None, number: int, first: str, digest: str
) -> None:
    sentences = list(read_sentences(ROOT / name, column=column))
    assert (len(sentences), sentences[0]) == (number, first)
    assert hashlib.sha256(json.dumps(sentences).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    "pattern", ["*.md", "docs/*.md", "model_cards/*", "benchmarks/*.py", "elmo_hf/**/*.py", "*.toml"]
)
def test_documents_and_programs_of_this_project_are_read_line_by_line(pattern: str) -> None:
    paths = [path for path in ROOT.glob(pattern) if path.is_file() and path.stat().st_size > 0]
    assert paths
    for path in paths:
        assert list(read_sentences(path)) == lines_of(path), path


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("gutenberg", f"{name}.txt") for name in ("blake-poems", "carroll-alice", "shakespeare-macbeth")),
        *(("wikitext2", name) for name in ("valid.txt", "bilm_reference/vocab_min2.txt")),
        ("sst5_trees", "dev.txt"),
        ("trec", "TREC.test.all"),
    ],
)
def test_public_corpora_of_text_are_read_line_by_line(folder: str, name: str) -> None:
    path = shared("data", folder) / name
    assert list(read_sentences(path)) == lines_of(path)


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().replace("\r\n", "\n").removesuffix("\n").split("\n")
