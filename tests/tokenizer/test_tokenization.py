"""`ElmoTokenizer`: the call."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BatchEncoding, PreTrainedTokenizerFast

from elmo_hf import ElmoTokenizer
from elmo_hf.model.tokenization_elmo import CharacterCodec
from tests.helpers.rows import BARE, SPLIT, C, mask, rows

CODEC = CharacterCodec(C)


@pytest.fixture
def rust_tokenizer() -> PreTrainedTokenizerFast:
    """One id per word, `<S>` and `</S>` around each text, as the Rust library itself does it."""
    symbols = {word: number for number, word in enumerate(["<pad>", "<S>", "</S>", *"abcdefgtuvwxyz"])}
    backend = Tokenizer(models.WordLevel(symbols, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        "<S> $A </S>", "<S> $A </S> <S>:1 $B:1 </S>:1", [("<S>", 1), ("</S>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", bos_token="<S>", eos_token="</S>")


# Text, second text, options, and the words of each row; a single text has no list around its row.
CALLS: dict[str, tuple[Any, Any, dict[str, Any], str | list[str]]] = {
    "one_string": ("Hello, world!", None, {}, "<S> Hello , world ! </S>"),
    "strings": (["I don't.", "Yes"], None, {}, ["<S> I do n't . </S>", "<S> Yes </S>"]),
    "split": (["don't", "x."], None, SPLIT, "<S> don't x. </S>"),
    "splits": ([["a", "b."], ["c"]], None, SPLIT, ["<S> a b. </S>", "<S> c </S>"]),
    "raw_boundary": ("<S> a", None, {}, "<S> < S > a </S>"),
    "pair": ("a b", "c.", {}, "<S> a b </S> <S> c . </S>"),
    "pairs": (["a", "b c"], ["d e", "f"], {}, ["<S> a </S> <S> d e </S>", "<S> b c </S> <S> f </S>"]),
    "split_pair": (["a"], ["b", "c"], SPLIT, "<S> a </S> <S> b c </S>"),
    "split_pairs": ([["a"], ["b"]], [["d"], []], SPLIT, ["<S> a </S> <S> d </S>", "<S> b </S> <S> </S>"]),
    "pairs_as_lists": ([["a", "d e"], ["b", ""]], None, {}, ["<S> a </S> <S> d e </S>", "<S> b </S> <S> </S>"]),
    "split_pairs_as_tuples": ([(["a", "b"], ["c"])], None, SPLIT, ["<S> a b </S> <S> c </S>"]),
    "two_words_are_no_pair": ([("a", "b")], None, SPLIT, ["<S> a b </S>"]),
    "empty_string": ("", None, {}, "<S> </S>"),
    "empty_split_first": ([[], ["a"]], None, SPLIT, ["<S> </S>", "<S> a </S>"]),
    "empty_batch": ([], None, {}, []),
    "bare": (["a b", ""], None, BARE, ["a b", ""]),
    "bare_pair": ("a b", "c", BARE, "a b c"),
    "longest": (["a b", "", "c"], None, {"padding": True}, ["<S> a b </S>", "<S> </S> _ _", "<S> c </S> _"]),
    "multiple": (["a b c"], None, {"padding": True, "pad_to_multiple_of": 3}, ["<S> a b c </S> _"]),
    "cut": ("a b c", None, {"truncation": True, "max_length": 4}, "<S> a b </S>"),
    "padded_and_cut": (
        ["a b c d f", "e"],
        None,
        {"padding": "max_length", "truncation": True, "max_length": 6, "pad_to_multiple_of": 3, "padding_side": "left"},
        ["<S> a b c d </S>", "_ _ _ <S> e </S>"],
    ),
    "cut_to_nothing": ("a b", "x y", {"truncation": "only_second", "max_length": 6}, "<S> a b </S> <S> </S>"),
}


@pytest.mark.parametrize(("text", "pair", "options", "expected"), CALLS.values(), ids=CALLS.keys())
def test_a_call_gives_one_row_per_word(
    tokenizer: ElmoTokenizer, text: Any, pair: Any, options: dict[str, Any], expected: str | list[str]
) -> None:
    encoded = tokenizer(text, pair, **options)
    if isinstance(expected, str):
        assert dict(encoded) == {"input_ids": rows(expected), "attention_mask": mask(expected)}
    else:
        assert dict(encoded) == {"input_ids": [*map(rows, expected)], "attention_mask": [*map(mask, expected)]}


ALL_KEYS = {"return_token_type_ids": True, "return_special_tokens_mask": True, "return_offsets_mapping": True}


def assert_as_rust(ours: BatchEncoding, theirs: BatchEncoding) -> int:
    """Compares everything but the ids, which are those of the words; returns the number of rows."""
    for row, ids in enumerate(ours["input_ids"]):
        assert ours.tokens(row) == theirs.tokens(row)
        is_word = np.array([[token != "<pad>"] for token in ours.tokens(row)])
        assert (CODEC.encode(ours.tokens(row)) * is_word).tolist() == ids
        assert ours.word_ids(row) == theirs.word_ids(row)
        assert ours.sequence_ids(row) == theirs.sequence_ids(row)
    for key in theirs.keys() - {"input_ids"}:
        assert ours[key] == theirs[key], key
    return len(ours["input_ids"])


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("truncation_side", ["right", "left"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second", "do_not_truncate"])
def test_truncation_and_padding_are_those_of_rust(
    rust_tokenizer: PreTrainedTokenizerFast, strategy: str, truncation_side: str, padding_side: str
) -> None:
    elmo = ElmoTokenizer(max_word_length=C, truncation_side=truncation_side, padding_side=padding_side)
    rust_tokenizer.truncation_side, rust_tokenizer.padding_side = truncation_side, padding_side
    firsts, seconds = ["", "a", "a b", "a  b c d", "a b c d e f g"], [None, "", "x", "u v w", "t u v w x y z"]
    compared = 0
    for max_length, has_pairs in itertools.product(range(4, 16), (False, True)):

        def is_comparable(pair: tuple[str, str | None], max_length: int = max_length) -> bool:
            """Rust does not take a text's last word with `only_first` and `only_second`."""
            lengths = [len((text or "").split()) for text in pair]
            excess = sum(lengths) + (2 if pair[1] is None else 4) - max_length
            return not strategy.startswith("only") or excess <= 0 or excess < lengths[strategy == "only_second"]

        pairs = itertools.product(firsts, seconds[1:] if has_pairs else [None])
        batch = [*zip(*filter(is_comparable, pairs), strict=True)]
        if batch:
            texts = (list(batch[0]), list(batch[1]) if has_pairs else None)
            options = ALL_KEYS | {"truncation": strategy, "max_length": max_length, "padding": "max_length"}
            compared += assert_as_rust(elmo(*texts, **options), rust_tokenizer(*texts, **options))
    assert compared > 200


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("strategy", "firsts", "seconds"),
    [
        ("longest_first", ["a b c d e f g", "", "a b c d"], None),
        ("only_first", ["a b c d e f g", "", "a b c d"], ["x y"] * 3),
        ("only_second", ["a b"] * 3, ["t u v w x y z", "x", ""]),
    ],
)
def test_overflowing_windows_are_those_of_rust(
    rust_tokenizer: PreTrainedTokenizerFast, strategy: str, firsts: list[str], seconds: list[str] | None, side: str
) -> None:
    elmo = ElmoTokenizer(max_word_length=C, truncation_side=side)
    rust_tokenizer.truncation_side = side
    compared = 0
    for room, stride in itertools.product(range(1, 9), range(4)):
        if stride < room:
            max_length = room + (2 if seconds is None else 6)
            options = ALL_KEYS | {"truncation": strategy, "max_length": max_length, "stride": stride}
            options["return_overflowing_tokens"] = True
            compared += assert_as_rust(elmo(firsts, seconds, **options), rust_tokenizer(firsts, seconds, **options))
    assert compared > 80


