"""`ElmoTokenizer`: ids back to words, copies, saved folders, vocabularies and settings."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from language_models import words_file
from rows import BOTH, CHARACTERS_ALONE, WORDS_ALONE, C, rows
from transformers import AutoTokenizer

from elmo_hf import ElmoTokenizer
from elmo_hf.tokenizer.word_codec import CharacterCodec


def test_special_tokens_have_single_ids(tokenizer: ElmoTokenizer) -> None:
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 257, 258)
    assert sorted(tokenizer.all_special_ids) == [0, 257, 258]
    assert tokenizer.convert_ids_to_tokens(tokenizer.all_special_ids) == ["<S>", "</S>", "<pad>"]
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
    names = ["<pad>", "<0x00>", "<0x41>", "<0xFF>", "<S>", "</S>", "<W>", "</W>", "<filler>"]
    assert [tokenizer.convert_ids_to_tokens(number) for number in (0, 1, 66, *range(256, 262))] == names
    assert tokenizer.tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert tokenizer.encode("a b") == rows("<S> a b </S>")


def test_decoding_joins_words_by_blanks(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(["Don't, 猫!", "", "a"], padding=True, return_tensors="pt")["input_ids"]
    texts = ["Do n't , 猫 !", "", "a"]
    assert tokenizer.batch_decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded, skip_special_tokens=True) == texts
    assert tokenizer.decode(encoded[2]) == "<S> a </S> <pad> <pad> <pad> <pad>"
    assert (tokenizer.decode([]), tokenizer.batch_decode([[], []])) == ("", ["", ""])


def test_the_text_pad_is_a_word_and_no_padding(tokenizer: ElmoTokenizer) -> None:
    options = {"padding": "max_length", "max_length": 5, "return_special_tokens_mask": True}
    encoded = tokenizer([["a", "<pad>"]], is_split_into_words=True, **options)
    assert encoded["attention_mask"] == [[1, 1, 1, 1, 0]]
    ids, mask = encoded["input_ids"][0], [1, 0, 0, 1, 1]
    assert encoded["special_tokens_mask"] == [mask]
    assert tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a <pad>"


def test_a_word_embedding_gets_one_id_per_word(word_tokenizer: ElmoTokenizer) -> None:
    encoded = word_tokenizer(["the cat saß", "dog"], padding=True, return_tensors="pt")
    assert encoded["input_ids"].dtype == torch.int64
    assert encoded["input_ids"].tolist() == [[1, 6, 5, 7, 2], [1, 3, 2, 0, 0]]
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert word_tokenizer(["<pad>"], is_split_into_words=True)["input_ids"] == [1, 3, 2]
    assert word_tokenizer.batch_decode(encoded["input_ids"], skip_special_tokens=True)[0] == "the cat saß"
    assert word_tokenizer.decode([]) == ""
    ids = sorted(word_tokenizer.get_vocab().values())
    assert word_tokenizer.convert_tokens_to_ids(word_tokenizer.convert_ids_to_tokens(ids)) == ids
    assert (word_tokenizer.pad_token_id, word_tokenizer.bos_token_id, word_tokenizer.unk_token_id) == (0, 1, 3)


SETTINGS = ("token_encoder", "max_word_length", "word_splitter", "padding_side", "truncation_side", "add_boundaries")
OF_THE_LEFT = {"word_splitter": "whitespace", "padding_side": "left", "truncation_side": "left"}
MADE: dict[str, dict[str, Any]] = {
    "characters": OF_THE_LEFT | {"max_word_length": 13},
    "characters and words to predict": {"words_file": "words.txt"},
    "words": {"token_encoder": "word_embedding", "vocab_file": "words.txt"},
    "code points": {"alphabet": "code_points", "vocab": BOTH, "max_word_length": 7, "words_file": "words.txt"},
    "code points of characters": {"alphabet": "code_points", "vocab": CHARACTERS_ALONE, "add_boundaries": False},
    "code points of words": {"alphabet": "code_points", "vocab": WORDS_ALONE, "token_encoder": "word_embedding"},
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_copies_and_saved_tokenizers_give_the_same_ids_and_have_its_settings(
    made: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\nthe\nsaß\n", encoding="utf-8")
    original = ElmoTokenizer(**made)
    original.save_pretrained("saved")
    Path("words.txt").unlink()
    loaded = [each.from_pretrained("saved") for each in (ElmoTokenizer, AutoTokenizer)]
    texts = ["Don't stop. extraordinarily", "the saß ababaXX 日", "<S> <bos> ab"]
    words = [text.split() for text in texts]
    for each in (*loaded, copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
        assert [getattr(each, name) for name in SETTINGS] == [getattr(original, name) for name in SETTINGS]
        assert each(texts, padding=True).data == original(texts, padding=True).data
        assert each(words, is_split_into_words=True).data == original(words, is_split_into_words=True).data
        assert each.get_vocab() == original.get_vocab()
        assert each.predicted_words == original.predicted_words
        if each.predicted_words:
            classes = each.word_classes([original.boundaries[0], "the", "other", original.boundaries[1]])
            assert classes.tolist() == [0, 5, 2, 1]
    assert pickle.loads(pickle.dumps(original("the cat"))).tokens() == original("the cat").tokens()


def test_tokens_can_have_other_names_which_changes_no_batch(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    named = ElmoTokenizer(max_word_length=tokenizer.max_word_length)
    named.pad_token, named.cls_token, named.sep_token_id = named.eos_token, "<S>", 258
    named.add_tokens(["<S>"])
    named.save_pretrained(tmp_path)
    for each in (named, ElmoTokenizer.from_pretrained(tmp_path)):
        assert (each.pad_token_id, each.cls_token_id, each.sep_token, each.mask_token) == (258, 257, "</S>", None)
        assert len(each) == 262
        assert each(["a", "b c"], padding=True).data == tokenizer(["a", "b c"], padding=True).data
        assert each.pad([each("a"), each("b c")]).data == tokenizer.pad([tokenizer("a"), tokenizer("b c")]).data


def test_a_folder_names_no_path_and_a_prefix_is_that_of_every_file(tmp_path: Path) -> None:
    path = str(words_file(tmp_path, ["<S>", "</S>", "<UNK>", "the"]))
    tokenizer = ElmoTokenizer(words_file=path)
    assert tokenizer.init_kwargs["words_file"] == path
    tokenizer.save_pretrained(tmp_path / "saved", filename_prefix="my")
    assert "words_file" not in json.loads((tmp_path / "saved" / "my-tokenizer_config.json").read_text(encoding="utf-8"))
    assert (tmp_path / "saved" / "my-words.txt").is_file()
    assert not (tmp_path / "saved" / "words.txt").exists()
