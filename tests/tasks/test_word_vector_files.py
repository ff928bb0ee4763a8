"""Word vectors from files of GloVe and word2vec, and from the words of a training set."""

import gzip
from pathlib import Path

import pytest

from elmo_hf import WordVectors

ROWS = {"the": [0.5, -1.0, 2.0], "ferry": [1.5, 0.25, -4.0], "Oslo": [1.0, 3.0, 8.0]}
GLOVE = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()
WORD2VEC = b"3 3\n" + GLOVE.replace(b"\n", b" \n")  # its own writer ends each line with a blank
SPECIAL = ["<S>", "</S>", "<UNK>"]


def read(folder: Path, content: bytes, words: list[str] | None = None, name: str = "a.txt") -> WordVectors:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    vectors = WordVectors.from_file(folder / name, words, trainable=words is not None)
    assert vectors.table is not None
    assert vectors.table[:3].abs().sum() == 0
    assert vectors.config == {"num_words": len(vectors.words), "size": 3, "trainable": words is not None}
    return vectors


@pytest.mark.parametrize(
    ("name", "content"),
    [("glove.txt", GLOVE), ("glove.txt.gz", GLOVE.replace(b"\n", b"\r\n")), ("w2v.vec", WORD2VEC)],
)
def test_each_format_gives_the_same_table(name: str, content: bytes, tmp_path: Path) -> None:
    vectors = read(tmp_path, content + b"the 7 8 9\n", name=name)  # of equal words the first counts
    assert vectors.words == [*SPECIAL, *ROWS]
    assert vectors.table[3:].tolist() == [[1.0, 0.75, 2.0], *ROWS.values()]  # type: ignore[index]


def test_only_wanted_words_are_kept_and_their_forms_in_lower_case(tmp_path: Path) -> None:
    vectors = read(tmp_path, GLOVE, ["The", "Oslo", "harbour", "OSLO", "\ud800"])
    assert vectors.words == [*SPECIAL, "the", "Oslo"]
    assert vectors.table[3].tolist() == [0.75, 1.0, 5.0]  # type: ignore[index]


def test_the_files_own_vector_of_unknown_words_is_used(tmp_path: Path) -> None:
    for words in (None, ["the"]):
        vectors = read(tmp_path, GLOVE + b"<unk> 7 8 9\n", words)
        assert "<unk>" not in vectors.words
        assert vectors.table[3].tolist() == [7, 8, 9]  # type: ignore[index]


def test_words_that_no_line_of_a_vocabulary_can_hold_are_left_out(tmp_path: Path) -> None:
    strange = ". . 1 2 3\nat me@there.com 1 2 3\n\u00a0 1 2 3\na\u00a0b 1 2 3\n 1 2 3\n<S> 1 2 3\nnice 1 2 3\n"
    assert read(tmp_path, b"first 1 2 3\n" + strange.encode()).words == [*SPECIAL, "first", "nice"]


def test_learned_vectors_are_for_words_that_occur_often_enough() -> None:
    texts = [["a", "b", "a"], ["c", "b", "<UNK>", "<UNK>", "x y", "x y"]]
    assert WordVectors.learned(texts, 5) == WordVectors([*SPECIAL, "a", "b"], 5, trainable=True)
    assert WordVectors.learned(texts, 5, min_count=1).words[3:] == ["a", "b", "c"]
