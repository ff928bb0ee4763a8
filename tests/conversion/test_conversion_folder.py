"""A converted folder: its files, its weights, its card."""

import hashlib
import re
from pathlib import Path

import numpy as np
from checkpoints import (
    BASE,
    CELL,
    TINY_LM,
    base_checkpoint,
    difference_of,
    run_python,
)
from huggingface_hub import ModelCard
from safetensors.numpy import load_file

from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder
from elmo_hf.conversion.witness.reference import ReferenceElmo


def test_folder_has_no_scalar_mix_that_the_checkpoint_lacks(tiny_folder: Path) -> None:
    names = load_file(tiny_folder / "model.safetensors").keys()
    assert {name.split(".")[0] for name in names} == {"token_encoder", "bilm"}


def test_weights_are_the_checkpoints_own_in_the_places_of_torch(tiny_folder: Path) -> None:
    tensors, (_, arrays) = load_file(tiny_folder / "model.safetensors"), base_checkpoint()
    kernel, bias = arrays[f"{CELL}/W_0"], arrays[f"{CELL}/B"]
    lstm = "bilm.layers.0.forward_lstm"
    for ours, theirs in enumerate((0, 2, 1, 3)):
        rows, columns = slice(32 * ours, 32 * (ours + 1)), slice(32 * theirs, 32 * (theirs + 1))
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.weight"][rows], kernel[:8, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.recurrent_linear.weight"][rows], kernel[8:, columns].T)
        np.testing.assert_array_equal(tensors[f"{lstm}.input_linear.bias"][rows], bias[columns])
    table = tensors["token_encoder.embedding.weight"]
    np.testing.assert_array_equal(table, np.concatenate([np.zeros((1, 4), np.float32), arrays["char_embed"]]))
    np.testing.assert_array_equal(
        tensors["token_encoder.convolutions.3.weight"], arrays["CNN/W_cnn_3"][0].transpose(2, 1, 0)
    )
    np.testing.assert_array_equal(tensors["token_encoder.highways.1.gate.weight"], arrays["CNN_high_1/W_carry"].T)
    np.testing.assert_array_equal(
        tensors["bilm.layers.1.backward_lstm.projection.weight"],
        arrays["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_P_0"].T,
    )


def test_card_says_what_the_hub_reads(tiny_folder: Path) -> None:
    card = ModelCard((tiny_folder / "README.md").read_text(encoding="utf-8"))
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "bilm", "word-embeddings"],
    }
    assert card.text.lstrip().startswith("# tiny\n")


def test_card_says_where_the_weights_come_from(tiny_folder: Path) -> None:
    text = (tiny_folder / "README.md").read_text(encoding="utf-8")
    for name in ("options.json", "weights.hdf5"):
        digest = hashlib.sha256((BASE / name).read_bytes()).hexdigest()
        assert f"| `{name}` | `{digest}` |" in text.splitlines()
    difference = difference_of(tiny_folder, ReferenceElmo(*base_checkpoint()))
    assert f"NumPy biLM in float64\non the source's arrays was {difference:.1e}." in text
    assert "Not checked" not in text


def test_card_describes_the_architecture(tiny_folder: Path) -> None:
    lines = (tiny_folder / "README.md").read_text(encoding="utf-8").splitlines()
    _, arrays = base_checkpoint()
    assert f"| parameters | {sum(array.size for array in arrays.values()):,} |" in lines
    assert "| token encoder | 4-d characters, filters 1:4, 2:8, 3:12, 4:8 (relu), 2 highway layers |" in lines
    assert "| biLM | 2 layers, with skip connections |" in lines
    assert "| cell, projection | 32, 8 |" in lines
    assert "| cell clip, projection clip | 3.0, 3.0 |" in lines
    assert "- **Long words.** A word is cut after 48 bytes of UTF-8." in lines


def test_card_of_an_unchecked_word_model_claims_neither_check_nor_characters(
    word_files: AllenNlpFiles, tmp_path: Path
) -> None:
    allennlp_to_folder(word_files, tmp_path / "there", source_name="words")
    text = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    assert "Not checked against the source; `elmo-hf convert --check` does so." in text
    assert "| token encoder | word embedding, 32 words |" in text.splitlines()
    assert "| biLM | 2 layers, with skip connections |" in text.splitlines()
    assert "Long words" not in text


def test_the_cards_snippet_runs_beside_the_folder(tiny_folder: Path) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (tiny_folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert run_python(snippet, tiny_folder.parent) == "torch.Size([2, 8, 16])\ntorch.Size([2, 16])\n"


def test_the_card_of_a_language_model_runs_and_counts_its_words(tmp_path: Path) -> None:
    files = AllenNlpFiles(TINY_LM / "options.json", TINY_LM / "model.ckpt-1.index", TINY_LM / "vocab.txt")
    allennlp_to_folder(files, tmp_path / "lm", source_name="tiny")
    text = (tmp_path / "lm" / "README.md").read_text(encoding="utf-8")
    shapes = "torch.Size([2, 8, 16])\ntorch.Size([2, 16])\ntorch.Size([2, 8, 28])\ntorch.Size([2, 8, 28])\n"
    assert run_python("".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), tmp_path) == shapes
    lines = text.splitlines()
    assert "| softmax | 28 words |" in lines
    assert f"| parameters | {sum(array.size for array in files.read()[1].values()):,} |" in lines
    for path in files.paths:
        assert f"| `{path.name}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" in lines


def test_the_card_of_a_bilm_does_not_speak_of_language_models(tiny_folder: Path) -> None:
    text = (tiny_folder / "README.md").read_text(encoding="utf-8")
    assert "language models" not in text
    assert "| softmax |" not in text
