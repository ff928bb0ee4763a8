"""A corpus as numbers: each distinct word once, sentences by their places, lengths counted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tiny_lm import SENTENCES, WORDS, tiny_lm, tiny_tokenizer_of, tiny_word_lm

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus

NUM_WORDS = sum(map(len, SENTENCES))


@pytest.fixture(params=[tiny_lm, tiny_word_lm], ids=["characters", "words"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> ElmoTokenizer:
    return tiny_tokenizer_of(request.param(), tmp_path)


def test_every_word_of_the_text_has_its_ids_and_its_class(tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences(SENTENCES, tokenizer)
    assert len(corpus) == len(SENTENCES)
    for number, words in enumerate(SENTENCES):
        rows = corpus.sentence(number)
        assert corpus.ids[rows].tolist() == tokenizer.convert_tokens_to_ids(words)
        assert corpus.classes[rows].tolist() == [WORDS.index(word) if word in WORDS else 2 for word in words]
    assert corpus.classes[:2].tolist() == [0, 1]
    assert corpus.ids[:2].tolist() == tokenizer.convert_tokens_to_ids(["<S>", "</S>"])


def test_distinct_words_have_one_row_each_in_the_order_of_the_text(tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences(SENTENCES, tokenizer)
    distinct = list(dict.fromkeys(["<S>", "</S>", *(word for words in SENTENCES for word in words)]))
    assert len(corpus.ids) == len(corpus.classes) == len(distinct)
    assert corpus.ids.tolist() == tokenizer.convert_tokens_to_ids(distinct)
    assert corpus.words.tolist() == [distinct.index(word) for words in SENTENCES for word in words]


def test_lengths_are_counted(tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences(SENTENCES, tokenizer)
    assert corpus.num_words == NUM_WORDS
    assert corpus.num_predictions == NUM_WORDS + len(SENTENCES)
    assert corpus.starts.tolist() == np.cumsum([0, *map(len, SENTENCES)]).tolist()


def test_share_of_a_class_is_of_the_texts_words(tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences(SENTENCES, tokenizer)
    assert corpus.share_of_class(WORDS.index("<UNK>")) == pytest.approx(3 / NUM_WORDS)
    assert corpus.share_of_class(WORDS.index("the")) == pytest.approx(4 / NUM_WORDS)
    assert corpus.share_of_class(WORDS.index("<S>")) == 0


def test_numbers_take_little_memory(tmp_path: Path) -> None:
    corpus = Corpus.from_sentences(SENTENCES, tiny_tokenizer_of(tiny_lm(), tmp_path))
    assert (corpus.words.dtype, corpus.ids.dtype) == (np.int32, np.int16)
    assert corpus.ids.shape == (len(corpus.classes), 11)


def test_boundaries_in_the_text_are_the_boundaries(tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences([["the", "</S>", "<S>"]], tokenizer)
    assert corpus.words.tolist() == [2, 1, 0]


@pytest.mark.parametrize("sentences", [[], [[]], [[], []]], ids=len)
def test_text_without_words_is_a_corpus(sentences: list[Sequence[str]], tokenizer: ElmoTokenizer) -> None:
    corpus = Corpus.from_sentences(iter(sentences), tokenizer)
    assert (len(corpus), corpus.num_words, corpus.num_predictions) == (len(sentences), 0, len(sentences))
    assert corpus.share_of_class(2) == 0
    assert [corpus.sentence(number).tolist() for number in range(len(sentences))] == sentences


def test_classes_are_lines_of_the_vocabulary(tokenizer: ElmoTokenizer) -> None:
    assert tokenizer.num_word_classes == len(WORDS)
    assert tokenizer.predicted_words == WORDS
    assert tokenizer.word_classes(WORDS).tolist() == list(range(len(WORDS)))
    assert tokenizer.class_words(range(len(WORDS))) == WORDS
    assert tokenizer.word_classes(["nowhere", "the", "The"]).tolist() == [2, 3, 2]
    assert tokenizer.word_classes([]).tolist() == []


def test_a_saved_tokenizer_keeps_the_predicted_words(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path / "saved")
    loaded = ElmoTokenizer.from_pretrained(tmp_path / "saved")
    assert loaded.predicted_words == WORDS
    assert loaded.word_classes(["ferry", "nowhere"]).tolist() == [4, 2]
    assert (tmp_path / "saved" / "words.txt").exists() == (tokenizer.token_encoder == "char_cnn")


def test_duplicate_lines_keep_their_class_and_the_later_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\n!!!MAXTERMID\ncat\nthe\n", encoding="utf-8")
    for tokenizer in (
        ElmoTokenizer(words_file=str(path)),
        ElmoTokenizer(token_encoder="word_embedding", vocab_file=str(path)),
    ):
        assert tokenizer.num_word_classes == 6
        assert tokenizer.word_classes(["the", "cat"]).tolist() == [5, 4]
        assert tokenizer.class_words([3, 4, 5]) == ["<UNK>", "cat", "the"]


def test_tokenizers_without_predicted_words_say_so() -> None:
    tokenizer = ElmoTokenizer()
    assert tokenizer.num_word_classes is None
    assert tokenizer.predicted_words is None
    with pytest.raises(ValueError, match=r"Load it with `words_file=\.\.\.`"):
        tokenizer.class_words([0])


def test_a_vocabulary_of_predicted_words_needs_the_three_special_ones(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("<S>\n</S>\nthe\n", encoding="utf-8")
    with pytest.raises(ValueError, match="the vocabulary lacks <UNK>"):
        ElmoTokenizer(words_file=str(path))


@pytest.mark.parametrize(("largest", "dtype"), [(2**15 - 1, np.int16), (2**15, np.int32), (2**17, np.int32)])
def test_ids_have_a_type_that_holds_the_largest(largest: int, dtype: type) -> None:
    class Codes:
        boundaries = ("<S>", "</S>")

        def convert_tokens_to_ids(self, words: list[str]) -> list[list[int]]:
            return [[largest - len(words) + 1 + place] * 3 for place in range(len(words))]

        def word_classes(self, words: list[str]) -> np.ndarray:
            return np.arange(len(words))

    corpus = Corpus.from_sentences([["a", "b"]], Codes())
    assert corpus.ids.dtype == dtype
    assert corpus.ids[:, 0].tolist() == [largest - 3, largest - 2, largest - 1, largest]
