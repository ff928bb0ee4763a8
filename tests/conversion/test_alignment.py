"""Matrices on layers: converted, saved, loaded, read in long texts, and refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoConfig, ElmoForTokenClassification, ElmoModel
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source, folder_to_allennlp
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.checkpoints import BASE, TINY_LM, outputs_of
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.tiny_inputs import TINY, assert_outputs_close

SENTENCES = [["The", "ferry", "left", "."], ["Yes"]]
SIZE = 16  # 2P of the golden case


def matrix(seed: int, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, (size, size))


def save(path: Path, value: Any, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def test_each_aligned_layer_is_multiplied_by_its_matrix(tmp_path: Path) -> None:
    """Files as the authors saved them: an array of NumPy in torch's old form, by NumPy 1; and a tensor."""
    old = save(tmp_path / "old.pth", matrix(2), _use_new_zipfile_serialization=False)
    old.write_bytes(old.read_bytes().replace(b"cnumpy._core.", b"cnumpy.core."))
    new = save(tmp_path / "new.pth", torch.tensor(matrix(0)))
    options = ["--check", "--align", f"2={old}", "--align", f"0={new}"]
    printed = output_of("convert", BASE, tmp_path / "model", *options)
    assert float(printed.split("all layers: ")[1].split()[0]) < 1e-5
    output_of("convert", BASE, tmp_path / "plain")
    plain, found = outputs_of(tmp_path / "plain", SENTENCES), outputs_of(tmp_path / "model", SENTENCES)
    layers = [layer.numpy() for layer in plain.hidden_states]
    expected = [layers[0] @ matrix(0).T, layers[1], layers[2] @ matrix(2).T]
    for layer, numbers in zip(found.hidden_states, expected, strict=True):
        assert_outputs_close(layer.double(), torch.tensor(numbers).double(), 1e-5)
    assert_outputs_close(found.last_hidden_state.double(), torch.tensor(sum(expected) / 3).double(), 1e-5)
    assert_outputs_close((found.state, found.token_embeddings), (plain.state, plain.token_embeddings), 0)
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8").splitlines()
    assert "| aligned layers | 0, 2 |" in card
    assert "pretrain" not in output_of("info", tmp_path / "model")
    assert {line.split("`")[1] for line in card if line.endswith("` |")} > {"old.pth", "new.pth"}
    (note,) = folder_to_allennlp(tmp_path / "model", tmp_path / "back")
    assert "aligned" in note


@pytest.mark.parametrize("is_bidirectional", [True, False])
def test_a_long_text_and_a_task_have_aligned_layers(is_bidirectional: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig(**TINY, aligned_layers=[1], bidirectional=is_bidirectional)).eval()
    assert torch.equal(model.bilm.alignment, torch.eye(model.config.hidden_size).unsqueeze(0))
    model.bilm.alignment.copy_(torch.tensor(matrix(1, model.config.hidden_size)))
    model.save_pretrained(tmp_path)
    ids = torch.randint(1, 257, (1, 9, model.config.max_word_length))
    with torch.no_grad():
        expected = model(input_ids=ids, output_hidden_states=True)
        model.bilm.piece_words = 4
        assert_outputs_close(model(input_ids=ids).last_hidden_state, expected.last_hidden_state)
        task = ElmoForTokenClassification.from_pretrained(tmp_path, freeze_bilm=False).train()
        assert_outputs_close(task.compute_bilm_layers(ids).unbind(2), expected.hidden_states)
    task(input_ids=ids, labels=torch.ones(1, 9, dtype=torch.long)).loss.backward()
    assert "elmo.bilm.alignment" not in dict(task.named_parameters())


REFUSED = {
    "another size": (BASE, matrix(0, 15), "1", "16 x 16"),
    "no matrix": (BASE, {"a": torch.ones(SIZE, SIZE)}, "1", "dict"),
    "not finite": (BASE, np.full((SIZE, SIZE), np.nan), "1", "finite"),
    "only zeros": (BASE, np.zeros((SIZE, SIZE)), "1", "not all zeros"),
    "objects": (BASE, np.array([[Path("x")]]), "1", "m.pth"),
    "no such layer": (BASE, matrix(0), "3", "0 to 2"),
    "a softmax": (TINY_LM, matrix(0), "1", "softmax"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_matrices_are_refused_and_nothing_is_written(case: str, tmp_path: Path) -> None:
    source, value, layer, text = REFUSED[case]
    path = save(tmp_path / "m.pth", value)
    assert_fails(run("convert", source, tmp_path / "to", "--align", f"{layer}={path}"), 1, text)
    assert_fails(run("convert", source, tmp_path / "to", "--align", str(path)), 2, "LAYER=FILE")
    assert not (tmp_path / "to").exists()


def test_a_layer_below_the_token_vectors_is_refused(tmp_path: Path) -> None:
    settings = FolderSettings(align_files={-1: save(tmp_path / "m.pth", matrix(0))})
    with pytest.raises(ConversionError, match=r"for layer -1, .* from 0 to 2"):
        convert_source(BASE, tmp_path / "to", NamedFiles(), settings)
