"""Stopping a run: the first Ctrl-C or SIGTERM lets it finish a step and write a checkpoint, a second Ctrl-C does not.

A light module, because the command line knows the exception.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any

NOTICE = b"\nStopping after this step, with a checkpoint. Ctrl-C again stops at once.\n"


class Interrupted(KeyboardInterrupt):
    """A run stopped because a signal asked for it, and can go on.

    Attributes:
        sentence: what to tell the user; None in all processes but the first.
        exit_code: 128 and the number of the signal, as shells have it.
    """

    def __init__(self, sentence: str | None, signal_number: int) -> None:
        """Takes the sentence and the signal."""
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = 128 + signal_number


class StopSignals:
    """Catches signals inside a `with` block of the main thread; elsewhere it does nothing.

    Attributes:
        number: the first signal that came, or 0. SIGTERMs after it, such as a launcher sends, change nothing.
    """

    def __init__(self, is_first_process: bool) -> None:
        """Only the first process prints."""
        self.number = 0
        self._prints = is_first_process
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT or not self.number:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if not self.number:
            self.number = number
            if self._prints:
                os.write(2, NOTICE)  # `print` may not be called while another one is running
