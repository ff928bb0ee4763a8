"""Weights from a folder of anyone's: safetensors files of that folder only, which agree with its config."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel
from elmo_hf.loading import load_complete
from elmo_hf.model import weight_files

INDEX = "model.safetensors.index.json"
BIAS = "bilm.layers.0.forward_lstm.gates.bias"


@pytest.fixture
def folder(tiny_model: ElmoModel, tmp_path: Path) -> Path:
    tiny_model.save_pretrained(tmp_path / "model", max_shard_size="4KB")
    return tmp_path / "model"


@pytest.fixture
def whole(tiny_model: ElmoModel, tmp_path: Path) -> Path:
    tiny_model.save_pretrained(tmp_path / "whole")
    return tmp_path / "whole"


def refuse(folder: Path, message: str, **kwargs: Any) -> None:
    """By both ways to load; only one kind of error leaves `load_complete`."""
    with pytest.raises((ValueError, OSError), match=message):
        ElmoModel.from_pretrained(folder, **kwargs)
    with pytest.raises(ValueError, match=f"cannot be loaded as an ELMo model: {message}"):
        load_complete(folder, **kwargs)


@pytest.mark.parametrize("max_shard_size", ["4KB", "1MB"])
def test_a_variant_is_loaded_again(max_shard_size: str, tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path, variant="fp16", max_shard_size=max_shard_size)
    assert not (tmp_path / "model.safetensors").exists()
    loaded = ElmoModel.from_pretrained(tmp_path, variant="fp16")
    for name, weight in tiny_model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight), name


def rename_in_index(folder: Path, name: Any) -> None:
    path = folder / INDEX
    index = json.loads(path.read_text(encoding="utf-8"))
    weight = next(iter(index["weight_map"]))
    index["weight_map"][weight] = name
    path.write_text(json.dumps(index), encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/tmp/x.safetensors", "C:x.safetensors", "a\\x.safetensors", "x.bin", "x.safetensors.bin"]
    + ["pytorch_model.bin", "", 3, None, [], ".safetensors/"],
)
def test_an_index_names_safetensors_files_of_its_own_folder_only(name: Any, folder: Path) -> None:
    (folder.parent / "x.safetensors").write_bytes((folder / "model-00001-of-00005.safetensors").read_bytes())
    rename_in_index(folder, name)
    where = re.escape(
        f"{folder}/{INDEX}: `weight_map` must name .safetensors files of the same folder, found {name!r} for "
    )
    refuse(folder, where)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight_map": {"x": "x.safetensors"}}, "must hold the objects `metadata` and `weight_map`"),
        ({"metadata": {}, "weight_map": {}}, "must hold the objects `metadata` and `weight_map`"),
        ({"metadata": {}, "weight_map": []}, "must hold the objects `metadata` and `weight_map`"),
        (
            {"metadata": {"dtype": "load"}, "weight_map": {"x": "x.safetensors"}},
            "`dtype` must be one of float16, .*'load'",
        ),
    ],
    ids=["no metadata", "no names", "a list", "dtype"],
)
def test_a_damaged_index_is_named(content: dict[str, Any], message: str, folder: Path) -> None:
    (folder / INDEX).write_text(json.dumps(content), encoding="utf-8")
    refuse(folder, f"{folder}/{INDEX}:? {message}")


def test_a_pickle_is_refused_by_name_and_never_read(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: pytest.fail("read"))
    (whole / "model.safetensors").rename(whole / "pytorch_model.bin")
    advice = re.escape("if you trust a pytorch_model.bin, convert it by `safetensors.torch.save_file(torch.load(")
    refuse(whole, f"{whole} has no model.safetensors and no {INDEX}. Other formats are not read, .* {advice}")
    with pytest.raises(ValueError, match=r"pytorch_model.bin is no .safetensors file; other formats are not read"):
        ElmoModel.from_pretrained(whole / "pytorch_model.bin", config=ElmoConfig.from_pretrained(whole))
    with pytest.raises(ValueError, match=r"`use_safetensors` must be True: other formats are not read"):
        ElmoModel.from_pretrained(whole, use_safetensors=False)


def test_the_parts_of_a_distributed_checkpoint_are_not_read(whole: Path) -> None:
    (whole / "shard-00001-model-00001-of-00001.safetensors").write_bytes(b"")
    refuse(whole, f"{whole}/? holds shard-00001-.*, a part of a distributed checkpoint; such parts are not read")


def test_a_shard_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "model-00002-of-00005.safetensors").unlink()
    refuse(folder, ".*model-00002-of-00005.safetensors")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: b"", "is damaged: "),
        (lambda content: content[:300], "is damaged: "),
        (lambda content: content[:-1], "is damaged: "),
        (
            lambda content: (2**40).to_bytes(8, "little") + content[8:],
            "is damaged: a header of 1,099,511,627,776 bytes",
        ),
        (
            lambda content: content.replace(b'"F32"', b'"I32"', 1),
            "`.*` must have a type of F64, F32, F16, BF16, found I32",
        ),
    ],
    ids=["empty", "cut header", "cut", "large header", "integers"],
)
def test_a_damaged_file_is_named(damage: Callable[[bytes], bytes], message: str, whole: Path) -> None:
    path = whole / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refuse(whole, f"{path}:? {message}")


def test_a_weight_of_another_shape_is_named(whole: Path) -> None:
    path = whole / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("embedding.weight"))
    save_file(weights | {name: torch.zeros(3, 2)}, path, metadata={"format": "pt"})
    shapes = "must have the shape (262, 5) of config.json, found (3, 2)"
    refuse(whole, re.escape(f"{path}: `{name}` {shapes}; `ignore_mismatched_sizes=True` makes a new one."))
    with pytest.raises(RuntimeError):  # as from every other model of transformers
        ElmoModel.from_pretrained(whole)
    assert ElmoModel.from_pretrained(whole, ignore_mismatched_sizes=True) is not None


def test_a_weight_in_two_files_is_named(folder: Path) -> None:
    shards = sorted(folder.glob("*.safetensors"))
    first, second = load_file(shards[0]), load_file(shards[1])
    name = next(iter(first))
    save_file(second | {name: first[name]}, shards[1], metadata={"format": "pt"})
    refuse(folder, f"{shards[1]} holds `{name}`, which {shards[0]} holds too")


def test_a_config_that_describes_far_more_than_the_files_hold_is_refused_before_memory_is_taken(whole: Path) -> None:
    path = whole / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"num_softmax_words": 10**8}
    path.write_text(json.dumps(config), encoding="utf-8")
    message = (
        r"the weights that config.json describes are not in the files: of 3,200,000,000 bytes, where at most "
        r"536,870,912 may be new, there is no \['softmax.bias', 'softmax.weight'\]"
    )
    with pytest.raises(ValueError, match=message):
        ElmoForPreTraining.from_pretrained(whole)


def test_a_new_classifier_is_no_more_than_what_may_be_new(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = ElmoForTokenClassification.from_pretrained(whole, num_labels=3).classifier
    num_bytes = 4 * sum(parameter.numel() for parameter in classifier.parameters())
    monkeypatch.setattr(weight_files, "MOST_NEW_BYTES", num_bytes)
    assert ElmoForTokenClassification.from_pretrained(whole, num_labels=3) is not None
    with pytest.raises(ValueError, match=r"there is no \['classifier.bias', 'classifier.weight'\]"):
        ElmoForTokenClassification.from_pretrained(whole, num_labels=4)


def rename_weight(folder: Path, old: str, new: str) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[new] = weights.pop(old)
    save_file(weights, path, metadata={"format": "pt"})


def test_half_a_scalar_mix_is_damage_and_not_a_mix_that_starts_anew(whole: Path) -> None:
    rename_weight(whole, "scalar_mixes.0.logits", "scalar_mixes.0.logitz")
    refuse(whole, "the files hold scalar_mixes.0.scale without `logits` of the same mix")


def test_a_weight_that_no_elmo_has_is_refused_by_commands(tiny_model: ElmoModel, tmp_path: Path) -> None:
    ElmoForTokenClassification(tiny_model.config).save_pretrained(tmp_path)
    assert load_complete(tmp_path) is not None  # a classifier is not part of the biLM
    assert load_complete(tmp_path, num_output_representations=1) is not None
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"elmp.x": torch.zeros(1)}, path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"holds `elmp\.x`, which the model of its config.json does not have"):
        load_complete(tmp_path)


def test_a_part_that_the_config_switched_off_is_refused(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.config.use_crf = True
    ElmoForTokenClassification(tiny_model.config).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"use_crf": False}
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"holds `crf.end`, `crf.start`, `crf.transitions`, which the model of its config"
    ):
        load_complete(tmp_path, ElmoForTokenClassification)


def test_the_parts_of_a_users_own_class_are_not_refused(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.save_pretrained(tmp_path)
    rename = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) | {"architectures": ["MyTagger"]}
    (tmp_path / "config.json").write_text(json.dumps(rename), encoding="utf-8")
    path = tmp_path / "model.safetensors"
    save_file(load_file(path) | {"scorer.weight": torch.zeros(1)}, path, metadata={"format": "pt"})
    assert load_complete(tmp_path) is not None


@pytest.mark.parametrize("saved", [{}, {"quant_method": "torchao"}, {"quant_method": "torchao", "quant_type": 3}])
def test_a_quantisation_that_cannot_be_used_is_named(saved: dict[str, Any], whole: Path) -> None:
    path = whole / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"quantization_config": saved}
    path.write_text(json.dumps(config), encoding="utf-8")
    refuse(whole, f"(config.json of {whole}: `quantization_config` cannot be used here: |.*quant)")
