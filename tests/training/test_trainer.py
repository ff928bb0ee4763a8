"""The Trainer of language models: equal to a loop written out by hand, setting by setting."""

import copy
import pickle
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_models import words_file
from pretraining_runs import (
    ROWS,
    STEPS,
    VOCABULARY,
    make_arguments,
    make_corpus,
    make_model,
    make_sentences,
    make_tokenizer,
)
from tiny_inputs import assert_outputs_close, word_config
from torch.utils.data import DataLoader
from transformers import DataCollatorForTokenClassification, Trainer, TrainerCallback, TrainingArguments

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.scoring import score_carried, score_from_zero, stream_inputs
from elmo_hf.language_model.streams import Stream
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments, Windows

Weights = dict[str, torch.Tensor]
Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def adagrad(weight: torch.Tensor, gradient: torch.Tensor, accumulator: torch.Tensor) -> None:
    accumulator += gradient**2
    weight -= 0.2 * gradient / accumulator.sqrt().clamp(min=1e-10)


def adagrad_with_decay(weight: torch.Tensor, gradient: torch.Tensor, accumulator: torch.Tensor) -> None:
    adagrad(weight, gradient + (0.1 * weight if weight.dim() > 1 else 0), accumulator)


def descent(weight: torch.Tensor, gradient: torch.Tensor, accumulator: torch.Tensor) -> None:
    weight -= 0.2 * gradient


def hand_written(
    model: ElmoForPreTraining,
    corpus: Corpus,
    num_updates: int,
    *,
    rows: int = ROWS,
    steps: int = STEPS,
    factor: float = STEPS,
    start: float = 1.0,
    clip: float = 10.0,
    reset_probability: float = 0.0,
    windows_per_update: tuple[int, ...] = (1,),
    frozen_updates: int = 0,
    update: Update = adagrad,
) -> tuple[list[list[float]], list[float]]:
    """Trains as bilm-tf does, in the plainest way; returns each update's losses of both directions, and its norm."""
    model.train()
    streams = [
        Stream(corpus, rows, is_backward=is_backward, seed=11, reset_probability=reset_probability)
        for is_backward in (False, True)
    ]
    named = {name: weight for name, weight in model.named_parameters() if "scalar_mixes" not in name}
    accumulators = {name: torch.full_like(weight, start) for name, weight in named.items()}
    state, losses, norms = None, [], []
    for number in range(num_updates):
        num_windows = windows_per_update[number % len(windows_per_update)]
        gradients = {name: torch.zeros_like(weight) for name, weight in named.items()}
        losses.append([0.0, 0.0])
        for _ in range(num_windows):
            forward, backward = (stream.take(steps) for stream in streams)
            output = model(**stream_inputs(corpus, forward, backward), state=state)
            state = output.state
            model.zero_grad()
            (factor * (output.forward_loss + output.backward_loss) / 2 / num_windows).backward()
            for name, weight in named.items():
                gradients[name] += weight.grad
            for direction, loss in enumerate((output.forward_loss, output.backward_loss)):
                losses[-1][direction] += loss.item() / num_windows
        if number < frozen_updates:
            gradients = {name: gradient for name, gradient in gradients.items() if name.startswith("softmax.")}
        norms.append(float(sum(gradient.pow(2).sum() for gradient in gradients.values()).sqrt()))
        with torch.no_grad():
            for name, gradient in gradients.items():
                update(named[name], gradient * clip / max(norms[-1], clip), accumulators[name])
    return losses, norms


