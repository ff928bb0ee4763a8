"""What is kept of a sentence: numbers of fewer bits, and chosen words."""

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from interrupts import count_rows
from safetensors.torch import load_file
from vectors import LAYERS, SENTENCES, SUFFIXES

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import embed, window_vectors
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.embed import embed_file
from elmo_hf.embedding.window_vectors import Wanted, embed_window
from elmo_hf.model import long_texts


def kept(model: ElmoModel, tokenizer: ElmoTokenizer, *wanted: Any) -> list[dict[str, np.ndarray]]:
    found = dict(embed_window(model.eval(), tokenizer, SENTENCES, Wanted(*wanted)))
    return [found[row] for row in range(len(SENTENCES))]


def read_all(path: Path) -> dict[str, np.ndarray]:
    """Every array of a file by its name."""
    if path.suffix == ".hdf5":
        with h5py.File(path) as file:
            return {name: file[name][()] for name in file if name != "sentence_to_index"}
    if path.suffix == ".parquet":
        rows = enumerate(pq.read_table(path).to_pylist())
        columns = {"vectors": "", "scales": ".scales", "positions": ".positions"}
        return {f"{n}{columns[name]}": np.array(row[name]) for n, row in rows for name in columns if name in row}
    return dict(np.load(path)) if path.suffix == ".npz" else {name: x.numpy() for name, x in load_file(path).items()}


@pytest.mark.parametrize("layers", LAYERS)
def test_int8_times_its_scale_is_the_vector(layers: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> None:
    singles, eights = kept(mixed_model, tiny_tokenizer, layers), kept(mixed_model, tiny_tokenizer, layers, "int8")
    for single, eight in zip(singles, eights, strict=True):
        vectors, scales = single["vectors"], eight["scales"]
        assert eight["vectors"].dtype == np.int8
        assert (eight["vectors"].shape, scales.shape) == (vectors.shape, vectors.shape[:-1])
        assert (np.abs(eight["vectors"] * scales[..., None] - vectors) <= scales[..., None] / 2 * 1.001).all()
        np.testing.assert_array_equal(scales, np.abs(vectors).max(-1) / np.float32(127))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_holds_scales_and_positions(
    suffix: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    words = ChosenWords("[Ff]erry|ten|Yes")
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / f"v{suffix}", layers="mix", dtype="int8", words=words)
    found = read_all(tmp_path / f"v{suffix}")
    expected = kept(mixed_model, tiny_tokenizer, "mix", "int8", words)
    assert len(found) == 3 * len(SENTENCES)
    for number, arrays in enumerate(expected):
        for name, array in arrays.items():
            read = found[str(number) + (f".{name}" if name != "vectors" else "")]
            np.testing.assert_array_equal(read.reshape(array.shape), array)


@pytest.mark.parametrize("layers", ["all", "top"])
def test_vectors_of_chosen_words_are_those_of_all_words_at_their_positions(
    layers: str, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = kept(mixed_model, each_tokenizer, layers)
    counts = count_rows(mixed_model, monkeypatch)
    chosen = kept(mixed_model, each_tokenizer, layers, "float32", ChosenWords("ferry|harbour|Yes"))
    assert [arrays["positions"].tolist() for arrays in chosen] == [[1, 4], [], [0], [], [], [1, 4]]
    assert sum(counts) == 3  # sentences without a chosen word are not computed
    for one, other in zip(every, chosen, strict=True):
        expected = one["vectors"][..., other["positions"], :]
        assert other["vectors"].shape == expected.shape
        np.testing.assert_allclose(other["vectors"], expected, rtol=0, atol=1e-6)


def test_words_are_listed_in_a_file_or_matched_whole(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("\ufeffbank\n\n river \n", encoding="utf-8")
    words = ["the", "bank", "Bank", "banks", "river"]
    assert ChosenWords(str(tmp_path / "words")).positions(words).tolist() == [1, 4]
    assert ChosenWords("[Bb]ank").positions(words).tolist() == [1, 2]
    assert ChosenWords("[Bb]ank").digest != ChosenWords("[bB]ank").digest
    assert ChosenWords("|".join(["[Bb]ank"] * 60)).positions(words).tolist() == [1, 2]  # too long for a file's name


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("words.txt", FileNotFoundError, "there is no file words.txt."),
        ("(bank", ValueError, "'(bank' is neither a file of words nor a regular expression: missing ), unterminated"),
    ],
)
def test_words_that_are_neither_a_file_nor_a_pattern_are_refused(
    source: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        ChosenWords(source)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\n \n", "must be a list of words, one a line; it has none."), (b"\xff", "must be a list of words in UTF-8: ")],
)
def test_a_file_without_words_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{tmp_path}/words {message}')}"):
        ChosenWords(str(tmp_path / "words"))


def test_safetensors_hold_bfloat16(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    words = ChosenWords("ferry|Yes")
    path = tmp_path / "v.safetensors"
    embed_file(mixed_model, tiny_tokenizer, corpus, path, layers="top", dtype="bfloat16", words=words)
    found = load_file(path)
    for number, arrays in enumerate(kept(mixed_model, tiny_tokenizer, "top", "float32", words)):
        assert torch.equal(found[str(number)], torch.from_numpy(arrays["vectors"]).bfloat16())
        assert found[f"{number}.positions"].tolist() == arrays["positions"].tolist()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("v.npz", {"dtype": "bfloat16"}, ".npz files hold no bfloat16; choose float16, or safetensors."),
        (
            "v.npz",
            {"layers": "pooled", "words": ChosenWords("a")},
            "`pooled` has one vector a sentence, so no words can be chosen; leave `words` out.",
        ),
        (
            "v.safetensors",
            {"dtype": "int8"},
            "a .safetensors file can hold at most 5 sentences of this kind, because its header is limited; the "
            "input has 6. Choose .hdf5, .npz or .parquet, or a folder: `-o PLACE/v/`.",
        ),
    ],
    ids=["bfloat16", "pooled", "header"],
)
def test_what_a_format_does_not_bear_is_refused_before_the_work(
    name: str,
    options: dict[str, Any],
    message: str,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embed, "MOST_TENSORS", 11)
    with pytest.raises(ValueError, match=f"^{re.escape(message.replace('PLACE', str(tmp_path)))}$"):
        embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / name, **options)
    assert [*tmp_path.iterdir()] == [corpus]


