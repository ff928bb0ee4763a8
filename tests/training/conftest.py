"""A tiny tokenizer and corpus for training."""

from pathlib import Path

import pytest
from pretraining_runs import ROWS, STEPS, make_corpus, make_tokenizer

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return make_tokenizer(tmp_path)


@pytest.fixture
def corpus(tokenizer: ElmoTokenizer) -> Corpus:
    """137 predictions in each direction: 9 windows of 3 rows of 5 steps a pass."""
    corpus = make_corpus(tokenizer)
    assert corpus.num_predictions // (ROWS * STEPS) == 9
    return corpus
