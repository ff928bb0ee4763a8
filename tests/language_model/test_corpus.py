"""A corpus as numbers: each distinct word once, sentences by their places, lengths counted."""

from types import SimpleNamespace

import numpy as np
import pytest
from tiny_lm import SENTENCES, WORDS, tokenizer_with

from elmo_hf.language_model.corpus import Corpus

NUM_WORDS = sum(map(len, SENTENCES))


@pytest.mark.parametrize("token_encoder", ["char_cnn", "word_embedding"])
def test_a_text_is_places_in_a_table_of_its_distinct_words(token_encoder: str) -> None:
    tokenizer = tokenizer_with(token_encoder=token_encoder)
    corpus = Corpus.from_sentences(iter(SENTENCES), tokenizer)
    distinct = list(dict.fromkeys(["<S>", "</S>", *(word for words in SENTENCES for word in words)]))
    assert corpus.ids.tolist() == tokenizer.convert_tokens_to_ids(distinct)
    assert corpus.classes.tolist() == [WORDS.index(word) if word in WORDS else 2 for word in distinct]
    assert corpus.words.tolist() == [distinct.index(word) for words in SENTENCES for word in words]
    assert corpus.starts.tolist() == np.cumsum([0, *map(len, SENTENCES)]).tolist()
    assert [[distinct[row] for row in corpus.sentence(number)] for number in range(len(corpus))] == SENTENCES
    assert (corpus.num_words, corpus.num_predictions) == (NUM_WORDS, NUM_WORDS + len(SENTENCES))
    shares = [corpus.share_of_class(WORDS.index(word)) for word in ("<UNK>", "the", "<S>")]
    assert shares == pytest.approx([3 / NUM_WORDS, 4 / NUM_WORDS, 0])
    assert corpus.words.dtype == np.int32
    assert Corpus.from_sentences([["the", "</S>", "<S>"]], tokenizer).words.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("largest", "dtype"), [(2**15 - 1, np.int16), (2**15, np.int32), (2**17, np.int32)])
def test_ids_have_a_type_that_holds_the_largest(largest: int, dtype: type) -> None:
    ids = [[largest - number] * 3 for number in range(4)]
    codes = SimpleNamespace(boundaries=("<S>", "</S>"), convert_tokens_to_ids=lambda words: ids, word_classes=len)
    corpus = Corpus.from_sentences([["a", "b"]], codes)
    assert corpus.ids.dtype == dtype
    assert corpus.ids.tolist() == ids
