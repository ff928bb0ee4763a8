"""A function of the user's own as `word_splitter`: words, offsets, saving, and what it may not return."""

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer
from vectors import embed_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.window_vectors import Selection

TEXT = "我们坐在河岸上。 We sat."


def split(text: str) -> list[str]:
    """Chinese by characters, the rest at blanks; keeps the blanks, as jieba does."""
    return [part for piece in text.split(" ") for part in (*(piece if ord(piece[0]) > 255 else [piece]), " ")][:-1]


def test_a_function_gives_the_words_and_their_offsets() -> None:
    tokenizer = ElmoTokenizer(word_splitter=split)
    words = [*"我们坐在河岸上。", "We", "sat."]
    assert tokenizer.tokenize(TEXT) == words
    encoded = tokenizer(TEXT, return_offsets_mapping=True, return_tensors="pt")
    assert [TEXT[start:end] for start, end in encoded["offset_mapping"][0, 1:-1].tolist()] == words
    given = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    assert encoded["input_ids"].equal(given["input_ids"])
    assert encoded.char_to_token(3) == 4


def test_a_run_does_not_go_on_with_another_function(tiny_folder: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder)
    splitters: list[Any] = [split, str.split, "whitespace"]
    tokenizers = [ElmoTokenizer.from_pretrained(tiny_folder, word_splitter=each) for each in splitters]
    jobs = [Selection().job(model, tokenizer) for tokenizer in tokenizers]
    assert len({job["tokenizer"] for job in jobs}) == 3


def test_a_corpus_is_embedded_by_the_words_of_the_function(tiny_folder: Path, tmp_path: Path) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter=split)
    (tmp_path / "text.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    model = ElmoModel.from_pretrained(tiny_folder).eval()
    embed_file(model, tokenizer, tmp_path / "text.txt", tmp_path / "v.npz", layers="mix")
    inputs = tokenizer([tokenizer.tokenize(TEXT)], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state[0, 1:-1].numpy()
    np.testing.assert_allclose(np.load(tmp_path / "v.npz")["0"], expected, rtol=0, atol=1e-6)


def test_repeated_words_have_offsets_of_their_own() -> None:
    tokenizer = ElmoTokenizer(word_splitter=list)
    assert tokenizer("看看", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (0, 0)]


def test_copies_keep_the_function_and_saved_folders_split_at_white_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = ElmoTokenizer(word_splitter=split)
    for each in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert each.tokenize(TEXT) == tokenizer.tokenize(TEXT)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    tokenizer.save_pretrained(tmp_path)
    logger.removeHandler(caplog.handler)
    assert "`word_splitter` is a function, which is not saved; loaded, this splits at white space." in caplog.text
    for loader in (ElmoTokenizer, AutoTokenizer):
        loaded = loader.from_pretrained(tmp_path)
        assert loaded.word_splitter == "whitespace"
        assert loaded.tokenize(TEXT) == ["我们坐在河岸上。", "We", "sat."]
        assert loader.from_pretrained(tmp_path, word_splitter=split).tokenize(TEXT) == tokenizer.tokenize(TEXT)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda text: ["we"], "'we' after character 0 of 'We sat.'"),
        (lambda text: ["sat", "We"], "'We' after character 6 of 'We sat.'"),
        (lambda text: [None], "None after character 0 of 'We sat.'"),
    ],
    ids=["changed", "out of order", "no strings"],
)
def test_words_that_are_not_the_texts_own_are_refused(function: Any, found: str) -> None:
    message = "`word_splitter` must return the words of the text, unchanged and in order, found " + found
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        ElmoTokenizer(word_splitter=function)("We sat.")