def weights_of(model: torch.nn.Module) -> Weights:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def logged(trainer: Trainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


@pytest.fixture
def tokenizer(tmp_path: Path) -> ElmoTokenizer:
    return make_tokenizer(tmp_path)


@pytest.fixture
def corpus(tokenizer: ElmoTokenizer) -> Corpus:
    """137 predictions in each direction: 9 windows of 3 rows of 5 steps a pass."""
    corpus = make_corpus(tokenizer)
    assert corpus.num_predictions // (ROWS * STEPS) == 9
    return corpus


def train(corpus: Corpus, folder: Path, model: ElmoForPreTraining | None = None, **settings: Any) -> ElmoPretrainer:
    trainer = ElmoPretrainer(
        make_model() if model is None else model, make_arguments(folder, **settings), train_dataset=corpus
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("settings", "by_hand"),
    [
        ({}, {}),
        ({"scale_loss_by_steps": False}, {"factor": 1.0}),
        ({"adagrad_start": 0.05}, {"start": 0.05}),
        ({"adagrad_start": 0.3}, {"start": 0.3}),
        ({"max_grad_norm": 0.7}, {"clip": 0.7}),
        ({"max_grad_norm": 0.0}, {"clip": 1e9}),
        ({"reset_probability": 1.0}, {"reset_probability": 1.0}),
        ({"reset_probability": 0.5}, {"reset_probability": 0.5}),
        ({"unroll_steps": 4}, {"steps": 4, "factor": 4.0}),
        ({"per_device_train_batch_size": 2}, {"rows": 2}),
        ({"optim": "sgd"}, {"update": descent}),
        ({"weight_decay": 0.1}, {"update": adagrad_with_decay}),
        ({"frozen_steps": 2}, {"frozen_updates": 2}),
    ],
    ids=lambda value: str(list(value)),
)
def test_three_steps_equal_those_of_a_loop_by_hand(
    settings: dict[str, Any], by_hand: dict[str, Any], corpus: Corpus, tmp_path: Path
) -> None:
    expected = make_model()
    losses, norms = hand_written(expected, corpus, 3, **by_hand)
    trainer = train(corpus, tmp_path, max_steps=3, **settings)
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 2e-6)
    assert_outputs_close(logged(trainer, "loss"), np.mean(losses, axis=1).tolist(), 1e-4)
    assert_outputs_close(logged(trainer, "forward_loss"), [forward for forward, _ in losses], 1e-4)
    assert_outputs_close(logged(trainer, "backward_loss"), [backward for _, backward in losses], 1e-4)
    assert_outputs_close(logged(trainer, "grad_norm"), norms, 1e-4)


def test_the_order_of_sentences_follows_from_the_seed_of_the_data(corpus: Corpus, tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{}, {"seed": 12}, {"seed": 12, "data_seed": 11}, {"data_seed": 12}]
    windows = [Windows(corpus, ROWS, range(ROWS), make_arguments(tmp_path, **each))[0] for each in settings]
    targets = [window["forward_targets"].tolist() for window in windows]
    assert targets[0] == targets[2] != targets[1] == targets[3]


def test_the_default_clipping_acts_on_the_gradient_of_the_scaled_loss(corpus: Corpus, tmp_path: Path) -> None:
    expected, model = make_model(), make_model()
    with torch.no_grad():
        for each in (expected, model):
            each.softmax.weight.mul_(30)
    _, norms = hand_written(expected, corpus, 2)
    assert min(norms) > 10
    trainer = train(corpus, tmp_path, model, max_steps=2)
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 2e-6)


def test_windows_go_on_from_pass_to_pass_without_starting_rows_anew(corpus: Corpus, tmp_path: Path) -> None:
    expected = make_model()
    losses, _ = hand_written(expected, corpus, 23)
    trainer = train(corpus, tmp_path, num_train_epochs=2.5)
    assert trainer.state.global_step == 23
    assert_outputs_close(logged(trainer, "forward_loss"), [forward for forward, _ in losses], 1e-4)
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 2e-5)


def test_the_loader_of_several_workers_reads_the_same_windows(corpus: Corpus, tmp_path: Path) -> None:
    alone, shared = (
        ElmoPretrainer(make_model(), make_arguments(tmp_path, dataloader_num_workers=number), train_dataset=corpus)
        for number in (0, 2)
    )
    for trainer in (alone, shared):
        trainer.state.max_steps = 8
    for expected, actual in zip(alone.get_train_dataloader(), shared.get_train_dataloader(), strict=True):
        assert_outputs_close(actual, expected, 0)


