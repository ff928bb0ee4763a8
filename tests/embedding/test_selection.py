"""What is kept of a sentence: numbers of fewer bits, and chosen words."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from interrupts import count_rows
from safetensors.torch import load_file
from vectors import LAYERS, SENTENCES, SUFFIXES, embed_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.window_vectors import Selection, embed_window


def kept(model: ElmoModel, tokenizer: ElmoTokenizer, *selection: Any) -> list[dict[str, np.ndarray]]:
    found = dict(embed_window(model.eval(), tokenizer, SENTENCES, Selection(*selection)))
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
    layers: str, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer
) -> None:
    every = kept(mixed_model, each_tokenizer, layers)
    counts = count_rows(mixed_model)
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
    assert ChosenWords("|".join(["[Bb]ank"] * 60)).positions(words).tolist() == [1, 2]  # too long for a file's name


def test_capitals_of_a_pattern_are_another_job() -> None:
    assert ChosenWords("[Bb]ank").digest != ChosenWords("bank").digest


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
