"""Tiny language models with character and with word input."""

import pytest

from elmo_hf import ElmoForPreTraining
from tests.helpers.tiny_lm import tiny_lm, tiny_word_lm


@pytest.fixture(params=[tiny_lm, tiny_word_lm], ids=["characters", "words"])
def each_lm(request: pytest.FixtureRequest) -> ElmoForPreTraining:
    return request.param()
