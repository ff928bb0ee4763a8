"""Training of language models written out by hand, as a reference for the Trainer, and what a Trainer logged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer

from elmo_hf import ElmoForPreTraining
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.streams import SentenceStream, window_arguments
from elmo_hf.training.trainer import ElmoPretrainer
from tests.helpers.pretraining_runs import ROWS, STEPS, make_arguments, make_corpus, make_model

Weights = dict[str, torch.Tensor]


def adagrad(named: Weights, start: float = 1.0, decay: float = 0.0) -> torch.optim.Optimizer:
    """The optimiser of bilm-tf; matrices may decay."""
    matrices = [weight for weight in named.values() if weight.dim() > 1]
    biases = [weight for weight in named.values() if weight.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": biases}]
    return torch.optim.Adagrad(groups, lr=0.2, initial_accumulator_value=start)


def hand_written(
    model: ElmoForPreTraining,
    num_updates: int,
    *,
    rows: int = ROWS,
    steps: int = STEPS,
    factor: float = STEPS,
    clip: float = 10.0,
    reset_probability: float = 0.0,
    windows_per_update: tuple[int, ...] = (1,),
    frozen_updates: int = 0,
    make_optimizer: Callable[[Weights], torch.optim.Optimizer] = adagrad,
) -> tuple[list[list[float]], list[float]]:
    """Trains as bilm-tf does, as simply as possible; returns each update's losses by direction, and its norm."""
    model.train()
    corpus = make_corpus()
    streams = [
        SentenceStream(corpus, rows, is_backward=is_backward, seed=11, reset_probability=reset_probability)
        for is_backward in (False, True)[: model.config.num_directions]
    ]
    named = {name: weight for name, weight in model.named_parameters() if "scalar_mixes" not in name}
    optimizer = make_optimizer(named)
    state, losses, norms = None, [], []
    for number in range(num_updates):
        num_windows = windows_per_update[number % len(windows_per_update)]
        optimizer.zero_grad()
        losses.append([0.0] * len(streams))
        for _ in range(num_windows):
            output = model(**window_arguments(corpus, *(stream.take(steps) for stream in streams)), state=state)
            state = output.state
            found = [output.forward_loss, output.backward_loss][: len(streams)]
            (factor * sum(found) / len(streams) / num_windows).backward()
            for direction, loss in enumerate(found):
                losses[-1][direction] += loss.item() / num_windows
        if number < frozen_updates:
            model.elmo.zero_grad()  # only the softmax learns
        norms.append(torch.nn.utils.clip_grad_norm_(named.values(), clip).item())
        optimizer.step()
    return losses, norms


def weights_of(model: torch.nn.Module) -> Weights:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def logged(trainer: Trainer, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def train(
    folder: Path, model: ElmoForPreTraining | None = None, held_out: Corpus | None = None, **settings: Any
) -> ElmoPretrainer:
    arguments = make_arguments(folder, **settings)
    trainer = ElmoPretrainer(model or make_model(), arguments, train_dataset=make_corpus(), eval_dataset=held_out)
    trainer.train()
    return trainer
