"""A tiny corpus for training."""

import pytest
from pretraining_runs import ROWS, STEPS, make_corpus

from elmo_hf.language_model.corpus import Corpus


@pytest.fixture
def corpus() -> Corpus:
    """137 predictions in each direction: 9 windows of 3 rows of 5 steps a pass."""
    corpus = make_corpus()
    assert corpus.num_predictions // (ROWS * STEPS) == 9
    return corpus
