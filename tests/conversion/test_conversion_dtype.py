"""Folders with weights in bfloat16 or in eight bits."""

import re
from pathlib import Path

import pytest
import torch
from checkpoints import BASE
from commands import assert_fails, run
from safetensors.torch import load_file

from elmo_hf import ElmoModel, tiny_model, tiny_tokenizer
from elmo_hf.disk.checksums import sha256_of_model
from elmo_hf.folder.loading import load_complete
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.share.model_info import look_at


def converted(path: Path, dtype: str, *options: str) -> Path:
    result = run("convert", BASE, path / dtype, "--dtype", dtype, *options)
    assert result.exit_code == 0, result.output
    return path / dtype


def test_bfloat16_rounds_every_weight_and_keeps_a_softmax(tmp_path: Path) -> None:
    assert run("convert", "tiny", tmp_path / "files", "--to", "allennlp").exit_code == 0
    assert run("convert", tmp_path / "files", tmp_path / "lm", "--dtype", "bfloat16").exit_code == 0
    whole = load_file(converted(tmp_path, "float32") / "model.safetensors")
    language_model = tiny_model(ElmoForPreTraining).state_dict()
    expected = {name: tensor for name, tensor in language_model.items() if "scalar_mixes" not in name}
    for folder, tensors in ((converted(tmp_path, "bfloat16"), whole), (tmp_path / "lm", expected)):
        saved = {name: each for file in folder.glob("*.safetensors") for name, each in load_file(file).items()}
        assert saved.keys() == tensors.keys()
        assert all(torch.equal(tensor, tensors[name].bfloat16()) for name, tensor in saved.items())
    assert ElmoModel.from_pretrained(tmp_path / "bfloat16").dtype == torch.bfloat16


def test_int8_has_a_scale_a_row_and_is_what_quantised_loading_gives(tmp_path: Path) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    from transformers import TorchAoConfig

    options = {"quantization_config": TorchAoConfig(torchao.Int8WeightOnlyConfig())}
    expected = load_complete(converted(tmp_path, "float32"), **options)
    folder = converted(tmp_path, "int8", "--check")
    model = load_complete(folder)
    weight = model.bilm.layers[1].backward_lstm.recurrent_linear.weight
    assert (weight.qdata.dtype, tuple(weight.scale.shape)) == (torch.int8, (len(weight), 1))
    ids = torch.randint(1, 200, (2, 5, 50))
    with torch.no_grad():
        assert torch.equal(model(ids).last_hidden_state, expected(ids).last_hidden_state)
    assert look_at(folder).num_parameters == expected.num_parameters()
    assert not [path for path in folder.iterdir() if path.is_dir()]
    assert "pip install torchao" in (folder / "README.md").read_text(encoding="utf-8").splitlines()[-1]
    before = sha256_of_model("", model.state_dict().values())
    model.bilm.layers[1].backward_lstm.projection.weight.qdata[3, 1] += 1
    assert sha256_of_model("", model.state_dict().values()) != before


def test_int8_folders_are_embedded_and_neither_exported_nor_converted_nor_adapted(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    folder, text = converted(tmp_path, "int8"), tmp_path / "text.txt"
    text.write_text("The ferry left .\n", encoding="utf-8")
    result = run("embed", folder, text, "-o", tmp_path / "vectors.hdf5")
    assert result.exit_code == 0, result.output
    said = f"Error: the weights of {folder} are quantised; {{}} the float32 folder instead."
    assert_fails(run("export", folder, tmp_path / "model.pt2"), 1, said.format("export"))
    assert_fails(run("convert", folder, tmp_path / "files", "--to", "allennlp"), 1, said.format("convert"))
    words = tmp_path / "words.txt"
    words.write_text("<S>\n</S>\n<UNK>\nThe\n", encoding="utf-8")
    adapt = ("pretrain", text, "-o", tmp_path / "lm", "--model", folder, "--vocabulary", words)
    assert_fails(run(*adapt), 1, said.format("adapt"))
    assert re.search(r"^can +embed$", run("info", folder).output, re.MULTILINE)
    assert not [path for path in tmp_path.iterdir() if path.name in ("model.pt2", "files", "lm")]


def test_int8_keeps_a_softmax_in_float32(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    assert run("convert", "tiny", tmp_path / "files", "--to", "allennlp").exit_code == 0
    assert run("convert", tmp_path / "files", tmp_path / "lm", "--dtype", "int8").exit_code == 0
    model, whole = load_complete(tmp_path / "lm", ElmoForPreTraining), tiny_model(ElmoForPreTraining)
    assert torch.equal(model.softmax.weight, whole.softmax.weight)
    assert hasattr(model.elmo.bilm.layers[0].forward_lstm.projection.weight, "qdata")
    sentences = [["The", "ferry", "left", "."]]
    found, expected = (each.score(sentences, tiny_tokenizer()).forward for each in (model, whole))
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0, atol=0.1)
