"""`ElmoTokenizer`: ids back to words, copies, saved folders, vocabularies and settings."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from rows import C, rows
from tiny_lm import words_path
from transformers import AutoTokenizer

from elmo_hf import ElmoTokenizer
from elmo_hf.tokenizer.word_codec import CharacterCodec


def test_special_tokens_have_single_ids(tokenizer: ElmoTokenizer) -> None:
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 257, 258)
    assert sorted(tokenizer.all_special_ids) == [0, 257, 258]
    assert len(tokenizer) == tokenizer.vocab_size == 262
    assert tokenizer.num_special_tokens_to_add() == 2
    assert tokenizer.num_special_tokens_to_add(pair=True) == 4


def test_words_and_ids_convert_both_ways(tokenizer: ElmoTokenizer) -> None:
    words = ["<S>", "naïve", "", "<pad>", "猫", "</S>"]
    ids = tokenizer.convert_tokens_to_ids(words)
    assert ids == [CharacterCodec(C).encode([word])[0].tolist() for word in words]
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.convert_tokens_to_ids("naïve") == ids[1]
    assert tokenizer.convert_ids_to_tokens(ids[1]) == "naïve"
    assert [tokenizer.convert_tokens_to_ids(name) for name in ("<pad>", "<S>", "</S>")] == [0, 257, 258]
    assert [tokenizer.convert_ids_to_tokens(number) for number in (0, 66, 257)] == ["<pad>", "<0x41>", "<S>"]
    assert tokenizer.tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert tokenizer.encode("a b") == rows("<S> a b </S>")


def test_decoding_joins_words_by_blanks(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(["Don't, 猫!", "", "a"], padding=True, return_tensors="pt")["input_ids"]
    texts = ["Do n't , 猫 !", "", "a"]
    assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded[2]) == "<S> a </S> <pad> <pad> <pad> <pad>"
    assert tokenizer.decode(rows("<S> a </S>"), skip_special_tokens=True) == "a"
    assert (tokenizer.decode([]), tokenizer.batch_decode([[], []])) == ("", ["", ""])


def test_the_text_pad_is_a_word_and_no_padding(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer([["a", "<pad>"]], is_split_into_words=True, padding="max_length", max_length=5)
    assert encoded["attention_mask"] == [[1, 1, 1, 1, 0]]
    ids = encoded["input_ids"][0]
    assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == [1, 0, 0, 1, 1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a <pad>"


def test_the_special_tokens_mask_of_ids_is_that_of_the_call(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("a b", padding="max_length", max_length=6, return_special_tokens_mask=True)
    ids = encoded["input_ids"]
    assert encoded["special_tokens_mask"] == [1, 0, 0, 1, 1, 1]
    assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == [1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["deep", "pickle"]
)
def test_a_copy_encodes_the_same(tokenizer: ElmoTokenizer, word_tokenizer: ElmoTokenizer, copied: Any) -> None:
    for original in (tokenizer, word_tokenizer):
        twin = copied(original)
        assert dict(twin(["The cat.", "the"], padding=True)) == dict(original(["The cat.", "the"], padding=True))
        assert copied(original("the cat")).word_ids() == [None, 0, 1, None]


def test_a_saved_tokenizer_loads_with_its_settings(tmp_path: Path) -> None:
    options = {"max_word_length": 13, "word_splitter": "whitespace", "padding_side": "left", "truncation_side": "left"}
    original = ElmoTokenizer(**options)
    original.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["auto_map"] == {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}
    for load in (ElmoTokenizer.from_pretrained, AutoTokenizer.from_pretrained):
        loaded = load(tmp_path)
        assert {name: getattr(loaded, name) for name in options} == options
        texts = ["Don't stop. extraordinarily", "a"]
        assert loaded(texts, padding=True)["input_ids"] == original(texts, padding=True)["input_ids"]
        assert loaded("Don't stop.").tokens() == ["<S>", "Don't", "stop.", "</S>"]
        assert len(loaded) == 262


def test_a_word_embedding_gets_one_id_per_word(word_tokenizer: ElmoTokenizer) -> None:
    encoded = word_tokenizer(["the cat saß", "dog"], padding=True, return_tensors="pt")
    assert encoded["input_ids"].dtype == torch.int64
    assert encoded["input_ids"].tolist() == [[1, 6, 5, 7, 2], [1, 3, 2, 0, 0]]
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert word_tokenizer(["<pad>"], is_split_into_words=True)["input_ids"] == [1, 3, 2]
    assert word_tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True)[0] == "the cat saß"
    assert word_tokenizer.decode([]) == ""
    assert word_tokenizer.convert_tokens_to_ids(["the", "dog"]) == [6, 3]
    assert (word_tokenizer.pad_token_id, word_tokenizer.bos_token_id, word_tokenizer.unk_token_id) == (0, 1, 3)


def test_a_saved_word_tokenizer_loads_without_its_vocabulary_file(
    word_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    word_tokenizer.save_pretrained(tmp_path)
    loaded = ElmoTokenizer.from_pretrained(tmp_path)
    assert loaded.token_encoder == "word_embedding"
    assert loaded.get_vocab() == word_tokenizer.get_vocab()
    assert loaded("the saß dog cat")["input_ids"] == [1, 6, 7, 3, 5, 2]


def test_lists_of_single_ids_become_their_names(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens(tokenizer.all_special_ids) == ["<S>", "</S>", "<pad>"]


def test_a_token_that_is_refused_changes_no_batch(tokenizer: ElmoTokenizer) -> None:
    tokenizer, before = copy.deepcopy(tokenizer), tokenizer(["a", "b c"], padding=True).data
    with pytest.raises(ValueError, match="tokens"):
        tokenizer.add_tokens(["<S>", "[M]"])
    assert (tokenizer(["a", "b c"], padding=True).data, len(tokenizer)) == (before, 262)


def test_another_name_for_padding_changes_no_batch(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    named = ElmoTokenizer(max_word_length=tokenizer.max_word_length)
    named.pad_token = named.eos_token
    named.save_pretrained(tmp_path)
    for each in (named, ElmoTokenizer.from_pretrained(tmp_path)):
        assert each.pad_token_id == 258
        assert each(["a", "b c"], padding=True).data == tokenizer(["a", "b c"], padding=True).data
        assert each.pad([each("a"), each("b c")]).data == tokenizer.pad([tokenizer("a"), tokenizer("b c")]).data


def test_a_token_that_there_is_can_be_named_again(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    named = ElmoTokenizer(max_word_length=tokenizer.max_word_length)
    named.cls_token, named.sep_token_id = "<S>", 258
    named.save_pretrained(tmp_path)
    for each in (named, ElmoTokenizer.from_pretrained(tmp_path)):
        assert (each.cls_token_id, each.sep_token, each.mask_token) == (257, "</S>", None)


def test_word_ids_and_names_map_back_and_forth(word_tokenizer: ElmoTokenizer) -> None:
    ids = sorted(word_tokenizer.get_vocab().values())
    assert word_tokenizer.convert_tokens_to_ids(word_tokenizer.convert_ids_to_tokens(ids)) == ids
    assert word_tokenizer(["<pad>"], is_split_into_words=True)["input_ids"][1] == word_tokenizer.unk_token_id


def test_init_kwargs_name_every_argument_and_folders_no_path(tmp_path: Path) -> None:
    path = words_path(tmp_path)
    tokenizer = ElmoTokenizer(words_file=path)
    assert tokenizer.init_kwargs["words_file"] == path
    tokenizer.save_pretrained(tmp_path / "saved")
    assert "words_file" not in json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text(encoding="utf-8"))


def test_a_prefix_is_that_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\n", encoding="utf-8")
    ElmoTokenizer(words_file=str(tmp_path / "words.txt")).save_pretrained(tmp_path / "out", filename_prefix="my")
    assert (tmp_path / "out" / "my-words.txt").is_file()
    assert not (tmp_path / "out" / "words.txt").exists()