def test_it_is_known_whether_any_sentence_had_a_chosen_word() -> None:
    words = ChosenWords("bank")
    assert words.found is None
    for sentence, found in ((["no"], False), (["bank"], True), (["no"], True)):
        words.positions(sentence)
        assert words.found is found


@pytest.mark.parametrize("layers", ["mix", "pooled"])
def test_one_long_text_has_the_vectors_of_the_model(
    layers: str, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (window_vectors, long_texts):
        monkeypatch.setattr(module, "PIECE_WORDS", 4)
    words = "The ferry left the harbour ten minutes late .".split()
    ((_, found),) = embed_window(mixed_model.eval(), tiny_tokenizer, [words], Wanted(layers))
    with torch.no_grad():
        output = mixed_model(**tiny_tokenizer([words], is_split_into_words=True, return_tensors="pt"))
    expected = output.pooler_output[0] if layers == "pooled" else output.last_hidden_state[0, 1:-1]
    np.testing.assert_allclose(found["vectors"], expected.numpy(), rtol=0, atol=1e-6)


def test_a_file_may_have_as_many_tensors_as_its_format_allows(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "MOST_TENSORS", 2)
    (tmp_path / "in.txt").write_text("Yes\nNo\n", encoding="utf-8")
    assert embed_file(mixed_model, tiny_tokenizer, tmp_path / "in.txt", tmp_path / "v.safetensors") == 2
