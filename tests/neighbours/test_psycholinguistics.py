"""The libraries surprisal, by `examples/psycholinguistics.py`, and minicons give the numbers of `model.score`."""

import math
from typing import Any

import numpy as np
import psycholinguistics
import pytest
import torch

from elmo_hf import ElmoForCausalLM, ElmoForPreTraining, tiny_model, tiny_tokenizer

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


def test_minicons_scores_words_that_the_softmax_knows_and_others(elmo: tuple[Any, Any]) -> None:
    scorers = pytest.importorskip("minicons.scorer")
    texts = [*TEXTS, "Yes, the xylofoon is on the table."]
    scorer = scorers.IncrementalLMScorer(
        tiny_model(ElmoForCausalLM), "cpu", tokenizer=psycholinguistics.WordIds(elmo[1])
    )
    scores = elmo[0].score([elmo[1].tokenize(text) for text in texts], elmo[1])
    expected = [-scores.surprisals(row)[0][:-1] for row in range(len(texts))]
    for pairs, bits in zip(scorer.token_score(texts, base_two=True), expected, strict=True):
        # minicons subtracts float32 logits of about 20.
        np.testing.assert_allclose([score for _, score in pairs[1:]], bits, rtol=1e-5, atol=5e-5)
    rest = scorer.conditional_score("Yes, the xylofoon", "is on the table.", reduction=torch.sum, base_two=True)
    assert rest[0].item() == pytest.approx(expected[2][4:].sum(), rel=1e-5)


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