def test_windows_of_one_text_are_a_batch_and_texts_that_fit_are_one_window(tokenizer: ElmoTokenizer) -> None:
    options = {"return_overflowing_tokens": True, "truncation": True, "max_length": 4}
    assert tokenizer("a b c", **options)["input_ids"] == [*map(rows, ["<S> a b </S>", "<S> c </S>"])]
    short = tokenizer(["a", "b c"], padding=True, return_tensors="pt", **options)
    assert short["overflow_to_sample_mapping"].tolist() == [0, 1]
    assert short["input_ids"].tolist() == [*map(rows, ["<S> a </S> _", "<S> b c </S>"])]
    assert "overflow_to_sample_mapping" not in tokenizer("a b c", truncation=True, max_length=4)


def test_tensors_have_the_shape_batch_words_characters(tokenizer: ElmoTokenizer) -> None:
    options = ALL_KEYS | {"return_length": True, "padding": True}
    lists = tokenizer(["a b.", "c", ""], **options)
    shapes = {"input_ids": (3, 5, C), "offset_mapping": (3, 5, 2), "length": (3,)}
    for kind, array_type in (("pt", torch.Tensor), ("np", np.ndarray)):
        encoded = tokenizer(["a b.", "c", ""], return_tensors=kind, **options)
        assert list(encoded) == list(lists)
        for key, value in encoded.items():
            assert isinstance(value, array_type)
            assert value.shape == shapes.get(key, (3, 5)), key
            assert str(value.dtype).removeprefix("torch.") == "int64", key
            assert value.tolist() == np.array(lists[key]).tolist(), key
    assert lists["length"] == [5, 5, 5]


