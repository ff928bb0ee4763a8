"""A converted folder: its weights, its card, and where it is written."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from checkpoints import (
    BASE,
    CELL,
    TINY_LM,
    allennlp_to_folder,
    arrays_of,
    base_checkpoint,
    difference_of,
    run_python,
)
from huggingface_hub import ModelCard
from language_models import tiny_files
from safetensors.numpy import load_file

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.witness.reference import ReferenceElmo


def test_weights_are_the_checkpoints_own_in_the_places_of_torch(tiny_folder: Path) -> None:
    tensors, (_, arrays) = load_file(tiny_folder / "model.safetensors"), base_checkpoint()
    assert {name.split(".")[0] for name in tensors} == {"token_encoder", "bilm"}  # no mix, which the source lacks
    kernel, bias = arrays[f"{CELL}/W_0"], arrays[f"{CELL}/B"]
    lstm = "bilm.layers.0.forward_lstm"
    for ours, theirs in enumerate((0, 2, 1, 3)):
        rows, columns = slice(32 * ours, 32 * (ours + 1)), slice(32 * theirs, 32 * (theirs + 1))
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.weight"][rows], kernel[:8, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.recurrent_linear.weight"][rows], kernel[8:, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.bias"][rows], bias[columns])
    expected = {
        "token_encoder.embedding.weight": np.concatenate([np.zeros((1, 4), np.float32), arrays["char_embed"]]),
        "token_encoder.convolutions.3.weight": arrays["CNN/W_cnn_3"][0].transpose(2, 1, 0),
        "token_encoder.highways.1.gate.weight": arrays["CNN_high_1/W_carry"].T,
        "bilm.layers.1.backward_lstm.projection.weight": arrays["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"].T,
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=name)


def test_the_card_has_source_check_and_architecture_and_runs(tiny_folder: Path) -> None:
    text = (tiny_folder / "README.md").read_text(encoding="utf-8")
    card = ModelCard(text)
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "bilm", "word-embeddings"],
    }
    assert card.text.lstrip().startswith("# tiny\n")
    lines = text.splitlines()
    for name in ("options.json", "weights.hdf5"):
        assert f"| `{name}` | `{hashlib.sha256((BASE / name).read_bytes()).hexdigest()}` |" in lines
    difference = difference_of(tiny_folder, ReferenceElmo(*base_checkpoint()))
    assert f"NumPy biLM in float64\non the source's arrays was {difference:.1e}." in text
    assert f"| parameters | {sum(array.size for array in base_checkpoint()[1].values()):,} |" in lines
    assert "| token encoder | 4-d characters, filters 1:4, 2:8, 3:12, 4:8 (relu), 2 highway layers |" in lines
    assert "| biLM | 2 layers, with skip connections |" in lines
    assert "| cell, projection | 32, 8 |" in lines
    assert "| cell clip, projection clip | 3.0, 3.0 |" in lines
    assert "- **Long words.** A word is cut after 48 bytes of UTF-8." in lines
    assert "language models" not in text
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert run_python(snippet, tiny_folder.parent) == "torch.Size([2, 8, 16])\ntorch.Size([2, 16])\n"


def test_card_of_an_unchecked_word_model_claims_neither_check_nor_characters(
    word_files: AllenNlpFiles, tmp_path: Path
) -> None:
    allennlp_to_folder(word_files, tmp_path / "there")
    text = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    assert "Not checked against the source; `elmo-hf convert --check` does so." in text
    assert "| token encoder | word embedding, 32 words |" in text.splitlines()
    assert "Long words" not in text


def test_the_card_of_a_language_model_runs_and_counts_its_words(tmp_path: Path) -> None:
    allennlp_to_folder(tiny_files(), tmp_path / "lm")
    text = (tmp_path / "lm" / "README.md").read_text(encoding="utf-8")
    shapes = "torch.Size([2, 8, 16])\ntorch.Size([2, 16])\ntorch.Size([2, 8, 28])\ntorch.Size([2, 8, 28])\n"
    assert run_python("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), tmp_path) == shapes
    lines = text.splitlines()
    assert "| softmax | 28 words |" in lines
    assert f"| parameters | {sum(array.size for array in arrays_of(tiny_files()).values()):,} |" in lines
    for name in ("options.json", "model.ckpt-1.index", "model.ckpt-1.data-00000-of-00001"):
        assert f"| `{name}` | `{hashlib.sha256((TINY_LM / name).read_bytes()).hexdigest()}` |" in lines


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_existing_destination_is_left_as_it_is(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    destination = tmp_path / "DEST"
    precious = destination / "precious.txt" if kind == "folder" else destination
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="DEST"):
        convert_source(tmp_path / "nowhere", destination, Given())
    with pytest.raises(FileExistsError, match="DEST"):
        folder_to_allennlp(tiny_folder, destination)
    assert precious.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.rglob("*")) == sorted({destination, precious})


def test_a_destination_may_be_empty_new_or_a_link(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")
    for name in ("empty", "a/b/new", "link"):
        allennlp_to_folder(BASE, tmp_path / name)
        assert {path.name for path in (tmp_path / name).iterdir()} == {path.name for path in tiny_folder.iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty", "link", "place"]
