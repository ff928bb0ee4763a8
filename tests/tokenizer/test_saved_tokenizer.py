"""The files of a saved tokenizer, damaged or from anyone: one kind of error, which names the file and the field."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tiny_lm import words_path
from transformers import AutoTokenizer

from elmo_hf import ElmoTokenizer
from elmo_hf.tokenizer import saved_tokenizer, word_codec


@pytest.fixture
def folder(tokenizer: ElmoTokenizer, tmp_path: Path) -> Path:
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def word_folder(word_tokenizer: ElmoTokenizer, tmp_path: Path) -> Path:
    word_tokenizer.save_pretrained(tmp_path / "words")
    return tmp_path / "words"


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(saved_tokenizer.logger, "warning", messages.append)
    return messages


def change(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(content | fields), encoding="utf-8")


def refuse(folder: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElmoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("exists", [False, True], ids=["nowhere", "empty folder"])
def test_a_tokenizer_that_is_not_there_is_an_error_as_with_auto_tokenizer(exists: bool, tmp_path: Path) -> None:
    name = str(tmp_path / "it")
    if exists:
        (tmp_path / "it").mkdir()
    message = re.escape(
        f"Can't load tokenizer for '{name}'. If you were trying to load it from 'https://huggingface.co"
    )
    with pytest.raises(OSError, match=f"^{message}" if exists else name):
        ElmoTokenizer.from_pretrained(name)
    with pytest.raises((OSError, ValueError)):
        AutoTokenizer.from_pretrained(name)


def test_a_name_that_is_nowhere_on_the_hub_is_an_error() -> None:
    with pytest.raises(OSError, match=r"^Can't load tokenizer for 'org/nothing'\. If you were trying to load it from"):
        ElmoTokenizer.from_pretrained("org/nothing")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_word_length": 10**6}, "`max_word_length` must be a whole number from 3 to 4096, found 1000000."),
        ({"model_max_length": "x"}, "`model_max_length` must be a whole number, found 'x'."),
        ({"bos_token": ["<S>"]}, "`bos_token` must be a token, found ['<S>']."),
        ({"sep_token": {"content": 3}}, "`sep_token` must be a token, found {'content': 3}."),
        ({"extra_special_tokens": [3]}, "`extra_special_tokens` must be tokens, found [3]."),
        (
            {"added_tokens_decoder": {"x": {"content": "y"}}},
            "`added_tokens_decoder` must be an object of tokens by id,",
        ),
        ({"do_lower_case": True}, "`do_lower_case` must be false, found True."),
        ({"chat_template": [{"name": 3}]}, "`chat_template` must be text, or a list of named texts, found [{'name'"),
        ({"words_file": "/etc/passwd"}, "`words_file` must be left out, found '/etc/passwd'."),
        ({"fast_tokenizer_files": ["x"]}, "`fast_tokenizer_files` must be left out, found ['x']."),
        ({"self": 1}, "`self` must be left out, found 1."),
        ({"init_inputs": ["char_cnn"]}, "`init_inputs` must be empty, found ['char_cnn']."),
        ({"word_splitter": 3}, "`word_splitter` must be text, found 3."),
        ({"model_input_names": "x"}, "`model_input_names` must be a list of names, found 'x'."),
        ({"auto_map": "x"}, "`auto_map` must be an object or a list, found 'x'."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_damaged_field_is_named_with_its_file(fields: dict[str, Any], message: str, folder: Path) -> None:
    change(folder / "tokenizer_config.json", **fields)
    refuse(folder, f"^{re.escape(f'{folder}/tokenizer_config.json: {message}')}")


def test_a_misspelt_field_is_damage(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("word_splitter", "word_splittes"), encoding="utf-8")
    refuse(folder, "^.*tokenizer_config.json: `word_splittes` is probably meant to be `word_splitter`")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer_config.json", "[" * 100_000, "is nested more than 50 deep"),
        ("tokenizer_config.json", "[]", "is damaged: expected one JSON object, found list"),
        ("tokenizer.json", "", "is damaged: Expecting value"),
        ("tokenizer.json", '{"added_tokens": 3}', ": `added_tokens` must be a list of tokens with ids, found 3"),
        (
            "tokenizer.json",
            '{"added_tokens": [{"id": 1}]}',
            ": `added_tokens` must be a list of tokens with ids, found",
        ),
        ("tokenizer.json", '{"added_tokens": [], "model": 3}', ": `model` must hold an object `vocab` of ids by name,"),
        ("special_tokens_map.json", '{"bos_token": 3}', ": `bos_token` must be tokens, found 3"),
        ("special_tokens_map.json", '{"vocab": "x"}', ": `vocab` must be tokens, found 'x'"),
        ("added_tokens.json", '{"x": -1}', ": `x` must be an id from 0 to 100000000, found -1"),
    ],
)
def test_a_damaged_file_is_named(name: str, content: str, message: str, folder: Path) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    refuse(folder, f"^{re.escape(f'{folder}/{name}')}:? ?{re.escape(message.removeprefix(': '))}")


@pytest.mark.parametrize(
    ("word", "symbol_id", "message"),
    [
        ("the", -1, "`the` must be an id from 0 to 1028, found -1"),
        ("the", 10**8, "`the` must be an id from 0 to 1028, found 100000000"),
        ("the", None, "`the` must be an id from 0 to 1028, found None"),
        ("the", True, "`the` must be an id from 0 to 1028, found True"),
        ("the", 5, "`vocab` gives two names the same id"),
        ("\ud800", 20, "`vocab` has a name that is no text"),
    ],
)
def test_a_damaged_vocabulary_is_named(word: str, symbol_id: Any, message: str, word_folder: Path) -> None:
    path = word_folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"][word] = symbol_id
    path.write_text(json.dumps(content), encoding="utf-8")
    refuse(word_folder, f"^{path}: {message}")


def test_only_the_vocabulary_of_a_tokenizer_json_is_read(word_tokenizer: ElmoTokenizer, word_folder: Path) -> None:
    change(word_folder / "tokenizer.json", pre_tokenizer={"type": "Bomb"}, normalizer=3, truncation={"max_length": 1})
    loaded = ElmoTokenizer.from_pretrained(word_folder)
    assert loaded.get_vocab() == word_tokenizer.get_vocab()
    assert loaded("the cat saß")["input_ids"] == word_tokenizer("the cat saß")["input_ids"]


def test_an_argument_that_does_not_exist_is_refused_with_a_near_one(folder: Path) -> None:
    for make in (ElmoTokenizer, lambda **kwargs: ElmoTokenizer.from_pretrained(folder, **kwargs)):
        with pytest.raises(ValueError, match=r"^`ElmoTokenizer` has no `legacy`\.$"):
            make(legacy=["x"])
        with pytest.raises(ValueError, match=r"the nearest name that exists is `word_splitter`\.$"):
            make(word_spliter="ptb")


def test_arguments_of_other_tokenizers_are_taken_or_refused_as_theirs(folder: Path) -> None:
    for make in (ElmoTokenizer, lambda **kwargs: ElmoTokenizer.from_pretrained(folder, **kwargs)):
        assert make(do_lower_case=False).tokenize("The cat") == ["The", "cat"]
        with pytest.raises(ValueError, match=r"^`do_lower_case=True` is not supported: an ELMo reads case; lower the"):
            make(do_lower_case=True)
        with pytest.raises(
            AttributeError, match=r"^`add_special_tokens` conflicts with the method of that name: .* go to the call"
        ):
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


def test_fields_of_a_newer_version_in_a_saved_tokenizer_only_warn(folder: Path, warnings: list[str]) -> None:
    ElmoTokenizer.from_pretrained(folder)
    assert warnings == []
    change(folder / "tokenizer_config.json", decode=3, chat_style="x")
    assert ElmoTokenizer.from_pretrained(folder).decode(ElmoTokenizer.from_pretrained(folder)("It")["input_ids"])
    message = "A saved tokenizer has a field that this version ignores: "
    assert set(warnings) == {f"{message}decode.", f"{message}chat_style."}


def test_vocabulary_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "words.txt"
    path.write_text("<S>\n</S>\n<UNK>\n" + "the\n" * 1018, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{path} must hold one word a line, found only 4 words in 1021 lines"):
        ElmoTokenizer(words_file=str(path))
    monkeypatch.setattr(word_codec, "MOST_VOCABULARY_BYTES", 1000)
    with pytest.raises(ValueError, match=f"^{path} must have at most 1,000 bytes, found 4,087"):
        ElmoTokenizer(words_file=str(path))


@pytest.mark.parametrize(
    ("texts", "pairs", "index"),
    [(["a", None], None, 1), ([None], None, 0), (["a", "b"], ["c", None], 1), ([("a", "b"), ("c", None)], None, 1)],
)
def test_a_text_that_is_none_is_named(texts: Any, pairs: Any, index: int, tokenizer: ElmoTokenizer) -> None:
    with pytest.raises(ValueError, match=f"^a text must be a string or a list of words, found None at index {index}"):
        tokenizer(texts, pairs)


def test_a_prefix_is_that_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    ElmoTokenizer(words_file=str(tmp_path / "words.txt")).save_pretrained(tmp_path / "out", filename_prefix="my")
    assert (tmp_path / "out" / "my-words.txt").is_file()
    assert not (tmp_path / "out" / "words.txt").exists()
