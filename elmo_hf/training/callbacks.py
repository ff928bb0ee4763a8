"""What happens besides training: an honest progress bar, and the end after a signal."""

from typing import Any

import torch
from accelerate import Accelerator
from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .interruption import StopSignals

# How often several processes ask each other whether one of them was told to stop.
STEPS_BETWEEN_QUESTIONS = 10


class HonestProgress(ProgressCallback):
    """The Trainer's progress bar, which in a resumed run counts no steps of the run before as done just now."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Starts the bar where the run starts."""
        super().on_train_begin(args, state, control, **kwargs)
        self.current_step = state.global_step
        if self.training_bar is not None:
            bar = self.training_bar
            bar.initial = bar.n = bar.last_print_n = state.global_step
            bar.refresh()


class StopCallback(TrainerCallback):
    """Ends training with a checkpoint after the step in which a signal came."""

    def __init__(self, signals: StopSignals, accelerator: Accelerator) -> None:
        """Takes the signals of this process, and the way to the others."""
        self._signals, self._accelerator = signals, accelerator

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """All processes stop after the same step, because they write the checkpoint together."""
        if self._accelerator.num_processes > 1:
            if state.global_step % STEPS_BETWEEN_QUESTIONS:
                return
            number = torch.tensor([self._signals.number], device=self._accelerator.device)
            self._signals.number = int(self._accelerator.gather(number).max())
        if self._signals.number and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
