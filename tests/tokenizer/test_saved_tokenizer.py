"""Saving and loading a tokenizer: its files, and the arguments that it takes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_lm import words_path

from elmo_hf import ElmoTokenizer


@pytest.fixture
def folder(tokenizer: ElmoTokenizer, tmp_path: Path) -> Path:
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["a folder", "org/nothing"])
def test_a_tokenizer_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    name = str(tmp_path) if name == "a folder" else name
    with pytest.raises(OSError, match=f"there is no tokenizer in {name}"):
        ElmoTokenizer.from_pretrained(name)


def test_arguments_of_other_tokenizers_are_taken_or_refused_as_theirs(folder: Path) -> None:
    for make in (ElmoTokenizer, lambda **kwargs: ElmoTokenizer.from_pretrained(folder, **kwargs)):
        assert make(do_lower_case=False).tokenize("The cat") == ["The", "cat"]
        with pytest.raises(ValueError, match="do_lower_case"):
            make(do_lower_case=True)
        with pytest.raises(AttributeError, match="add_special_tokens"):
            make(add_special_tokens=False)


def test_several_chat_templates_in_the_config_can_be_loaded(folder: Path) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = {"default": "{{'a'}}", "other": "{{'b'}}"}
    tokenizer.save_pretrained(folder, save_jinja_files=False)
    assert ElmoTokenizer.from_pretrained(folder).chat_template == tokenizer.chat_template


def test_init_kwargs_name_every_argument_and_folders_no_path(tmp_path: Path) -> None:
    path = words_path(tmp_path)
    tokenizer = ElmoTokenizer(words_file=path)
    assert tokenizer.init_kwargs["words_file"] == path
    tokenizer.save_pretrained(tmp_path / "saved")
    assert "words_file" not in json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [(["a", None], None), ([None], None), (["a", "b"], ["c", None]), ([("a", "b"), ("c", None)], None)],
)
def test_a_text_that_is_none_is_refused(texts: Any, pairs: Any, tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match=r"^a text must be .* found None\."):
        tokenizer(texts, pairs)


def test_a_prefix_is_that_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    ElmoTokenizer(words_file=str(tmp_path / "words.txt")).save_pretrained(tmp_path / "out", filename_prefix="my")
    assert (tmp_path / "out" / "my-words.txt").is_file()
    assert not (tmp_path / "out" / "words.txt").exists()
