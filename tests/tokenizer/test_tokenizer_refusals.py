"""What the tokenizer refuses: one line for each, with the kind of error and what its message names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elmo_hf import ElmoTokenizer
from elmo_hf.model.tokenization_elmo import CodePointCodec, VocabularyCodec
from tests.helpers.rows import SPLIT, C

VOCABULARY = {"<pad>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3}
CUT = {"truncation": True, "return_overflowing_tokens": True}


def call(*texts: Any, **options: Any) -> Callable[[], Any]:
    return lambda: ElmoTokenizer(max_word_length=C)(*texts, **options)


def make(*arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: ElmoTokenizer(*arguments, **options)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "number": (call(5), ValueError, "text"),
    "None": (call(["a", None]), ValueError, "found None, as an empty cell of a table is read; leave such rows out."),
    "NaN": (call(["a", float("nan")]), ValueError, "found nan, as an empty cell of a table is read"),
    "infinity": (call(["a", float("inf")]), ValueError, "is_split_into_words=True`, found inf."),
    "a column": (call(np.array(["a", "b"])), ValueError, "type ndarray; give a column of texts as a list"),
    "words not announced": (call([["a"]]), ValueError, "is_split_into_words"),
    "a number as words": (call(5, **SPLIT), ValueError, "is_split_into_words"),
    "a string as words": (call("a b", **SPLIT), ValueError, "a b"),
    "a set of words": (call({"a", "b"}, **SPLIT), ValueError, "is_split_into_words"),
    "the keys of a dict as words": (call({"a": 1}, **SPLIT), ValueError, "is_split_into_words"),
    "fewer second texts": (call(["a", "b"], ["c"]), ValueError, "as many texts as `text`, which has 2, found ['c']"),
    "a string for two second texts": (call(["a", "b"], "xy"), ValueError, "`text_pair` must be a list"),
    "a number for second texts": (call(["a", "b"], 5), ValueError, "`text_pair` must be a list"),
    "two second texts": (call("a", ["b", "c"]), ValueError, "`text_pair` must be a string"),
    "a string as words of a pair": (call(["a"], "b c", **SPLIT), ValueError, "`text_pair` must be a list of words"),
    "no room for those of a pair": (call(["a"], ["b"], max_length=3, truncation=True), ValueError, "max_length"),
    "other text too long": (call(["a"], ["v w x"], max_length=6, truncation="only_first"), ValueError, "max_length"),
    "stride of a window": (call("a b c", max_length=4, stride=2, **CUT), ValueError, "max_length"),
    "no padding": (call(["a b", "c"], return_tensors="pt"), ValueError, "padding=True"),
    "no texts to pad": (lambda: ElmoTokenizer().pad([]), ValueError, "one text at least, found []"),
    "an array without texts": (
        lambda: ElmoTokenizer().pad({"input_ids": np.zeros((0, 3, 50), dtype=np.int64)}),
        ValueError,
        "one text at least, found {'input_ids': array([], shape=(0, 3, 50)",
    ),
    "a batch without ids": (lambda: ElmoTokenizer().pad({"labels": [1]}), KeyError, "input_ids"),
    "a negative multiple": (call("a", padding=True, pad_to_multiple_of=-3), ValueError, "above 0, found -3"),
    "encoder": (make("cnn"), ValueError, "token_encoder"),
    "alphabet": (make(alphabet="letters"), ValueError, "alphabet"),
    "splitter": (make(word_splitter="spacy"), ValueError, "word_splitter"),
    "side of padding": (call("a", padding=True, padding_side="middle"), ValueError, "padding_side"),
    "side of `pad`": (lambda: ElmoTokenizer().pad({"input_ids": []}, padding_side="top"), ValueError, "padding_side"),
    "kind of tensor": (call("a", return_tensors="tf"), ValueError, "return_tensors"),
    "words changed by a function": (lambda: ElmoTokenizer(word_splitter=str.lower)("We"), ValueError, "word_splitter"),
    "words out of order": (lambda: ElmoTokenizer(word_splitter=lambda _: ["sat", "We"])("We sat"), ValueError, "'We'"),
    "no vocabulary": (make("word_embedding"), ValueError, "<UNK>"),
    "vocabulary without </S>": (lambda: VocabularyCodec({"<pad>": 0, "<S>": 1, "<UNK>": 2}), ValueError, "</S>"),
    "characters without marks": (lambda: CodePointCodec({"c:a": 1}, C, True), ValueError, "<bos>"),
    "words alone without <bos>": (lambda: CodePointCodec({"w:<oov>": 1, "<eos>": 2}, C, False), ValueError, "<bos>"),
    "added word": (lambda: ElmoTokenizer("word_embedding", vocab=VOCABULARY).add_tokens(["<S>", "M"]), ValueError, "M"),
    "no room in a word": (make(max_word_length=2), ValueError, "`max_word_length` must be an integer of at least 3"),
    "a negative length of words": (make(max_word_length=-3), ValueError, "at least 3, found -3"),
    "half a character": (make(max_word_length=3.5), ValueError, "an integer of at least 3, found 3.5"),
    "no room in a word of code points": (make(alphabet="code_points", max_word_length=0), ValueError, "found 0"),
    "names of single ids": (
        lambda: ElmoTokenizer().add_tokens(["<0x41>", "new", "<filler>"]),
        ValueError,
        "other words than the names of bytes and marks in `get_vocab()`, found ['<0x41>', '<filler>']",
    ),
    "the name of a single id as a special token": (make(mask_token="<filler>"), ValueError, "found ['<filler>']"),
    "other padding": (make(pad_token="[PAD]"), ValueError, "[PAD]"),
    "words without a softmax": (lambda: ElmoTokenizer().word_classes(["a"]), ValueError, "words.txt"),
    "no tokenizer": (lambda: ElmoTokenizer.from_pretrained("org/nothing"), OSError, "org/nothing"),
}


@pytest.mark.parametrize(("run", "kind", "word"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_by_name(run: Callable[[], Any], kind: type[Exception], word: str) -> None:
    with pytest.raises(kind) as error:
        run()
    assert word in str(error.value)
