"""A tiny tokenizer and corpus for training, and a run that was killed."""

from pathlib import Path

import pytest
from pretraining_runs import ROWS, STEPS, make_corpus, make_tokenizer
from resumed_runs import interrupt

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.training.trainer import ElmoPretrainer


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return make_tokenizer(tmp_path)


@pytest.fixture
def corpus(tokenizer: ElmoTokenizer) -> Corpus:
    """137 predictions in each direction: 9 windows of 3 rows of 5 steps a pass."""
    corpus = make_corpus(tokenizer)
    assert corpus.num_predictions // (ROWS * STEPS) == 9
    return corpus


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its second pass, in step 11."""
    folder = tmp_path_factory.mktemp("stopped")
    interrupt(folder, ElmoPretrainer, "training_step", 11)
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["checkpoint-4", "checkpoint-8", "run.json"]
    return folder
