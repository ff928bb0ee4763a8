"""Language models of one direction, a causal one too: losses, streams and scores are the forward model's of two."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from elmo_hf import BiLMState, ElmoForCausalLM, ElmoForPreTraining
from elmo_hf.folder.loading import load_complete
from elmo_hf.language_model.sampled_softmax import draw_candidates
from elmo_hf.model import language_model_elmo
from tests.helpers.one_direction import forward_half, half_of
from tests.helpers.tiny_lm import SENTENCES, assert_close, inputs_of, stream_of, tiny_lm, tiny_word_lm, tokenizer_of


@pytest.mark.parametrize("kind", ["sentences", "words", "stream", "sampled"])
def test_outputs_and_gradients_are_those_of_the_forward_direction(kind: str) -> None:
    makes, softmax = tiny_word_lm if kind == "words" else tiny_lm, "sampled" if kind == "sampled" else "full"
    both = makes(softmax=softmax, lm_dropout=0.0).train(kind == "sampled")
    given: dict[str, Any] = {"output_log_probs": True, "output_logits": True}
    if kind in ("stream", "sampled"):
        resets = torch.zeros(2, 12, dtype=torch.bool)
        resets[0, 3] = True
        given |= stream_of(both) | {"forward_resets": resets}
    else:
        given |= inputs_of(both, side="left")
    state = BiLMState(torch.randn(2, len(given["input_ids"]), 14), torch.randn(2, len(given["input_ids"]), 18))
    drawn = [draw_candidates(len(both.softmax.bias), 8) for _ in range(2)] if kind == "sampled" else None
    expected = both(**given, state=state, candidates=drawn)
    one, half_state = forward_half(both), BiLMState(*map(half_of, state))
    given = {name: value for name, value in given.items() if not name.startswith("backward")}
    found = one(**given, state=half_state, candidates=drawn and drawn[:1])
    loss = expected[f"{'sampled_' * (kind == 'sampled')}forward_loss"]
    assert_close(found.loss, loss)
    for name in found.keys() - {"loss"}:
        assert "backward" not in name
        assert_close(found[name], half_of(expected[name]) if name.startswith("state") else expected[name])
    layers = both.elmo.bilm.layers
    gradients = torch.autograd.grad(loss, [each for layer in layers for each in layer.forward_lstm.parameters()])
    assert_close(torch.autograd.grad(found.loss, [*one.elmo.bilm.parameters()]), gradients)


@pytest.mark.parametrize("carries_state", [False, True])
def test_scores_are_the_forward_ones_and_backward_is_unscored(carries_state: bool) -> None:
    both = tiny_lm()
    found, expected = (
        model.score(SENTENCES, tokenizer_of(both), carries_state=carries_state, num_rows=1)
        for model in (forward_half(both), both)
    )
    np.testing.assert_allclose(found.forward, expected.forward, atol=1e-5)
    assert np.isnan([*found.backward, found.backward_perplexity]).all()
    assert found.perplexity == found.forward_perplexity == pytest.approx(expected.forward_perplexity, rel=1e-5)


@pytest.mark.parametrize("makes", [tiny_lm, tiny_word_lm])
def test_logits_and_loss_are_the_forward_models_of_words_counted_from_one(makes: Any, tmp_path: Path) -> None:
    both = makes()
    both.save_pretrained(tmp_path / "both")
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "both", output_loading_info=True)
    assert not any(info.values())
    inputs = inputs_of(both, side="left")
    inputs["labels"][0, -2] = 0
    expected = both(**inputs, output_logits=True)
    inputs["labels"] = torch.where(inputs["attention_mask"] == 1, inputs["labels"] + 1, 0)
    found = model.eval()(**inputs)
    assert_close(found.logits[..., 1:], expected.forward_logits)
    assert_close(found.loss, expected.forward_loss)
    assert (found.logits.softmax(-1)[..., 0] * found.logits[..., 0] == 0).all()
    model.save_pretrained(tmp_path / "half")
    for folder in ("both", "half"):
        assert_close(load_complete(tmp_path / folder, ElmoForCausalLM)(**inputs).logits, found.logits)


def test_a_linear_mix_of_both_directions_stays_behind_and_one_of_one_direction_does_not(tmp_path: Path) -> None:
    both = tiny_lm(layer_mix="linear")
    both.save_pretrained(tmp_path / "both")
    inputs = inputs_of(both)
    causal = ElmoForCausalLM.from_pretrained(tmp_path / "both").eval()
    assert_close(causal(**inputs).logits[..., 1:], both(**inputs, output_logits=True).forward_logits)
    one = tiny_lm(layer_mix="linear", bidirectional=False)
    torch.nn.init.normal_(one.elmo.linear_mixes[0].linear.weight)
    one.save_pretrained(tmp_path / "one")
    causal = ElmoForCausalLM.from_pretrained(tmp_path / "one")
    assert_close(causal.elmo.linear_mixes[0].linear.weight, one.elmo.linear_mixes[0].linear.weight)


def test_what_an_encoder_of_both_directions_has_more_is_no_unexpected_key(tmp_path: Path) -> None:
    tiny_lm(layer_mix="linear").elmo.save_pretrained(tmp_path)
    _, info = ElmoForCausalLM.from_pretrained(tmp_path, num_softmax_words=7, output_loading_info=True)
    assert info["missing_keys"] == {"softmax.weight", "softmax.bias"}
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]


def test_a_causal_model_always_returns_logits_and_refuses_to_return_log_probabilities() -> None:
    model = ElmoForCausalLM(tiny_lm().config).eval()
    inputs = inputs_of(model)
    expected = model(**inputs).logits
    for output_logits in (None, False, True):
        assert torch.equal(model(**inputs, output_logits=output_logits).logits, expected)
    assert torch.equal(model(**inputs, output_log_probs=False).logits, expected)
    with pytest.raises(ValueError, match=r"`output_log_probs` must be False .*`logits\.log_softmax"):
        model(**inputs, output_log_probs=True)


def test_there_is_one_class_of_language_models_and_the_causal_one_has_no_streams_and_scores() -> None:
    assert ElmoForPreTraining is language_model_elmo.ElmoForPreTraining
    both = tiny_lm()
    causal = ElmoForCausalLM(both.config)
    calls = (
        lambda: causal.score(SENTENCES, tokenizer_of(both)),
        lambda: causal.predict_words(tokenizer_of(both), ["the", "___"]),
        lambda: causal(**{name: part for name, part in stream_of(both).items() if "backward" not in name}),
        lambda: causal(**inputs_of(both), candidates=[1]),
    )
    for call in calls:
        with pytest.raises(NotImplementedError, match=r"load the model with `ElmoForPreTraining` of the package"):
            call()


def test_the_causal_model_trains_on_the_full_softmax_also_where_the_config_samples() -> None:
    torch.manual_seed(0)
    sampled = ElmoForCausalLM(tiny_lm(softmax="sampled", lm_dropout=0.0).config)
    inputs = inputs_of(sampled)
    assert sampled.config.softmax == "sampled"
    assert_close(sampled.train()(**inputs).loss, sampled.eval()(**inputs).loss)


def test_rows_of_characters_as_labels_are_refused_by_the_causal_model() -> None:
    causal = ElmoForCausalLM(tiny_lm().config)
    inputs = inputs_of(causal)
    inputs["labels"] = inputs["input_ids"]
    with pytest.raises(
        ValueError, match=r"`labels` must be the numbers of words, .* a copy of `input_ids`, as run_clm"
    ):
        causal(**inputs)
