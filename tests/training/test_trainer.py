"""The Trainer of language models equals a loop by hand, setting by setting; its scores; two processes equal one."""

import copy
import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoForPreTraining
from elmo_hf.language_model.scoring import score_carried, score_from_zero
from elmo_hf.training.trainer import ElmoPretrainer, Windows
from tests.helpers.checkpoints import bits
from tests.helpers.commands import output_of
from tests.helpers.hand_written import adagrad, hand_written, logged, train, weights_of
from tests.helpers.language_models import state_of, words_file
from tests.helpers.launching import fork_two
from tests.helpers.pretraining_runs import (
    FIELDS,
    ROWS,
    VOCABULARY,
    make_arguments,
    make_corpus,
    make_model,
    make_sentences,
    write_text,
)
from tests.helpers.tiny_inputs import assert_outputs_close
from tests.helpers.two_ranks import EXACT, arguments


def assert_changes_close(model: ElmoForPreTraining, expected: ElmoForPreTraining, start: ElmoForPreTraining) -> None:
    """Each tensor's change is the expected one up to 1e-4 of its length: sums of float32 in another order, three times.

    Adagrad divides by the size of a gradient, so that a rounding of a small gradient moves a weight as far as one of a
    large gradient; a difference of single weights has no bound of its own.
    """
    weights, starts = weights_of(model), weights_of(start)
    for name, weight in weights_of(expected).items():
        error = (weights[name] - weight).norm()
        assert error <= 1e-4 * (weight - starts[name]).norm(), (name, error)


@pytest.mark.parametrize(
    ("settings", "by_hand"),
    [
        ({}, {}),
        ({"scale_loss_by_steps": False}, {"factor": 1.0}),
        ({"adagrad_start": 0.05}, {"make_optimizer": partial(adagrad, start=0.05)}),
        ({"max_grad_norm": 0.7}, {"clip": 0.7}),
        ({"max_grad_norm": 0.0}, {"clip": 1e9}),
        ({"reset_probability": 0.5}, {"reset_probability": 0.5}),
        ({"unroll_steps": 4}, {"steps": 4, "factor": 4.0}),
        ({"per_device_train_batch_size": 2}, {"rows": 2}),
        ({"optim": "sgd"}, {"make_optimizer": lambda named: torch.optim.SGD(named.values(), lr=0.2)}),
        ({"weight_decay": 0.1}, {"make_optimizer": partial(adagrad, decay=0.1)}),
        ({"frozen_steps": 2}, {"frozen_updates": 2}),
        ({"data_seed": 11, "seed": 12}, {}),
        # A pass of 9 windows.
        ({"gradient_accumulation_steps": 4}, {"windows_per_update": (4, 4, 1)}),
        ({"bidirectional": False}, {}),
    ],
    ids=lambda value: str(list(value)),
)
def test_three_steps_equal_those_of_a_loop_by_hand(
    settings: dict[str, Any], by_hand: dict[str, Any], tmp_path: Path
) -> None:
    settings = dict(settings)
    fields = {"bidirectional": settings.pop("bidirectional", True)}
    expected = make_model(**fields)
    losses, norms = hand_written(expected, 3, **by_hand)
    trainer = train(tmp_path, make_model(**fields), max_steps=3, **settings)
    assert_changes_close(trainer.model, expected, make_model(**fields))
    assert_outputs_close(logged(trainer, "loss"), np.mean(losses, axis=1).tolist(), 1e-4)
    directions = [found for name in ("forward_loss", "backward_loss") if (found := logged(trainer, name))]
    assert_outputs_close(directions, np.transpose(losses).tolist(), 1e-4)
    assert_outputs_close(logged(trainer, "grad_norm"), norms, 1e-4)


def test_windows_go_on_from_pass_to_pass_without_starting_rows_anew(tmp_path: Path) -> None:
    expected = make_model()
    losses, _ = hand_written(expected, 23)
    trainer = train(tmp_path, num_train_epochs=2.5)
    assert trainer.state.global_step == 23
    assert_outputs_close(logged(trainer, "forward_loss"), [forward for forward, _ in losses], 1e-4)
    assert_changes_close(trainer.model, expected, make_model())


def test_windows_are_read_in_any_order_and_by_any_process(tmp_path: Path) -> None:
    args = make_arguments(tmp_path, reset_probability=0.4)
    corpus = make_corpus()
    windows, *parts = (Windows(corpus, ROWS, rows, args) for rows in (range(ROWS), range(1), range(1, ROWS)))
    in_order = [windows[number] for number in range(4)]
    # A worker of a DataLoader gets them pickled.
    assert_outputs_close(pickle.loads(pickle.dumps(Windows(corpus, ROWS, range(ROWS), args)))[2], in_order[2], 0)
    for number in (3, 0, 2, 1):
        assert_outputs_close(windows[number], in_order[number], 0)
        found = [part[number] for part in parts]
        for name in ("input_ids", "backward_input_ids", "forward_targets", "backward_targets"):
            assert_outputs_close(torch.cat([each[name] for each in found]), in_order[number][name], 0)


