"""Folders with weights in bfloat16 or in eight bits."""

import re
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import BASE
from commands import assert_fails, run
from safetensors.torch import load_file

from elmo_hf import ElmoModel, tiny_model
from elmo_hf.disk.checksums import sha256_of_model
from elmo_hf.folder.loading import load_complete
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.share.model_info import look_at


def converted(path: Path, dtype: str, *options: str) -> Path:
    result = run("convert", BASE, path / dtype, "--dtype", dtype, *options)
    assert result.exit_code == 0, result.output
    return path / dtype


def test_bfloat16_rounds_every_weight(tmp_path: Path) -> None:
    whole = load_file(converted(tmp_path, "float32") / "model.safetensors")
    half = load_file(converted(tmp_path, "bfloat16") / "model.safetensors")
    assert half.keys() == whole.keys()
    for name, tensor in half.items():
        assert torch.equal(tensor, whole[name].bfloat16()), name
    assert ElmoModel.from_pretrained(tmp_path / "bfloat16").dtype == torch.bfloat16


def test_bfloat16_keeps_a_softmax(tmp_path: Path) -> None:
    assert run("convert", "tiny", tmp_path / "files", "--to", "allennlp").exit_code == 0
    assert run("convert", tmp_path / "files", tmp_path / "lm", "--dtype", "bfloat16").exit_code == 0
    expected, saved = tiny_model(ElmoForPreTraining).state_dict(), {}
    for file in (tmp_path / "lm").glob("*.safetensors"):
        saved |= load_file(file)
    assert {name for name in expected if "scalar_mixes" not in name} == {n for n in saved if "scalar_mixes" not in n}
    for name, tensor in saved.items():
        assert torch.equal(tensor, expected[name].bfloat16()), name


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
    last = (folder / "README.md").read_text(encoding="utf-8").splitlines()[-1]
    assert last == "- **Format.** Weights of linears are in eight bits: loading needs `pip install torchao`."


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
    model = load_complete(folder)
    before = sha256_of_model("", model.state_dict().values())
    model.bilm.layers[1].backward_lstm.projection.weight.qdata[3, 1] += 1
    assert sha256_of_model("", model.state_dict().values()) != before


def test_int8_is_refused_with_a_softmax_and_without_torchao(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Error: `--dtype int8` is for a biLM, and this checkpoint has a softmax. Convert it without `--dtype`"
    assert run("convert", "tiny", tmp_path / "files", "--to", "allennlp").exit_code == 0
    assert_fails(run("convert", tmp_path / "files", tmp_path / "lm", "--dtype", "int8"), 1, said)
    monkeypatch.setitem(sys.modules, "torchao", None)
    said = "Error: this needs torchao, not installed here: pip install torchao"
    assert_fails(run("convert", BASE, tmp_path / "bilm", "--dtype", "int8"), 1, said)
    assert [path.name for path in tmp_path.iterdir()] == ["files"]


def test_the_way_back_takes_no_dtype(tmp_path: Path) -> None:
    said = "--to allennlp takes SOURCE and DEST and no other option."
    assert_fails(run("convert", "tiny", tmp_path / "x", "--to", "allennlp", "--dtype", "int8"), 2, said)
