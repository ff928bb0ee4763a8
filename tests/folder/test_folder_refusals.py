"""What the one door to model folders refuses, and what it lets through."""

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME

import elmo_hf
from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import load_complete, load_shared, load_tokenizer, version_of
from elmo_hf.folder.saved_tokenizer import read_tokenizer
from elmo_hf.folder.weight_files import has_weights, read_headers, weight_names
from tests.helpers.archives import write_files
from tests.helpers.commands import run
from tests.helpers.hostile_folders import HOSTILE_FOLDERS, NO_ERROR, WEIGHT, fields, saved, weights


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "it", saved())


@pytest.mark.parametrize("name", HOSTILE_FOLDERS)
def test_a_folder_is_refused_by_name(name: str, folder: Path) -> None:
    change, word = HOSTILE_FOLDERS[name]
    change(folder)
    with nullcontext() if word == NO_ERROR else pytest.raises(ValueError) as error:  # noqa: PT011
        load_tokenizer(folder)
        load_complete(folder, ElmoForTokenClassification if "CRF" in name else ElmoForPreTraining)
    if error is None:
        return
    message = str(error.value)
    assert message.startswith(str(folder))
    assert word in message
    assert "\n" not in message


@pytest.mark.parametrize("change", ["a number", "no metadata"])
def test_every_reader_of_an_index_names_it_if_it_is_damaged(change: str, tmp_path: Path) -> None:
    index: dict[str, object] = {"metadata": {}, "weight_map": {"a": 5}}
    if change == "no metadata":
        index = {"metadata": None, "weight_map": {"a": "a.safetensors"}}
    (tmp_path / SAFE_WEIGHTS_INDEX_NAME).write_text(json.dumps(index), encoding="utf-8")
    for read in (has_weights, weight_names, read_headers):
        with pytest.raises(ValueError, match=f"^{tmp_path / SAFE_WEIGHTS_INDEX_NAME} is damaged: `metadata` must"):
            read(tmp_path)


@pytest.mark.parametrize("part", ["config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("what", ["embed", "score", "info", "export", "feature-extraction", "fill-mask"])
def test_every_way_into_a_folder_is_by_the_door(what: str, part: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Yes .\n", encoding="utf-8")
    fields(part, max_word_length=10**6)(folder)
    further = {
        "embed": [tmp_path / "in.txt", "-o", tmp_path / "out.npz"],
        "score": [tmp_path / "in.txt"],
        "info": [],
        "export": [tmp_path / "out.onnx"],
    }
    if what not in further:
        with pytest.raises(ValueError, match=f"{part}.*max_word_length"):
            elmo_hf.pipeline(what, folder)
    elif part == "config.json" or what != "export":  # which needs no tokenizer
        result = run(what, folder, *further[what])
        assert result.exit_code == 1
        assert f"{part}: `max_word_length`" in result.stderr


def test_an_argument_of_the_caller_is_not_taken_for_a_fault_of_the_tokenizers_file(folder: Path) -> None:
    length = ElmoConfig.from_pretrained(folder).max_word_length
    assert read_tokenizer(folder, max_word_length=length + 1).max_word_length == length + 1
    fields("tokenizer_config.json", max_word_length=length + 1)(folder)
    with pytest.raises(ValueError, match=f"tokenizer_config.json must have the .*, {length}, found {length + 1}; "):
        read_tokenizer(folder)


def test_only_the_vocabulary_of_a_tokenizer_json_is_read(word_tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    word_tokenizer.save_pretrained(tmp_path)
    fields("tokenizer.json", pre_tokenizer={"type": "Bomb"}, normalizer=3, truncation={"max_length": 1})(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_vocab() == word_tokenizer.get_vocab()
    assert loaded("the cat saß")["input_ids"] == word_tokenizer("the cat saß")["input_ids"]


def test_names_that_no_elmo_reads_are_kept(folder: Path) -> None:
    fields("config.json", corpus="news", attn_implementation="org/kernels")(folder)
    assert load_complete(folder).config.corpus == "news"
    fields("tokenizer_config.json", chat_style="x")(folder)
    assert load_tokenizer(folder).init_kwargs["chat_style"] == "x"


def test_the_parts_of_other_classes_may_be_left_out(tiny_model: ElmoModel, tmp_path: Path) -> None:
    tiny_model.config.use_crf = True
    ElmoForTokenClassification(tiny_model.config).save_pretrained(tmp_path)
    assert load_complete(tmp_path, num_output_representations=1) is not None
    with pytest.raises(ValueError, match="softmax"):
        load_complete(tmp_path, ElmoForPreTraining, num_softmax_words=5)
    fields("config.json", use_crf=False)(tmp_path)  # a part that the config switched off
    with pytest.raises(ValueError, match=r"`crf.end`, `crf.start`, `crf.transitions`"):
        load_complete(tmp_path, ElmoForTokenClassification)
    fields("config.json", architectures=["MyTagger"])(tmp_path)  # a user's own class
    weights(lambda each: each.update({"scorer.weight": torch.zeros(1)}))(tmp_path)
    assert load_complete(tmp_path) is not None


def test_a_folder_that_was_written_again_is_another_model(folder: Path) -> None:
    first, _ = load_shared(folder)
    assert load_shared(folder)[0] is first
    weights(lambda each: each[WEIGHT].add_(1))(folder)
    name = WEIGHT.removeprefix("elmo.")
    second, _ = load_shared(folder)
    torch.testing.assert_close(second.state_dict()[name], first.state_dict()[name] + 1)


def test_a_mix_that_is_missing_starts_from_equal_weights(folder: Path) -> None:
    weights(lambda each: [each.pop(f"elmo.scalar_mixes.0.{part}") for part in ("logits", "scale")])(folder)
    assert load_complete(folder).scalar_mixes[0].weights.tolist() == pytest.approx([1 / 3] * 3)


def test_a_folder_is_seen_to_be_written_again_where_its_times_of_change_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("first")
    before = version_of(tmp_path)
    assert version_of(tmp_path) == before
    time.sleep(0.02)  # longer than a tick of a file system's clock
    path.write_text("other")
    os.utime(path, ns=(0, before[0][2]))
    assert version_of(tmp_path) != before