def changes_of(model: ElmoForPreTraining, start: ElmoForPreTraining) -> torch.Tensor:
    """The changes of all weights, in one vector."""
    before = weights_of(start)
    return torch.cat([(weight - before[name]).flatten() for name, weight in weights_of(model).items()])


def test_bfloat16_trains_near_to_float32(tmp_path: Path) -> None:
    # Without clips, at whose borders a rounding turns a gradient on or off. The second step would amplify roundings.
    start = make_model(cell_clip=None, projection_clip=None)
    exact, rounded = (train(tmp_path, copy.deepcopy(start), max_steps=1, bf16=is_bf16) for is_bf16 in (False, True))
    assert {tensor.dtype for tensor in rounded.model.state_dict().values()} == {torch.float32}
    assert logged(rounded, "loss") != logged(exact, "loss")
    # Numbers of eight bits; a gradient of the loss passes through some ten products.
    assert logged(rounded, "loss") == pytest.approx(logged(exact, "loss"), rel=2**-8)
    expected = changes_of(exact.model, start)
    assert (changes_of(rounded.model, start) - expected).norm() < 2**-4 * expected.norm()


def test_a_process_trains_on_one_gpu_at_most(tmp_path: Path) -> None:
    args = make_arguments(tmp_path)
    args._n_gpu = 4
    assert (args.n_gpu, args.train_batch_size) == (1, ROWS)


def test_adagrad_takes_one_pass_on_cpus_and_other_optimisers_compute_as_they_were_made(tmp_path: Path) -> None:
    assert ElmoPretrainer.get_optimizer_cls_and_kwargs(make_arguments(tmp_path))[1]["fused"]
    model, args = make_model(), make_arguments(tmp_path, max_steps=1)
    for optimizer_class, fused in ((torch.optim.Adagrad, True), (torch.optim.Adam, False)):
        optimizer = optimizer_class(model.parameters(), fused=fused)
        optimizer.param_groups[0]["fused"] = None  # as a checkpoint of another kind of device sets it
        ElmoPretrainer(model, args, train_dataset=make_corpus(), optimizers=(optimizer, None)).train()
        assert [group["fused"] for group in optimizer.param_groups] == [fused]


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, and of one, in its folders `exact`, `random`, `resumed` and `alone`."""
    folder = tmp_path_factory.mktemp("distributed")
    write_text(folder / "corpus.txt", make_sentences(20))
    # The training text, so that the last step is the best one by far.
    write_text(folder / "held-out.txt", make_sentences(20))
    words_file(folder, VOCABULARY, "words.txt")
    for name, dropout in (("exact", 0.0), ("alone", 0.0), ("random", 0.3)):
        (folder / f"{name}.json").write_text(json.dumps(FIELDS | {"lm_dropout": dropout}))
    output_of(*arguments(folder, "alone", f"{EXACT} --rows 4"))
    fork_two("two_ranks", folder)
    return folder


def test_two_processes_equal_one_with_the_rows_of_both(folder: Path) -> None:
    together, alone = state_of(folder / "exact"), state_of(folder / "alone")
    assert set(together) == set(alone)
    for name, array in alone.items():
        np.testing.assert_allclose(together[name], array, atol=2e-5, rtol=0, err_msg=name)
    logs = [json.loads((folder / name / "log.json").read_text()) for name in ("exact", "alone")]
    numbers = ("loss", "forward_loss", "backward_loss", "grad_norm", "eval_perplexity", "eval_carried_perplexity")
    for entries in zip(*logs, strict=True):
        names = [name for name in numbers if name in entries[1]]
        assert [entries[0][name] for name in names] == pytest.approx([entries[1][name] for name in names], abs=2e-4)
    assert sum("forward_loss" in entry for entry in logs[0]) == 8


def test_two_processes_resume_bit_for_bit_each_with_its_own_random_numbers(folder: Path) -> None:
    assert bits(state_of(folder / "resumed")) == bits(state_of(folder / "random"))
    for rank in (0, 1):
        states = [folder / name / "checkpoint-8" / f"bilm_state_{rank}.safetensors" for name in ("resumed", "random")]
        assert states[0].read_bytes() == states[1].read_bytes()
    generators = [(folder / "random" / "checkpoint-4" / f"rng_state_{rank}.pth").read_bytes() for rank in (0, 1)]
    assert generators[0] != generators[1]


def test_if_one_process_gets_a_signal_both_stop_when_they_ask_each_other(folder: Path) -> None:
    assert [(folder / f"stops-{rank}").read_text() for rank in (0, 1)] == ["[False, True]"] * 2
