"""Training of language models written out by hand, as a reference for the Trainer, and what a Trainer logged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pretraining_runs import ROWS, STEPS, make_arguments, make_model
from transformers import Trainer

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.streams import Stream, window_arguments
from elmo_hf.training.trainer import ElmoPretrainer

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
    """Trains as bilm-tf does, as simply as possible; returns each update's losses by direction, and its norm."""
    model.train()
    streams = [
        Stream(corpus, rows, is_backward=is_backward, seed=11, reset_probability=reset_probability)
        for is_backward in (False, True)[: model.config.num_directions]
    ]
    named = {name: weight for name, weight in model.named_parameters() if "scalar_mixes" not in name}
    accumulators = {name: torch.full_like(weight, start) for name, weight in named.items()}
    state, losses, norms = None, [], []
    for number in range(num_updates):
        num_windows = windows_per_update[number % len(windows_per_update)]
        gradients = {name: torch.zeros_like(weight) for name, weight in named.items()}
        losses.append([0.0] * len(streams))
        for _ in range(num_windows):
            output = model(**window_arguments(corpus, *(stream.take(steps) for stream in streams)), state=state)
            state = output.state
            model.zero_grad()
            found = [output.forward_loss, output.backward_loss][: len(streams)]
            (factor * sum(found) / len(streams) / num_windows).backward()
            for name, weight in named.items():
                gradients[name] += weight.grad
            for direction, loss in enumerate(found):
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


def train(corpus: Corpus, folder: Path, model: ElmoForPreTraining | None = None, **settings: Any) -> ElmoPretrainer:
    trainer = ElmoPretrainer(
        make_model() if model is None else model, make_arguments(folder, **settings), train_dataset=corpus
    )
    trainer.train()
    return trainer
