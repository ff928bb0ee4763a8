"""ElmoTokenizer: exact ids, masks and maps of every call, held against an ordinary Rust tokenizer where there is one."""

import copy
import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FIXTURES, GOLDEN_CASES
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedTokenizerFast

from elmo_hf import ElmoTokenizer
from elmo_hf.word_codec import CharacterCodec

C = 11
KEYS = ["input_ids", "attention_mask"]


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(max_word_length=C)


@pytest.fixture(scope="module")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ElmoTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\ncat\nthe\n!!!MAXTERMID\nsaß\n", encoding="utf-8")
    return ElmoTokenizer(token_encoder="word_embedding", vocab_file=str(path))


@pytest.fixture(scope="module")
def rust_tokenizer() -> PreTrainedTokenizerFast:
    """One id per word, `<S>` and `</S>` around each text, as the Rust library itself does it."""
    symbols = {word: number for number, word in enumerate(["<pad>", "<S>", "</S>", *"abcdefgtuvwxyz"])}
    backend = Tokenizer(models.WordLevel(symbols, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        "<S> $A </S>", "<S> $A </S> <S>:1 $B:1 </S>:1", [("<S>", 1), ("</S>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<S>", eos_token="</S>")


def rows(words: str) -> list[list[int]]:
    """The ids of words with blanks between them; `_` is a position without a word."""
    return [[0] * C if word == "_" else CharacterCodec(C).encode([word])[0].tolist() for word in words.split()]


def mask(words: str) -> list[int]:
    return [int(word != "_") for word in words.split()]


CALLS: dict[str, tuple[dict[str, Any], str | list[str]]] = {
    "one_string": ({"text": "Hello, world!"}, "<S> Hello , world ! </S>"),
    "list_of_one": ({"text": ["a b"]}, ["<S> a b </S>"]),
    "strings": ({"text": ["I don't.", "Yes"]}, ["<S> I do n't . </S>", "<S> Yes </S>"]),
    "tuple_of_strings": ({"text": ("a b", "c", "d")}, ["<S> a b </S>", "<S> c </S>", "<S> d </S>"]),
    "split": ({"text": ["don't", "x."], "is_split_into_words": True}, "<S> don't x. </S>"),
    "splits": ({"text": [["a", "b."], ["c"]], "is_split_into_words": True}, ["<S> a b. </S>", "<S> c </S>"]),
    "split_boundary": ({"text": ["<S>", "a"], "is_split_into_words": True}, "<S> <S> a </S>"),
    "raw_boundary": ({"text": "<S> a"}, "<S> < S > a </S>"),
    "pair": ({"text": "a b", "text_pair": "c."}, "<S> a b </S> <S> c . </S>"),
    "pairs": (
        {"text": ["a", "b c"], "text_pair": ["d e", "f"]},
        ["<S> a </S> <S> d e </S>", "<S> b c </S> <S> f </S>"],
    ),
    "pairs_as_tuples": ({"text": [("a", "d e"), ("b", "")]}, ["<S> a </S> <S> d e </S>", "<S> b </S> <S> </S>"]),
    "split_pair": ({"text": ["a"], "text_pair": ["b", "c"], "is_split_into_words": True}, "<S> a </S> <S> b c </S>"),
    "split_pairs": (
        {"text": [["a"], ["b", "c"]], "text_pair": [["d"], []], "is_split_into_words": True},
        ["<S> a </S> <S> d </S>", "<S> b c </S> <S> </S>"],
    ),
    "split_pairs_as_tuples": (
        {"text": [(["a", "b"], ["c"])], "is_split_into_words": True},
        ["<S> a b </S> <S> c </S>"],
    ),
    "two_splits_are_no_pair": ({"text": [("a", "b")], "is_split_into_words": True}, ["<S> a b </S>"]),
    "empty_string": ({"text": ""}, "<S> </S>"),
    "blanks": ({"text": " \n"}, "<S> </S>"),
    "empty_split": ({"text": [], "is_split_into_words": True}, "<S> </S>"),
    "empty_text_in_batch": ({"text": ["", "a"]}, ["<S> </S>", "<S> a </S>"]),
    "empty_split_first": ({"text": [[], ["a"]], "is_split_into_words": True}, ["<S> </S>", "<S> a </S>"]),
    "empty_batch": ({"text": []}, []),
    "without_boundaries": ({"text": ["a b", ""], "add_special_tokens": False}, ["a b", ""]),
    "pair_without_boundaries": ({"text": "a b", "text_pair": "c", "add_special_tokens": False}, "a b c"),
    "longest": ({"text": ["a b", "", "c"], "padding": True}, ["<S> a b </S>", "<S> </S> _ _", "<S> c </S> _"]),
    "longest_left": (
        {"text": ["a b", "", "c"], "padding": "longest", "padding_side": "left"},
        ["<S> a b </S>", "_ _ <S> </S>", "_ <S> c </S>"],
    ),
    "max_length": (
        {"text": ["a", "b c"], "padding": "max_length", "max_length": 5},
        ["<S> a </S> _ _", "<S> b c </S> _"],
    ),
    "max_length_of_one": ({"text": "a", "padding": "max_length", "max_length": 4}, "<S> a </S> _"),
    "max_length_cuts_nothing": (
        {"text": ["a b c", "d"], "padding": "max_length", "max_length": 4},
        ["<S> a b c </S>", "<S> d </S> _"],
    ),
    "multiple": (
        {"text": ["a b c", "d"], "padding": True, "pad_to_multiple_of": 3},
        ["<S> a b c </S> _", "<S> d </S> _ _ _"],
    ),
    "multiple_left": (
        {"text": ["a b"], "padding": "max_length", "max_length": 5, "pad_to_multiple_of": 4, "padding_side": "left"},
        ["_ _ _ _ <S> a b </S>"],
    ),
    "padding_and_truncation": (
        {"text": ["a b c d", "e"], "padding": "max_length", "truncation": True, "max_length": 4},
        ["<S> a b </S>", "<S> e </S> _"],
    ),
    "truncation_to_nothing": ({"text": ["a b"], "truncation": True, "max_length": 2}, ["<S> </S>"]),
    "truncation_without_boundaries": (
        {"text": "a b c", "truncation": True, "max_length": 2, "add_special_tokens": False},
        "a b",
    ),
}


@pytest.mark.parametrize(("call", "expected"), CALLS.values(), ids=CALLS.keys())
def test_a_call_gives_one_row_per_word(
    tokenizer: ElmoTokenizer, call: dict[str, Any], expected: str | list[str]
) -> None:
    encoded = tokenizer(**call)
    assert list(encoded) == KEYS
    if isinstance(expected, str):
        assert (encoded["input_ids"], encoded["attention_mask"]) == (rows(expected), mask(expected))
    else:
        assert encoded["input_ids"] == [rows(words) for words in expected]
        assert encoded["attention_mask"] == [mask(words) for words in expected]


def test_padding_on_the_left_puts_words_last() -> None:
    left = ElmoTokenizer(max_word_length=C, padding_side="left")
    assert left(["a b", "c"], padding=True)["input_ids"] == [rows("<S> a b </S>"), rows("_ <S> c </S>")]
    right = left(["a b", "c"], padding=True, padding_side="right")
    assert right["input_ids"] == [rows("<S> a b </S>"), rows("<S> c </S> _")]


def test_model_max_length_is_the_length_of_truncation() -> None:
    short = ElmoTokenizer(max_word_length=C, model_max_length=4)
    assert short("a b c d", truncation=True)["input_ids"] == rows("<S> a b </S>")


def test_a_word_is_cut_to_the_bytes_that_fit(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer("extraordinarily")["input_ids"][1] == [259, *(byte + 1 for byte in b"extraordi"), 260]


@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_a_padded_batch_has_the_ids_that_allennlp_computed(case: str) -> None:
    words = json.loads((FIXTURES / case / "sentences.json").read_text(encoding="utf-8"))["call1"]
    golden = np.load(FIXTURES / case / "expected.npz")
    elmo = ElmoTokenizer(max_word_length=golden["char_ids"].shape[-1])
    encoded = elmo(words, is_split_into_words=True, add_special_tokens=False, padding=True, return_tensors="np")
    np.testing.assert_array_equal(encoded["input_ids"], golden["char_ids"])
    np.testing.assert_array_equal(encoded["attention_mask"], golden["mask"])


ALL_KEYS = {"return_token_type_ids": True, "return_special_tokens_mask": True, "return_offsets_mapping": True}


@pytest.mark.parametrize("pairs", [None, ["x", "y (z) x", "y", "z x", ""]], ids=["texts", "pairs"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_equals_each_text_alone(tokenizer: ElmoTokenizer, pairs: list[str] | None, side: str) -> None:
    texts = ["It's 😀 there.", "", "a  b", "Don't!", "well-known"]
    options = ALL_KEYS | {"padding": "max_length", "max_length": 7, "truncation": True, "padding_side": side}
    batch = tokenizer(texts, pairs, **options)
    for index, text in enumerate(texts):
        alone = tokenizer([text], None if pairs is None else [pairs[index]], **options)
        assert {key: [value[index]] for key, value in batch.items()} == dict(alone)


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("truncation_side", ["right", "left"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second", "do_not_truncate"])
def test_truncation_and_padding_are_those_of_rust(
    rust_tokenizer: PreTrainedTokenizerFast, strategy: str, truncation_side: str, padding_side: str
) -> None:
    elmo = ElmoTokenizer(max_word_length=C, truncation_side=truncation_side, padding_side=padding_side)
    rust = rust_tokenizer
    rust.truncation_side, rust.padding_side = truncation_side, padding_side
    firsts, seconds = ["", "a", "a b", "a  b c d", "a b c d e f g"], [None, "", "x", "u v w", "t u v w x y z"]
    compared = 0
    for first, second, max_length in itertools.product(firsts, seconds, range(4, 16)):
        lengths = [len((text or "").split()) for text in (first, second)]
        excess = sum(lengths) + (2 if second is None else 4) - max_length
        # Rust does not take a text's last word with `only_first` and `only_second`.
        if strategy.startswith("only") and excess >= lengths[strategy == "only_second"] and excess > 0:
            continue
        options = ALL_KEYS | {"truncation": strategy, "max_length": max_length, "padding": "max_length"}
        pairs = None if second is None else [second]
        ours, theirs = elmo([first], pairs, **options), rust([first], pairs, **options)
        assert ours.tokens() == theirs.tokens()
        assert [rows(" ".join(ours.tokens()).replace("<pad>", "_"))] == ours["input_ids"]
        for key in ("attention_mask", "token_type_ids", "special_tokens_mask", "offset_mapping"):
            assert ours[key] == theirs[key], key
        assert ours.word_ids() == theirs.word_ids()
        assert ours.sequence_ids() == theirs.sequence_ids()
        compared += 1
    assert compared > 200


def test_truncating_one_text_only_can_leave_it_empty(tokenizer: ElmoTokenizer) -> None:
    options = {"truncation": "only_second", "max_length": 6}
    assert tokenizer(["a b"], ["x y z"], **options).tokens() == ["<S>", "a", "b", "</S>", "<S>", "</S>"]


@pytest.mark.parametrize(
    ("texts", "strategy", "message"),
    [
        pytest.param(("a", "v w x"), "only_first", "'only_first'` cannot shorten 1 words by 2; the other", id="first"),
        pytest.param(("a b c", ""), "only_second", "'only_second'` cannot shorten 0 words by 1; the", id="second"),
        pytest.param(("a", "b"), "longest_first", "`max_length` = 3 leaves no room for the boundaries", id="pair"),
        pytest.param(("a", None), "longest_first", "`max_length` = 1 leaves no room for the boundaries", id="one"),
    ],
)
def test_truncation_that_cannot_be_is_refused(
    tokenizer: ElmoTokenizer, texts: tuple[str, str | None], strategy: str, message: str
) -> None:
    max_length = int(message.split("= ")[1][0]) if "`max_length`" in message else 6
    pairs = None if texts[1] is None else [texts[1]]
    with pytest.raises(ValueError, match=message):
        tokenizer([texts[0]], pairs, truncation=strategy, max_length=max_length)
