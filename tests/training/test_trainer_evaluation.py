"""Losses and scores that the Trainer of language models logs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hand_written import logged, train, weights_of
from pretraining_runs import make_corpus, make_model
from tiny_inputs import assert_outputs_close

from elmo_hf.language_model.scoring import score_carried, score_from_zero


@pytest.mark.parametrize("fields", [{}, {"bidirectional": False}, {"softmax": "sampled"}], ids=str)
def test_evaluation_scores_each_direction_from_zero_and_carried_and_leaves_training_alone(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    held_out, directions = make_corpus(6, seed=2), ["forward", "backward"][: 1 if "bidirectional" in fields else 2]
    model, undisturbed = (make_model(lm_dropout=0.3, **fields) for _ in range(2))
    trainer = train(tmp_path, model, held_out, max_steps=3, eval_strategy="steps", eval_steps=1)
    assert len(logged(trainer, "eval_perplexity")) == 3
    assert_outputs_close(weights_of(model), weights_of(train(tmp_path, undisturbed, max_steps=3).model), 0)
    # Sampled losses have their own names.
    kind = "sampled_" if fields.get("softmax") == "sampled" else ""
    losses = [logged(trainer, f"{kind}{name}_loss") for name in directions]
    assert_outputs_close(logged(trainer, "loss"), np.mean(losses, axis=0).tolist(), 1e-4)
    assert sum(name.endswith("ward_loss") for name in trainer.state.log_history[0]) == len(directions)
    metrics = trainer.evaluate()
    zero, carried = score_from_zero(model.eval(), held_out), score_carried(model, held_out)
    expected = {}
    for state, scores in (("", zero), ("carried_", carried)):
        means = {name: -np.nanmean(getattr(scores, name), dtype=np.float64) for name in directions}
        expected |= {f"eval_{state}{name}_perplexity": np.exp(mean) for name, mean in means.items()}
        expected[f"eval_{state}perplexity"] = np.exp(sum(means.values()) / len(means))
    expected["eval_loss"] = np.log(expected["eval_perplexity"])
    del metrics["epoch"]
    assert metrics == pytest.approx(expected, rel=1e-6)
    assert len(directions) == 1 or len({round(value, 6) for value in metrics.values()}) == len(metrics)
    other = make_corpus(5, seed=3)
    tested = trainer.evaluate(other, metric_key_prefix="test")
    assert tested["test_forward_perplexity"] == score_from_zero(model, other).forward_perplexity


def test_a_model_that_diverges_is_logged_and_scored_as_such(tmp_path: Path) -> None:
    model = make_model()
    with torch.no_grad():
        model.softmax.bias[0] = 5e4
    trainer = train(tmp_path, model, max_steps=1, learning_rate=0)
    metrics = trainer.evaluate(make_corpus(4, seed=2))
    names = ("eval_forward_perplexity", "eval_carried_backward_perplexity", "eval_perplexity", "eval_loss")
    assert [metrics[name] for name in names] == [np.inf] * 4
    with torch.no_grad():
        model.softmax.bias[0] = np.nan
    assert np.isnan(logged(train(tmp_path, model, max_steps=1, learning_rate=0), "loss")).all()