def test_windows_can_be_sent_to_a_worker_process(corpus: Corpus, tmp_path: Path) -> None:
    windows = Windows(corpus, ROWS, range(ROWS), make_arguments(tmp_path))
    assert_outputs_close(pickle.loads(pickle.dumps(windows))[1], windows[1], 0)


def test_a_window_behind_is_read_again(corpus: Corpus, tmp_path: Path) -> None:
    windows = Windows(corpus, ROWS, range(ROWS), make_arguments(tmp_path, reset_probability=0.4))
    in_order = list(islice((windows[number] for number in range(4)), 4))
    for number in (3, 0, 2, 1):
        assert_outputs_close(windows[number], in_order[number], 0)


def test_processes_read_rows_of_the_same_streams(corpus: Corpus, tmp_path: Path) -> None:
    args = make_arguments(tmp_path, reset_probability=1.0)
    whole = Windows(corpus, ROWS, range(ROWS), args)[1]
    parts = [Windows(corpus, ROWS, range(*bounds), args)[1] for bounds in ((0, 1), (1, ROWS))]
    for name in ("input_ids", "backward_input_ids", "forward_targets", "backward_targets"):
        assert_outputs_close(torch.cat([part[name] for part in parts]), whole[name], 0)


@pytest.mark.parametrize("num_windows", [2, 3])
def test_accumulated_windows_carry_the_state_and_average_their_losses(
    num_windows: int, corpus: Corpus, tmp_path: Path
) -> None:
    # A pass of 9 windows: four updates of 2 and one of the window that is left; or three of 3.
    windows_per_update = {2: (2, 2, 2, 2, 1), 3: (3,)}[num_windows]
    expected = make_model()
    losses, _ = hand_written(expected, corpus, 6, windows_per_update=windows_per_update)
    trainer = train(corpus, tmp_path, max_steps=6, gradient_accumulation_steps=num_windows)
    assert_outputs_close(weights_of(trainer.model), weights_of(expected), 2e-6)
    assert_outputs_close(logged(trainer, "loss"), np.mean(losses, axis=1).tolist(), 1e-4)
    assert_outputs_close(logged(trainer, "forward_loss"), [forward for forward, _ in losses], 1e-4)


def test_a_log_is_the_mean_since_the_last_one(corpus: Corpus, tmp_path: Path) -> None:
    each = train(corpus, tmp_path, max_steps=4)
    rarely = train(corpus, tmp_path, max_steps=4, logging_steps=2)
    for name in ("loss", "forward_loss", "backward_loss"):
        assert_outputs_close(
            logged(rarely, name), np.mean(np.reshape(logged(each, name), (2, 2)), axis=1).tolist(), 1e-4
        )


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
    message = "there is no held-out text to score: give `eval_dataset`, a `Corpus`."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        trainer.evaluate()


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


def test_frozen_steps_train_the_softmax_alone_and_start_the_accumulators_late(corpus: Corpus, tmp_path: Path) -> None:
    before, seen, accumulators = weights_of(make_model()), [], []

    class Watch(TrainerCallback):
        def on_step_end(self, *args: Any, model: ElmoForPreTraining, optimizer: Any, **kwargs: Any) -> None:
            seen.append(weights_of(model))
            state = optimizer.state[model.elmo.bilm.layers[0].forward_lstm.input_linear.weight]
            accumulators.append(state["sum"].clone())

    trainer = ElmoPretrainer(make_model(), make_arguments(tmp_path, max_steps=3, frozen_steps=2), train_dataset=corpus)
    trainer.add_callback(Watch())
    trainer.train()
    for name, weight in before.items():
        is_softmax, is_mix = name.startswith("softmax."), "scalar_mixes" in name
        assert [torch.equal(weights[name], weight) for weights in seen] == [
            not is_softmax,
            not is_softmax,
            is_mix,
        ], name
    assert [bool((accumulator == 1).all()) for accumulator in accumulators] == [True, True, False]


