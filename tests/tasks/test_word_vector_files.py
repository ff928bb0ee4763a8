"""Word vectors from files of GloVe and word2vec, and from the words of a training set."""

import gzip
from pathlib import Path

import pytest
import torch

from elmo_hf import WordVectors
from elmo_hf.tasks import word_vectors

ROWS = {"the": [0.5, -1.0, 2.0], "ferry": [1.5, 0.25, -4.0], "Oslo": [1.0, 3.0, 8.0]}
GLOVE = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in ROWS.items()).encode()
WORD2VEC = b"3 3\n" + GLOVE.replace(b"\n", b" \n")  # its own writer ends each line with a blank


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("glove.txt", GLOVE),
        ("glove.txt.gz", GLOVE.replace(b"\n", b"\r\n")),
        ("w2v.vec", WORD2VEC),
    ],
)
def test_each_format_gives_the_same_table(name: str, content: bytes, tmp_path: Path) -> None:
    vectors = WordVectors.from_file(written(tmp_path, name, content))
    assert vectors.words == ["<S>", "</S>", "<UNK>", "the", "ferry", "Oslo"]
    assert (vectors.size, vectors.trainable) == (3, False)
    mean = [1.0, 0.75, 2.0]
    assert vectors.table is not None
    assert vectors.table.tolist() == [[0.0] * 3] * 3 + [mean, *ROWS.values()]
    assert vectors.config == {"num_words": 6, "size": 3, "trainable": False}


def test_only_wanted_words_are_kept_and_their_forms_in_lower_case(tmp_path: Path) -> None:
    path = written(tmp_path, "glove.txt", GLOVE)
    vectors = WordVectors.from_file(path, words={"The", "Oslo", "harbour", "OSLO", "\ud800"}, trainable=True)
    assert vectors.words[3:] == ["the", "Oslo"]
    assert vectors.table is not None
    assert vectors.table[3].tolist() == [0.75, 1.0, 5.0]
    assert vectors.trainable


def test_the_files_own_vector_of_unknown_words_is_used(tmp_path: Path) -> None:
    path = written(tmp_path, "glove.txt", GLOVE + b"<unk> 7 8 9\n")
    for words in (None, ["the"]):
        vectors = WordVectors.from_file(path, words)
        assert "<unk>" not in vectors.words
        assert torch.equal(vectors.table[3], torch.tensor([7.0, 8.0, 9.0]))  # type: ignore[index]


def test_words_that_no_line_of_a_vocabulary_can_hold_are_left_out(tmp_path: Path) -> None:
    strange = ". . 1 2 3\nat me@there.com 1 2 3\n\u00a0 1 2 3\na\u00a0b 1 2 3\n 1 2 3\n<S> 1 2 3\nnice 1 2 3\n"
    path = written(tmp_path, "glove.txt", b"first 1 2 3\n" + strange.encode())
    assert WordVectors.from_file(path).words[3:] == ["first", "nice"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "PATH holds no word vectors."),
        ("a.txt", b"3 2\n", "PATH holds no word vectors."),
        ("a.txt", b"the\n", "PATH, line 1: expected a word and some numbers, found 1 columns."),
        ("a.txt", b"a 1 2\nb 1\n", "PATH, line 2: expected a word and 2 numbers, found 2 columns."),
        ("a.txt", b"a 1 2\nb 1 2 3\n", "PATH, line 2: expected a word and 2 numbers, found 4 columns."),
        ("a.txt", b"2 3\na 1 2\n", "PATH, line 2: expected a word and 3 numbers, found 3 columns."),
        ("a.txt", b"a 1 x\n", "PATH, line 1: could not convert string to float: 'x'; after its word a line has"),
        ("a.txt", b"a 1 nan\n", "PATH, line 1: holds a number that is not finite."),
        ("a.txt", b"a 1\nb 2\na 3\n", "PATH, line 3: 'a' is in the file a second time; remove one of the two."),
        ("a.txt", b"5 1\na 1\n", "PATH announces 5 words and holds 1; was it downloaded in full?"),
        ("a.txt", b"a 1\n\xff 1\n", "PATH, line 2: not UTF-8 (byte 0xff)."),
        ("a.txt", b"PK\x03\x04\0\0", "PATH, line 1: holds the character 0; the file looks like a zip archive"),
        ("a.txt.gz", b"", "PATH must be a gzipped file, because its name ends in .gz"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content or (b"no gzip" if name.endswith(".gz") else b""))
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        WordVectors.from_file(path)
    assert str(error.value).startswith(message.replace("PATH", str(path)))


def test_a_file_without_the_wanted_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"glove.txt holds none of the 2 words that are wanted\."):
        WordVectors.from_file(written(tmp_path, "glove.txt", GLOVE), words=["harbour", "quay"])


def test_a_large_file_needs_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors, "MOST_BYTES", 60)
    path = written(tmp_path, "glove.txt", GLOVE)
    with pytest.raises(ValueError, match=r"line 2: more than 60 bytes of vectors; give the `words` to keep\."):
        WordVectors.from_file(path)
    assert WordVectors.from_file(path, words=["Oslo"]).words[3:] == ["Oslo"]


def test_learned_vectors_are_for_words_that_occur_often_enough() -> None:
    texts = [["a", "b", "a"], ["c", "b", "<UNK>", "<UNK>", "x y", "x y"]]
    vectors = WordVectors.learned(texts, 5)
    assert (vectors.words, vectors.size, vectors.trainable) == (["<S>", "</S>", "<UNK>", "a", "b"], 5, True)
    assert vectors.table is None
    assert WordVectors.learned(texts, 5, min_count=1).words[3:] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="no word occurs 3 times in the 9 words of `texts`"):
        WordVectors.learned(texts, 5, min_count=3)
