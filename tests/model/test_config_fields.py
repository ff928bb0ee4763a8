"""A `config.json` from anywhere: limits, types, names that do not exist, and the file named in every error."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoModel
from elmo_hf.model import configuration_elmo
from elmo_hf.model.config_fields import WHOLE

SMALL: dict[str, Any] = {"projection_size": 4, "cell_size": 5, "char_filters": [[1, 3]]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ElmoModel(ElmoConfig(**SMALL)).save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | fields), encoding="utf-8")


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(configuration_elmo.logger, "warning", messages.append)
    return messages


@pytest.mark.parametrize("name", WHOLE)
def test_every_size_has_a_limit(name: str) -> None:
    most = WHOLE[name][1]
    with pytest.raises(ValueError, match=f"`{name}` must be at most {most}, found {most + 1}"):
        ElmoConfig(**{name: most + 1})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"char_filters": [[1, 1]] * 101}, "`char_filters` must be at most 100 pairs, found [[1, 1], [1, 1]"),
        ({"char_filters": [[1, 16385]]}, "a count of `char_filters` is at most 16384, found 16385."),
        ({"bos_token_id": 10**30}, f"`bos_token_id` must be at most 100000000, found {10**30}."),
        ({"forget_bias": 10**400}, "`forget_bias` must be a finite number, found 1000"),
        ({"num_labels": 10**9}, "`num_labels` must be a whole number from 0 to 100000, found 1000000000."),
        (
            {"id2label": {str(n): "x" for n in range(100_001)}},
            "`id2label` may have at most 100000 labels, found 100001.",
        ),
        ({"id2label": {"1": "x"}}, "`id2label` must name the labels 0, 1, 2 and so on, found [1]."),
        ({"id2label": ["x"]}, "`id2label` must be an object with a name for each whole number, found ['x']."),
        (
            {"id2label": {n: str(n) for n in range(1001)}, "use_crf": True},
            "`id2label` must be at most 1000 names with `use_crf`, found {0: '0',",
        ),
        ({"id2label": {0: 0}}, "`id2label` must be an object with a name for each whole number, found {0: 0}."),
        ({"dtype": "load"}, "`dtype` must be one of float16, bfloat16, float32, float64, found 'load'."),
        ({"problem_type": "x"}, "`problem_type` must be one of regression, single_label_classification, multi_label"),
        ({"architectures": "x"}, "`architectures` must be a list of names, found 'x'."),
        ({"return_dict": 1}, "`return_dict` must be true or false, found 1."),
        ({"auto_map": []}, "`auto_map` must be an object of names, found []."),
        ({"quantization_config": 1}, "`quantization_config` must be an object, found 1."),
        ({"name_or_path": []}, "`name_or_path` must be text, found []."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_transformers_would_not_survive_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        ElmoConfig(**fields)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("foo", ""), ("poling", "`pooling`"), ("num_layers", "`num_hidden_layers`")],
)
def test_a_field_that_does_not_exist_is_refused_with_a_near_one(name: str, nearest: str, folder: Path) -> None:
    hint = f"; the nearest name that exists is {nearest}" if nearest else ""
    for make in (ElmoConfig, lambda **fields: ElmoConfig.from_pretrained(folder, **fields)):
        with pytest.raises(ValueError, match=rf"^`ElmoConfig` has no `{name}`{hint}\.$"):
            make(**{name: False})


def test_transformers_own_fields_stay_legal() -> None:
    config = ElmoConfig(num_labels=3, attn_implementation="eager", use_cache=True, output_attentions=False)
    assert config.num_labels == 3
    assert ElmoConfig(**config.to_dict()).to_dict() == config.to_dict()


def test_fields_of_a_newer_version_in_a_saved_config_only_warn(folder: Path, warnings: list[str]) -> None:
    expected = ElmoConfig.from_pretrained(folder).to_diff_dict()
    assert warnings == []
    change(folder, num_experts=8, to_dict=3, text_config={"a": 1}, attn_implementation="org/kernels")
    assert ElmoConfig.from_pretrained(folder).to_diff_dict() == expected
    assert AutoConfig.from_pretrained(folder).to_diff_dict() == expected
    assert set(warnings) == {"A saved config has fields that this version ignores: num_experts, text_config, to_dict."}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cell_size": "x"}, "`cell_size` must be a whole number of at least 1, found 'x'."),
        ({"num_labels": 10**9}, "`num_labels` must be a whole number from 0 to 100000, found 1000000000."),
        ({"num_labels": None}, "`num_labels` must be a whole number from 0 to 100000, found None."),
        ({"model_type": "bert"}, "`model_type` must be 'elmo', found 'bert'."),
        ({"forget_biaz": 0}, "`forget_biaz` is probably meant to be `forget_bias`."),
        ({"configuration_files": ["config.4.json"]}, "`configuration_files` names other files, which are not read."),
        ({"task_specific_params": [[]]}, "`task_specific_params` must be an object of names, found [[]]."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_error_in_a_saved_config_names_the_file(fields: dict[str, Any], message: str, folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    content.pop("forget_bias")
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    change(folder, **fields)
    with pytest.raises(ValueError, match=f"config.json.*{re.escape(message)}$"):
        ElmoConfig.from_pretrained(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a":' * 100_000, "is nested more than 50 deep"),
        (b'{"a":' * 60 + b"1" + b"}" * 60, "is nested more than 50 deep"),
        (b"[]", "is damaged: expected one JSON object, found list"),
        (b'{"a": 1', "is damaged: Expecting ',' delimiter"),
        (b'{"a": "\xff"}', "is damaged: 'utf-8' codec"),
        (b'{"a": 1}' + b" " * 2**23, "must have at most 8,388,608 bytes, found 8,388,616"),
        (b'{"a": [' + b"[]," * 10**6 + b"1]}", "is damaged: more than 1,000,000 lists and objects"),
    ],
    ids=["nested", "nested and whole", "list", "cut", "not UTF-8", "large", "many"],
)
def test_a_damaged_config_is_named(content: bytes, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=f"^{folder}/config.json {message}"):
        ElmoConfig.from_pretrained(folder)


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_folder_without_fields_is_not_the_original_model(content: str | None, folder: Path) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(OSError, match=r"has no config.json with the fields of a model"):
        ElmoConfig.from_pretrained(folder)


def test_a_field_without_effect_on_the_model_is_refused(folder: Path) -> None:
    message = r"^`pooling` has no effect on ElmoForTokenClassification; it is for ElmoModel, ElmoForSequenceClass\w+\.$"
    with pytest.raises(ValueError, match=message):
        ElmoForTokenClassification.from_pretrained(folder, pooling="max")
    message = "^`pooling` must be 'mean' or 'max' for ElmoModel, found 'attention', which a classifier learns.$"
    with pytest.raises(ValueError, match=message):
        ElmoModel.from_pretrained(folder, pooling="attention")
    with pytest.raises(
        ValueError, match=r"^`use_crf` has no effect on ElmoForSequenceClassification; it is for ElmoForT"
    ):
        ElmoForSequenceClassification.from_pretrained(folder, use_crf=True)
    assert ElmoForSequenceClassification.from_pretrained(folder, pooling="max").config.pooling == "max"
