"""The end of a run after Ctrl-C or SIGTERM."""

import os
import signal
import threading
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

NOTICE = b"\nStopping after this step, with a checkpoint. Ctrl-C again stops at once.\n"
# How often several processes exchange whether one of them received a signal.
STEPS_BETWEEN_QUESTIONS = 10


class StopSignals(TrainerCallback):
    """On Ctrl-C or SIGTERM, ends training after the current step with a checkpoint; a second Ctrl-C ends it at once.

    Signals are caught inside a `with` block of the main thread; in other threads this does nothing.

    Attributes:
        number: the first signal that came, or 0. Further SIGTERMs, which launchers send, are ignored.
    """

    def __init__(self, is_first_process: bool) -> None:
        """Only the first process prints."""
        self.number = 0
        self._prints = is_first_process
        self._before: dict[int, Any] = {}
        self._hook = threading.excepthook
        self._is_active = False

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        self._hook = threading.excepthook
        self._is_active = True
        threading.excepthook = self._on_failure
        return self

    def __exit__(self, *error: object) -> None:
        self._is_active = False
        # A hook that was set since then stays; it may call this one, which from now on passes every failure on.
        if threading.excepthook == self._on_failure:
            threading.excepthook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_failure(self, failure: threading.ExceptHookArgs) -> None:
        """Passes the failure of a thread on, except an error of the disk in TensorBoard's writer.

        The writer raises this error again in the main thread, at the next event that is written.
        """
        is_of_writer = type(failure.thread).__module__.partition(".")[0] == "tensorboard"
        if not (self._is_active and is_of_writer and issubclass(failure.exc_type, OSError)):
            self._hook(failure)

    def _catch(self, number: int, frame: object) -> None:
        if number == signal.SIGINT or not self.number:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not self.number:
            self.number = number
            if self._prints:
                os.write(2, NOTICE)  # `print` may not be called while another one is running

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """All processes stop after the same step, because they write the checkpoint together."""
        if args.world_size > 1:
            if state.global_step % STEPS_BETWEEN_QUESTIONS:
                return
            number = torch.tensor(self.number, device=args.device)
            torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MAX)
            self.number = int(number)
        if self.number and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True
