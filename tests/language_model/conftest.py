"""Tiny language models with character and with word input."""

import pytest
from tiny_lm import tiny_lm, tiny_word_lm

from elmo_hf import ElmoForPreTraining


@pytest.fixture(params=[tiny_lm, tiny_word_lm], ids=["characters", "words"])
def each_lm(request: pytest.FixtureRequest) -> ElmoForPreTraining:
    return request.param()
