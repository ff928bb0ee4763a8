"""Scores and losses that the Trainer of language models logs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hand_written import logged, train, weights_of
from pretraining_runs import make_arguments, make_corpus, make_model, make_tokenizer
from tiny_inputs import assert_outputs_close

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.scoring import score_carried, score_from_zero
from elmo_hf.training.trainer import ElmoPretrainer


def test_sampled_losses_are_logged_under_their_own_names(corpus: Corpus, tmp_path: Path) -> None:
    model = make_model(softmax="sampled", num_softmax_samples=4)
    held_out = make_corpus(make_tokenizer(tmp_path), 4, seed=2)
    trainer = ElmoPretrainer(
        model,
        make_arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=2),
        train_dataset=corpus,
        eval_dataset=held_out,
    )
    trainer.train()
    sampled = np.array([logged(trainer, f"sampled_{name}_loss") for name in ("forward", "backward")])
    assert_outputs_close(logged(trainer, "loss"), sampled.mean(axis=0).tolist(), 1e-4)
    assert logged(trainer, "forward_loss") == []
    assert logged(trainer, "eval_forward_perplexity") == [
        pytest.approx(score_from_zero(model.eval(), held_out).forward_perplexity)
    ]


@pytest.mark.parametrize("directions", [("forward", "backward"), ("forward",)], ids=["both", "forward"])
def test_evaluation_scores_each_direction_from_zero_and_carried_and_leaves_training_alone(
    directions: tuple[str, ...], corpus: Corpus, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    held_out, is_both = make_corpus(tokenizer, 6, seed=2), len(directions) == 2
    model, undisturbed = (make_model(lm_dropout=0.3, bidirectional=is_both) for _ in range(2))
    args = make_arguments(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1)
    trainer = ElmoPretrainer(model, args, train_dataset=corpus, eval_dataset=held_out)
    trainer.train()
    assert len(logged(trainer, "eval_perplexity")) == 3
    assert_outputs_close(weights_of(model), weights_of(train(corpus, tmp_path, undisturbed, max_steps=3).model), 0)
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
    assert not is_both or len({round(value, 6) for value in metrics.values()}) == len(metrics)
    other = make_corpus(tokenizer, 5, seed=3)
    tested = trainer.evaluate(other, metric_key_prefix="test")
    assert tested["test_forward_perplexity"] == score_from_zero(model, other).forward_perplexity


def test_a_model_that_diverges_is_logged_and_scored_as_such(
    corpus: Corpus, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    model = make_model()
    with torch.no_grad():
        model.softmax.bias[0] = 5e4
    trainer = train(corpus, tmp_path, model, max_steps=1, learning_rate=0)
    metrics = trainer.evaluate(make_corpus(tokenizer, 4, seed=2))
    names = ("eval_forward_perplexity", "eval_carried_backward_perplexity", "eval_perplexity", "eval_loss")
    assert [metrics[name] for name in names] == [np.inf] * 4
    with torch.no_grad():
        model.softmax.bias[0] = np.nan
    assert np.isnan(logged(train(corpus, tmp_path, model, max_steps=1, learning_rate=0), "loss")).all()