def test_the_scalar_mixes_are_not_changed(corpus: Corpus, tmp_path: Path) -> None:
    model = make_model(num_output_representations=2)
    for mix, weights in zip(model.elmo.scalar_mixes, ([0.2, 0.5, 0.3], [0.1, 0.1, 0.8]), strict=True):
        mix.set_weights(weights, scale=1.5)
    before = {name: tensor for name, tensor in weights_of(model).items() if "scalar_mixes" in name}
    after = weights_of(train(corpus, tmp_path, model, max_steps=2, weight_decay=0.1).model)
    assert len(before) == 4
    assert_outputs_close({name: after[name] for name in before}, before, 0)


def test_bfloat16_trains_near_to_float32(corpus: Corpus, tmp_path: Path) -> None:
    # Without clips, at whose borders a rounding turns a gradient on or off.
    exact, rounded = (
        train(corpus, tmp_path, make_model(cell_clip=None, projection_clip=None), max_steps=2, bf16=is_bf16)
        for is_bf16 in (False, True)
    )
    assert {tensor.dtype for tensor in rounded.model.state_dict().values()} == {torch.float32}
    assert logged(rounded, "loss") != logged(exact, "loss")
    # Numbers of eight bits.
    for actual, expected in zip(logged(rounded, "loss"), logged(exact, "loss"), strict=True):
        assert abs(actual - expected) < 2**-8 * expected
    assert_outputs_close(weights_of(rounded.model), weights_of(exact.model), 2e-2)


def test_a_process_trains_on_one_gpu_at_most(tmp_path: Path) -> None:
    args = make_arguments(tmp_path)
    args._n_gpu = 4
    assert (args.n_gpu, args.train_batch_size) == (1, ROWS)


def test_a_word_model_that_shares_its_embedding_trains(tmp_path: Path) -> None:
    path = words_file(tmp_path, [*VOCABULARY, "zz"])
    corpus = make_corpus(ElmoTokenizer(token_encoder="word_embedding", vocab_file=str(path)))
    expected = ElmoForPreTraining(word_config(share_embedding_softmax=True, lm_dropout=0.0))
    model = copy.deepcopy(expected)
    hand_written(expected, corpus, 3)
    assert_outputs_close(weights_of(train(corpus, tmp_path, model, max_steps=3).model), weights_of(expected), 2e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unroll_steps": 0}, "`unroll_steps` must be at least 1, found 0."),
        ({"reset_probability": 1.5}, "`reset_probability` must be in [0, 1], found 1.5."),
        ({"reset_probability": float("nan")}, "`reset_probability` must be in [0, 1], found nan."),
        ({"frozen_steps": -1}, "`frozen_steps` must be at least 0, found -1."),
        ({"adagrad_start": -0.5}, "`adagrad_start` must be at least 0, found -0.5."),
    ],
)
def test_illegal_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        PretrainingArguments(str(tmp_path), **settings)


def test_the_defaults_are_those_of_bilm_tf(tmp_path: Path) -> None:
    args = PretrainingArguments(str(tmp_path))
    names = ("unroll_steps", "scale_loss_by_steps", "adagrad_start", "per_device_train_batch_size", "num_train_epochs")
    assert [getattr(args, name) for name in names] == [20, True, 1.0, 128, 10]
    names = ("learning_rate", "lr_scheduler_type", "max_grad_norm", "optim", "warmup_steps", "weight_decay")
    assert [getattr(args, name) for name in names] == [0.2, "constant", 10.0, "adagrad", 0, 0.0]


def test_a_corpus_smaller_than_one_batch_is_refused(tokenizer: ElmoTokenizer, tmp_path: Path) -> None:
    corpus = Corpus.from_sentences([["a", "bb"], ["ccc"]], tokenizer)
    message = "the corpus has 5 predictions, fewer than the 3 x 5 of one batch; use fewer rows or steps."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(corpus, tmp_path, max_steps=1)


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