@pytest.mark.parametrize("alphabet", ["characters", "words"])
def test_a_batch_without_texts_has_integers_with_all_axes(alphabet: str, tokenizer: ElmoTokenizer) -> None:
    shape: tuple[int, ...] = (0, 0, C)
    if alphabet == "words":
        vocabulary = {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3}
        tokenizer = ElmoTokenizer("word_embedding", vocab=vocabulary)
        shape = (0, 0)
    options = ALL_KEYS | {"return_length": True, "return_overflowing_tokens": True, "padding": True}
    shapes = {"input_ids": shape, "offset_mapping": (0, 0, 2), "length": (0,), "overflow_to_sample_mapping": (0,)}
    lists = tokenizer([], **options)
    for kind, array_type in (("pt", torch.Tensor), ("np", np.ndarray)):
        encoded = tokenizer([], return_tensors=kind, **options)
        assert list(encoded) == list(lists)
        for key, value in encoded.items():
            assert isinstance(value, array_type)
            assert value.shape == shapes.get(key, (0, 0)), key
            assert str(value.dtype).removeprefix("torch.") == "int64", key
            assert lists[key] == [], key


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("texts", "options"),
    [
        ([["Hé  😀 don't x", "d", ""]], {}),
        ([["Hé  😀 don't x", "d", ""]], {"truncation": True, "max_length": 5, "return_overflowing_tokens": True}),
        ([["a  b", "", "c d e"], [" x y", "u  v", ""]], {"truncation": True, "max_length": 7}),
    ],
)
def test_positions_words_and_characters_map_to_each_other_as_in_rust(
    rust_tokenizer: PreTrainedTokenizerFast, texts: list[list[str]], options: dict[str, Any], side: str
) -> None:
    elmo = ElmoTokenizer(max_word_length=C, word_splitter="whitespace", padding_side=side)
    rust_tokenizer.padding_side = side
    ours, theirs = (each(*texts, padding=True, **options) for each in (elmo, rust_tokenizer))
    assert ours.n_sequences == len(texts)
    for row, ids in enumerate(ours["input_ids"]):
        for name, index in itertools.product(("token_to_word", "token_to_sequence", "token_to_chars"), range(len(ids))):
            assert getattr(ours, name)(row, index) == getattr(theirs, name)(row, index), name
        for name, index, text in itertools.product(
            ("char_to_token", "char_to_word", "word_to_tokens"), range(16), range(len(texts))
        ):
            assert getattr(ours, name)(row, index, text) == getattr(theirs, name)(row, index, text), name
        for word, text in zip(theirs.word_ids(row), theirs.sequence_ids(row), strict=True):
            assert word is None or ours.word_to_chars(row, word, text) == theirs.word_to_chars(row, word, text)


def test_offsets_of_words_given_are_counted_in_the_word(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer(["ab", "", "c d"], is_split_into_words=True, return_offsets_mapping=True)
    assert encoded["offset_mapping"] == [(0, 0), (0, 2), (0, 0), (0, 3), (0, 0)]
    assert encoded.word_to_tokens(2) == (3, 4)


def test_a_length_of_words_from_numpy_is_saved(tmp_path: Path) -> None:
    ElmoTokenizer(max_word_length=np.int64(C)).save_pretrained(tmp_path)
    assert ElmoTokenizer.from_pretrained(tmp_path).max_word_length == C


def test_a_generators_words_are_those_of_its_list(tokenizer: ElmoTokenizer) -> None:
    words = ["ab", "", "c d"]
    encoded = tokenizer((word for word in words), is_split_into_words=True)
    assert encoded.tokens() == tokenizer(words, is_split_into_words=True).tokens()


def test_lone_surrogates_in_raw_text_vanish_and_keep_the_offsets_of_their_neighbours(tokenizer: ElmoTokenizer) -> None:
    encoded = tokenizer("a\ud800b cd", return_offsets_mapping=True)
    split = tokenizer(["a", "\ud800", "b", "cd"], is_split_into_words=True)
    assert encoded["input_ids"] == split["input_ids"]
    assert encoded["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (2, 3), (4, 6), (0, 0)]
