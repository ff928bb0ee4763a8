"""The benchmark of sentence similarity: what it compares, and its table."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
import similarity
import torch

from elmo_hf import ElmoModel, ElmoTokenizer

ROWS = ["A dog runs\tThe dog runs fast\t4.5", "Two men eat\tA storm came\t1.2", "A man sings\tA man sang\t4.1"]


def write_pairs(path: Path) -> Path:
    path.write_text("sentence_A\tsentence_B\trelatedness_score\n" + "\n".join(ROWS) + "\n", encoding="utf-8")
    return path


def test_words_in_both_are_counted_once_and_without_case() -> None:
    assert similarity.shared_words(["A a b"], ["b C"]).tolist() == [1 / 3]


def test_vectors_are_means_over_words_and_the_last_is_that_of_the_mix(tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    texts = ["The ferry left .", "Yes"]
    vectors = similarity.sentence_vectors(model, tokenizer, texts)
    with torch.no_grad():
        expected = [model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True) for text in texts]
    for text, outputs in enumerate(expected):
        layers = [layer[0, 1:-1].mean(dim=0).numpy() for layer in outputs.hidden_states]
        np.testing.assert_allclose(vectors[:, text], [*layers, outputs.pooler_output[0].numpy()], atol=1e-6)


@pytest.mark.filterwarnings("ignore:An input array is constant")  # samples of three pairs
def test_the_table_has_every_layer_and_method(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = str(write_pairs(tmp_path / "pairs.txt"))
    monkeypatch.setattr(sys, "argv", ["similarity.py", str(tiny_folder), pairs, pairs, "--seeds", "1", "2"])
    similarity.main()
    rows = re.findall(r"^\| ([\w ,-]+) \| \S+ ± \S+ \|", capsys.readouterr().out, re.MULTILINE)
    layers = ["layer 0", "layer 1", "layer 2", "mix"]
    assert rows == [*layers, *(f"{x} - mean" for x in layers), *(f"{x}, ridge" for x in layers), "words in both"]
