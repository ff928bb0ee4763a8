"""What is kept of a sentence: numbers of fewer bits, and chosen words; batches by length."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.text.batches import BATCH_POSITIONS, batches_by_length
from tests.helpers.interrupts import count_rows
from tests.helpers.vectors import LAYERS, SENTENCES, SUFFIXES, read_arrays


def kept(
    model: ElmoModel, tokenizer: ElmoTokenizer, *selection: Any, batch_words: int = BATCH_POSITIONS
) -> list[dict[str, np.ndarray]]:
    found = dict(embed_window(model.eval(), tokenizer, SENTENCES, Selection(*selection), batch_words))
    return [found[row] for row in range(len(SENTENCES))]


@pytest.mark.parametrize(
    ("piece_words", "model_dtype"), [(5, torch.float32), (2048, torch.float32), (2048, torch.bfloat16)], ids=str
)
@pytest.mark.parametrize("layers", LAYERS)
def test_int8_times_its_scale_is_the_vector(
    layers: str, piece_words: int, model_dtype: torch.dtype, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    singles = kept(mixed_model.to(model_dtype), tiny_tokenizer, layers, batch_words=1)
    mixed_model.bilm.piece_words = piece_words
    eights = kept(mixed_model, tiny_tokenizer, layers, "int8", batch_words=1)
    for single, eight in zip(singles, eights, strict=True):
        vectors, scales = single["vectors"], eight["scales"]
        assert (eight["vectors"].dtype, scales.dtype) == (np.int8, np.float32)
        assert (eight["vectors"].shape, scales.shape) == (vectors.shape, vectors.shape[:-1])
        assert (np.abs(eight["vectors"] * scales[..., None] - vectors) <= scales[..., None] / 2 * 1.001).all()
        np.testing.assert_array_equal(scales, np.abs(vectors).max(-1) / np.float32(127))


@pytest.mark.parametrize(("suffix", "dtype"), [*product(SUFFIXES, ["float16", "int8"]), (".safetensors", "bfloat16")])
def test_every_format_holds_vectors_scales_and_positions(
    suffix: str, dtype: str, embed: Callable[..., int], mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    words = ChosenWords("[Ff]erry|ten|Yes")
    embed(f"v{suffix}", layers="mix", dtype=dtype, words=words, window_characters=999)
    found = read_arrays(Path(f"v{suffix}"))
    singles = kept(mixed_model, tiny_tokenizer, "mix", "float32", words)
    for number, arrays in enumerate(kept(mixed_model, tiny_tokenizer, "mix", dtype, words)):
        if dtype != "int8":
            rounded = torch.from_numpy(singles[number]["vectors"]).to(getattr(torch, dtype))
            arrays["vectors"] = (rounded.float() if dtype == "bfloat16" else rounded).numpy()  # as they are read
        chosen = arrays.pop("chosen_words").tolist()
        assert suffix != ".parquet" or found.pop(f"{number}.chosen_words").tolist() == chosen
        for name, array in arrays.items():
            there = found.pop(f"{number}{'' if name == 'vectors' else f'.{name}'}")
            assert there.dtype == array.dtype
            np.testing.assert_array_equal(there.reshape(array.shape), array)
    assert not found


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


@pytest.mark.parametrize(
    ("batch_words", "sizes"), [(100, [5, 33, 33, 33, 33, 33, 33, 33, 33, 33, 3]), (2048, [102, 128, 75]), (8192, [305])]
)
def test_sizes(batch_words: int, sizes: list[int]) -> None:
    lengths = [3] * 300 + [20, 19, 18, 17, 16]
    batches = list(batches_by_length(lengths, batch_words))
    assert [len(batch) for batch in batches] == sizes
    assert [place for batch in batches for place in batch] == [300, 301, 302, 303, 304, *range(300)]


def test_a_longer_text_is_alone_and_texts_without_positions_are_a_batch() -> None:
    assert list(batches_by_length([4, 9, 2, 0], 6)) == [[1], [0], [2, 3]]
    assert list(batches_by_length([0, 0], 3)) == [[0, 1]]


TEXTS = [["Yes"], [], "The ferry left the harbour .".split(), ["It", "did"], ["No", "."]]


def test_a_boundary_is_a_position(mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer) -> None:
    counts = count_rows(mixed_model)
    list(embed_window(mixed_model, each_tokenizer, TEXTS, Selection(), 12))
    assert counts == ([1, 3, 1] if each_tokenizer.num_special_tokens_to_add() > 0 else [2, 3])
