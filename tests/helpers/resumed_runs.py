"""Runs that stop and go on, with all that could differ: dropout, sampling, resets, held-out text, two passes."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from elmo_hf.training.run import pretrain
from elmo_hf.training.trainer import ElmoPretrainer
from tests.helpers.interrupts import Interrupt, power_cut
from tests.helpers.pretraining_runs import VOCABULARY, make_arguments, make_corpus, make_model
from tests.helpers.tiny_lm import tokenizer_with

# Two passes of 7 steps with checkpoints after steps 4, 8, 12 and 14; the newest and the best, that of step 4, are kept.
SETTINGS: dict[str, Any] = {
    "num_train_epochs": 2,
    "reset_probability": 0.4,
    "save_strategy": "steps",
    "save_steps": 4,
    "eval_strategy": "steps",
    "eval_steps": 4,
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_perplexity",
    "greater_is_better": False,
}
BEST_STEP = 4


class BestAfter(TrainerCallback):
    """Gives every evaluation a perplexity that is lowest after one step.

    Which of two checkpoints is better, of a model that has hardly learnt, would depend on roundings.
    """

    def __init__(self, best_step: int) -> None:
        self.best_step = best_step

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        if "eval_perplexity" in logs:
            logs["eval_perplexity"] = 10.0 + abs(state.global_step - self.best_step)
            state.log_history[-1]["eval_perplexity"] = logs["eval_perplexity"]


class At(TrainerCallback):
    """Does something at an event of the Trainer, when so many steps are done."""

    def __init__(self, step: int, event: str, action: Callable[[], object]) -> None:
        self.step, self.action = step, action
        setattr(self, event, self.act)

    def act(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == self.step:
            self.action()


def run(
    folder: Path,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    num_sentences: int = 16,
    held_out_seed: int = 9,
    lm_dropout: float = 0.3,
    vocabulary: list[str] = VOCABULARY,
    **settings: Any,
) -> ElmoPretrainer:
    """Starts or resumes the run in `folder / "out"`, as a new process would; its best step is the fourth."""
    model = make_model(softmax="sampled", num_softmax_samples=4, lm_dropout=lm_dropout)
    corpora = make_corpus(num_sentences, 1, vocabulary), make_corpus(4, held_out_seed, vocabulary)
    args = make_arguments(folder / "out", **SETTINGS | settings)
    torch.manual_seed(random.randrange(1 << 30))
    return pretrain(
        model, tokenizer_with(tuple(vocabulary)), *corpora, args, callbacks=[BestAfter(BEST_STEP), *callbacks]
    )


def interrupt(folder: Path, step: int, event: str = "on_step_begin", **settings: Any) -> None:
    """Runs until an event when so many steps are done."""
    with pytest.raises(Interrupt):
        run(folder, callbacks=[At(step, event, power_cut)], **settings)
    assert not (folder / "out" / "config.json").exists()
