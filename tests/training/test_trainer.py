"""The Trainer of language models: equal to a loop written out by hand, setting by setting."""

import copy
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hand_written import adagrad_with_decay, descent, hand_written, logged, train, weights_of
from language_models import words_file
from pretraining_runs import ROWS, VOCABULARY, make_arguments, make_corpus, make_model
from tiny_inputs import assert_outputs_close, word_config
from transformers import TrainerCallback

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments, Windows


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


def test_the_defaults_are_those_of_bilm_tf(tmp_path: Path) -> None:
    args = PretrainingArguments(str(tmp_path))
    names = ("unroll_steps", "scale_loss_by_steps", "adagrad_start", "per_device_train_batch_size", "num_train_epochs")
    assert [getattr(args, name) for name in names] == [20, True, 1.0, 128, 10]
    names = ("learning_rate", "lr_scheduler_type", "max_grad_norm", "optim", "warmup_steps", "weight_decay")
    assert [getattr(args, name) for name in names] == [0.2, "constant", 10.0, "adagrad", 0, 0.0]


class OnGpu(PretrainingArguments):
    """Settings of a process with a GPU."""

    device = torch.device("cuda")


def test_adagrad_takes_one_pass_on_cpus_and_torchs_own_way_elsewhere(tmp_path: Path) -> None:
    for args, fused in ((make_arguments(tmp_path), True), (OnGpu(str(tmp_path), use_cpu=True), None)):
        optimizer_class, settings = ElmoPretrainer.get_optimizer_cls_and_kwargs(args)
        assert (optimizer_class, settings["fused"]) == (torch.optim.Adagrad, fused)


@pytest.mark.parametrize("settings", [{"fused": False}, {"foreach": True}], ids=str)
def test_an_optimiser_that_is_given_computes_as_it_was_made(
    settings: dict[str, bool], corpus: Corpus, tmp_path: Path
) -> None:
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), **settings)
    before = [{key: group[key] for key in ("fused", "foreach")} for group in optimizer.param_groups]
    args = make_arguments(tmp_path, max_steps=1)
    ElmoPretrainer(model, args, train_dataset=corpus, optimizers=(optimizer, None)).train()
    assert [{key: group[key] for key in ("fused", "foreach")} for group in optimizer.param_groups] == before
