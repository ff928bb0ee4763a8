"""The benchmark of sentence similarity: what it compares, and its table."""

import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import similarity
import torch
from scipy.stats import spearmanr

from elmo_hf import ElmoModel, ElmoTokenizer

ROWS = ["A dog runs\tThe dog runs fast\t4.5", "Two men eat\tA storm came\t1.2", "A man sings\tA man sang\t4.1"]


def write_pairs(path: Path) -> Path:
    path.write_text("sentence_A\tsentence_B\trelatedness_score\n" + "\n".join(ROWS) + "\n", encoding="utf-8")
    return path


def test_words_in_both_are_counted_once_and_without_case() -> None:
    assert similarity.shared_words(["A a b"], ["b C"]).tolist() == [1 / 3]


def test_vectors_are_means_and_maxima_over_words_and_the_last_is_that_of_the_mix(tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    texts = ["The ferry left .", "Yes"]
    vectors = similarity.sentence_vectors(model, tokenizer, texts)
    with torch.no_grad():
        expected = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in texts]
    for text, outputs in enumerate(expected):
        layers = torch.stack(outputs.hidden_states)[:, 0, 1:-1]
        np.testing.assert_allclose(vectors[0, :-1, text], layers.mean(dim=1), atol=1e-6)
        np.testing.assert_allclose(vectors[0, -1, text], outputs.pooler_output[0], atol=1e-6)
        np.testing.assert_allclose(vectors[1, :-1, text], layers.amax(dim=1), atol=1e-6)
        np.testing.assert_allclose(vectors[1, -1, text], layers.mean(dim=0).amax(dim=0), atol=1e-6)


def test_correlation_is_spearmans() -> None:
    scores, similarities = np.random.default_rng(1).integers(6, size=(2, 3, 20))  # with ties
    expected = [100 * spearmanr(*rows).statistic for rows in zip(similarities, scores, strict=True)]
    np.testing.assert_allclose(similarity.correlation(similarities, scores), expected)
    assert similarity.correlation(np.ones(4), np.arange(4)) == 0


def test_errors_are_those_of_a_difference_between_methods_of_the_same_pairs() -> None:
    scores = np.arange(40.0)
    noisy = scores + np.random.default_rng(2).normal(size=40) * 20
    assert re.fullmatch(r"100\.0 ± 0\.0", similarity.with_error(scores, scores**3))
    assert similarity.with_error(scores, noisy, noisy * 2) == "0.0 ± 0.0"
    assert float(similarity.with_error(scores, scores, noisy).split()[0]) > 10


def test_the_table_has_every_layer_and_method(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.txt"))
    monkeypatch.setattr(sys, "argv", ["similarity.py", str(tiny_folder), pairs, pairs, "--seeds", "1", "2"])
    similarity.main()
    found = re.findall(r"^\| (\w+) \| ([\w -]+) \| (\w+) \| \S+ ± \S+ \|", capsys.readouterr().out, re.MULTILINE)
    methods, layers = ["cosine", "cosine - mean", "ridge"], ["0", "1", "2", "mix"]
    assert sorted(found) == sorted(product(["mean", "maximum"], methods, layers))
