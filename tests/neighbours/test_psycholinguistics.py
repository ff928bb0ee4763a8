"""The scorers of `examples/psycholinguistics.py` say what `model.score` says."""

import math
from typing import Any

import numpy as np
import psycholinguistics
import pytest
import torch

from elmo_hf import ElmoForPreTraining, tiny_model, tiny_tokenizer

TEXTS = ["The keys are  on the table.", "Yes"]
WORDS = [["The", "keys", "are", "on", "the", "table", "."], ["Yes"]]


@pytest.fixture(scope="module")
def elmo() -> tuple[Any, Any]:
    return tiny_model(ElmoForPreTraining), tiny_tokenizer()


@pytest.fixture(params=["forward", "backward"])
def direction(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def nats(elmo: tuple[Any, Any], direction: str) -> list[np.ndarray]:
    """The surprisal of each word, by the equations' logarithm."""
    scores = elmo[0].score(WORDS, elmo[1])
    log_probs = np.split(getattr(scores, direction), scores.starts[1:-1])
    return [-(row[:-1] if direction == "forward" else row[1:]) for row in log_probs]


def test_bits_are_those_of_the_words(elmo: tuple[Any, Any], direction: str, nats: list[np.ndarray]) -> None:
    for found, expected in zip(psycholinguistics.bits(*elmo, TEXTS, direction), nats, strict=True):
        np.testing.assert_allclose(found, expected / math.log(2), rtol=1e-6)


def test_the_model_of_surprisal(elmo: tuple[Any, Any], direction: str, nats: list[np.ndarray]) -> None:
    pytest.importorskip("surprisal")
    model = psycholinguistics.ElmoSurprisal(*elmo, direction)
    texts = model.surprise(TEXTS)
    for found, words, expected in zip(texts, WORDS, nats, strict=True):
        assert list(found.tokens) == words
        np.testing.assert_allclose(found.surprisals.astype(float), expected, rtol=1e-6)
    assert texts[0][0:2, "word"] == pytest.approx(nats[0][:2].sum())
    assert texts[0][9:12] == pytest.approx(nats[0][2])
    assert texts[0][9:12].text == "are"
    assert [list(alone.tokens) for alone in model.surprise(TEXTS[0])] == WORDS[:1]


def test_the_scorer_of_minicons(elmo: tuple[Any, Any], direction: str, nats: list[np.ndarray]) -> None:
    pytest.importorskip("minicons")
    scorer = psycholinguistics.ElmoScorer(*elmo, direction)
    for pairs, words, expected in zip(scorer.token_score(TEXTS, surprisal=True), WORDS, nats, strict=True):
        assert [word for word, _ in pairs] == words
        np.testing.assert_allclose([score for _, score in pairs], expected, rtol=1e-6)
    assert scorer.sequence_score(TEXTS) == pytest.approx([-row.mean() for row in nats])
    total = scorer.sequence_score(TEXTS[0], reduction=torch.sum, base_two=True)[0]
    assert total.item() == pytest.approx(-nats[0].sum() / math.log(2))


def test_the_example_prints_both_directions_of_both_texts(
    elmo: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    psycholinguistics.main()
    printed = capsys.readouterr().out
    assert printed.count("forward  backward (bits)") == 2
    for row, text in enumerate(psycholinguistics.PAIR):
        bits = (psycholinguistics.bits(*elmo, psycholinguistics.PAIR, each)[row] for each in ("forward", "backward"))
        for word, forward, backward in zip(elmo[1].tokenize(text), *bits, strict=True):
            assert f"{word:>10}  {forward:7.2f}  {backward:8.2f}\n" in printed
