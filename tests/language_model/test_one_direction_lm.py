"""A language model of one direction: its losses, streams, scores and training are the forward model's of two."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from one_direction import forward_half, half_of
from tiny_lm import MAKERS, SENTENCES, assert_close, inputs_of, stream_of, tiny_lm, tiny_tokenizer_of

from elmo_hf import BiLMState
from elmo_hf.language_model.cloze import gap_log_probs, predict_words
from elmo_hf.language_model.sampled_softmax import draw_candidates
from elmo_hf.language_model.surprisal_table import PlacedSentence, write_table

ROWS = [[SENTENCES[0], SENTENCES[1], SENTENCES[4]], [SENTENCES[3], SENTENCES[4][:1], SENTENCES[1]]]
TO_BACKWARD = {"backward_input_ids", "backward_targets"}


def without_backward(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in TO_BACKWARD}


def assert_is_forward_half(found: Any, expected: Any) -> None:
    assert {name for name in found if name.startswith(("backward", "sampled_backward"))} == set()
    for name in found:
        if name.startswith(("forward", "sampled_forward")):
            assert_close(found[name], expected[name])
        elif name.startswith("state"):
            assert_close(found[name], half_of(expected[name]))


@pytest.mark.parametrize("make", MAKERS, ids=["characters", "words"])
def test_sentences_have_the_forward_loss_alone(make: Any, tmp_path: Path) -> None:
    both = make()
    one, inputs = forward_half(both), inputs_of(both, tmp_path, SENTENCES, "left")
    found = one(**inputs, output_log_probs=True, output_logits=True)
    assert_is_forward_half(found, both(**inputs, output_log_probs=True, output_logits=True))
    assert_close(found.loss, found.forward_loss, 0)
    found.loss.backward()
    expected = torch.autograd.grad(both(**inputs).forward_loss, both.elmo.bilm.layers[0].forward_lstm.parameters())
    for parameter, gradient in zip(one.elmo.bilm.parameters(), expected, strict=False):
        assert_close(parameter.grad, gradient)


def test_streams_carry_the_state_and_reset_it(tmp_path: Path) -> None:
    both = tiny_lm()
    one, stream = forward_half(both), stream_of(both, tmp_path, ROWS)
    resets = torch.zeros(stream["forward_targets"].shape, dtype=torch.bool)
    resets[0, 3] = True
    state = BiLMState(torch.randn(2, 2, 14), torch.randn(2, 2, 18))
    half_state = BiLMState(*map(half_of, state))
    found = one(**without_backward(stream), forward_resets=resets, state=half_state, output_log_probs=True)
    assert_is_forward_half(found, both(**stream, forward_resets=resets, state=state, output_log_probs=True))


def test_a_sampled_loss_is_the_forward_one_with_its_candidates(tmp_path: Path) -> None:
    both = tiny_lm(softmax="sampled", lm_dropout=0.0).train()
    one, stream = forward_half(both), stream_of(both, tmp_path, ROWS)
    drawn = [draw_candidates(len(both.softmax.bias), both.config.num_softmax_samples) for _ in range(2)]
    found = one(**without_backward(stream), candidates=drawn[:1])
    assert_is_forward_half(found, both(**stream, candidates=drawn))
    assert_close(found.loss, found.sampled_forward_loss, 0)


@pytest.mark.parametrize("carries_state", [False, True])
def test_scores_are_the_forward_ones_and_backward_is_unscored(carries_state: bool, tmp_path: Path) -> None:
    both = tiny_lm()
    one, tokenizer = forward_half(both), tiny_tokenizer_of(both, tmp_path)
    found, expected = (
        model.score(SENTENCES, tokenizer, carries_state=carries_state, num_rows=1) for model in (one, both)
    )
    np.testing.assert_allclose(found.forward, expected.forward, atol=1e-5)
    assert np.isnan(found.backward).all()
    assert found.perplexity == found.forward_perplexity == pytest.approx(expected.forward_perplexity, rel=1e-5)
    assert math.isnan(found.backward_perplexity)
    placed = [PlacedSentence(line, words, range(len(words))) for line, words in enumerate(SENTENCES)]
    write_table(tmp_path / "bits.tsv", placed, found, tokenizer)
    rows = [line.split("\t") for line in (tmp_path / "bits.tsv").read_text(encoding="utf-8").splitlines()]
    assert {row[5] for row in rows[1:]} == {""}
    assert sum(row[4] != "" for row in rows[1:]) == len(found.forward)


def test_words_for_a_gap_follow_from_the_words_before_it(tmp_path: Path) -> None:
    both = tiny_lm()
    one, tokenizer = forward_half(both), tiny_tokenizer_of(both, tmp_path)
    words = ["the", "ferry", "___", "dawn"]
    assert_close(gap_log_probs(one, tokenizer, words, [2]), gap_log_probs(both, tokenizer, words, [2])[:1])
    for found in predict_words(one, tokenizer, words, top_k=3):
        assert (found.probability, found.backward) == (pytest.approx(found.forward), None)
