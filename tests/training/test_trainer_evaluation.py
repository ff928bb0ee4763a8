"""Scores and losses that the Trainer of language models logs; the stock Trainer on padded sentences."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hand_written import logged, train, weights_of
from pretraining_runs import make_arguments, make_corpus, make_model, make_sentences, make_tokenizer
from tiny_inputs import assert_outputs_close
from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments

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


def test_evaluation_scores_each_direction_from_zero_and_carried_and_leaves_training_alone(
    corpus: Corpus, tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    held_out = make_corpus(tokenizer, 6, seed=2)
    model, undisturbed = make_model(lm_dropout=0.3), make_model(lm_dropout=0.3)
    args = make_arguments(tmp_path, max_steps=3, eval_strategy="steps", eval_steps=1)
    trainer = ElmoPretrainer(model, args, train_dataset=corpus, eval_dataset=held_out)
    trainer.train()
    assert len(logged(trainer, "eval_perplexity")) == 3
    assert_outputs_close(weights_of(model), weights_of(train(corpus, tmp_path, undisturbed, max_steps=3).model), 0)
    metrics = trainer.evaluate()
    zero, carried = score_from_zero(model.eval(), held_out), score_carried(model, held_out)
    expected = {
        "eval_forward_perplexity": zero.forward_perplexity,
        "eval_backward_perplexity": zero.backward_perplexity,
        "eval_perplexity": (zero.forward_perplexity * zero.backward_perplexity) ** 0.5,
        "eval_carried_forward_perplexity": carried.forward_perplexity,
        "eval_carried_backward_perplexity": carried.backward_perplexity,
        "eval_carried_perplexity": (carried.forward_perplexity * carried.backward_perplexity) ** 0.5,
        "eval_loss": float(-(np.nanmean(zero.forward) + np.nanmean(zero.backward)) / 2),
    }
    del metrics["epoch"]
    assert metrics == pytest.approx(expected, rel=1e-6)
    assert len({round(value, 6) for value in metrics.values()}) == len(metrics)


def test_other_text_is_scored_under_another_prefix(corpus: Corpus, tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    trainer = ElmoPretrainer(make_model(), make_arguments(tmp_path), train_dataset=corpus)
    other = make_corpus(tokenizer, 5, seed=3)
    metrics = trainer.evaluate(other, metric_key_prefix="test")
    assert metrics["test_forward_perplexity"] == score_from_zero(trainer.model.eval(), other).forward_perplexity


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


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_the_stock_trainer_trains_on_padded_sentences(padding_side: str, tmp_path: Path) -> None:
    """AllenNLP's way: each batch as many sentences, from the zero state, its loss a mean over their words."""
    tokenizer = make_tokenizer(tmp_path)
    tokenizer.padding_side = padding_side
    examples = []
    for words in make_sentences(8):
        example = tokenizer(words, is_split_into_words=True)
        examples.append({**example, "labels": tokenizer.word_classes(["<S>", *words, "</S>"]).tolist()})
    collator = DataCollatorForTokenClassification(tokenizer)
    expected = make_model()
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.2)
    for batch in DataLoader(examples, batch_size=4, collate_fn=collator):
        assert (batch["labels"] == -100).any()
        optimizer.zero_grad()
        expected.train()(**batch).loss.backward()
        optimizer.step()
    args = TrainingArguments(
        str(tmp_path / "out"),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        learning_rate=0.2,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        optim="sgd",
        train_sampling_strategy="sequential",
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(make_model(), args, collator, examples, eval_dataset=examples)
    assert not trainer.model_accepts_loss_kwargs
    trainer.train()
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 1e-6)
    assert np.isfinite(trainer.evaluate()["eval_loss"])
