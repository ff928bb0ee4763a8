"""The losses since the last log, which a checkpoint between two logs carries.

    loss            sum over windows of their losses / updates since the last log, as the Trainer has it
    forward_loss    mean over windows; so are the other directions' losses

Without them a run that was stopped would log other numbers than an undisturbed one after it resumes.
"""

from collections import defaultdict
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor


class RecentLosses:
    """Losses by name, one of each window since the last log."""

    def __init__(self) -> None:
        """Starts before the first step."""
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._last_log = 0

    def add(self, name: str, loss: Tensor) -> None:
        """Adds the loss of one window."""
        self._values[name].append(loss.detach())

    def take(self, step: int, accelerator: Accelerator) -> dict[str, float]:
        """What to log after a step, over all processes; then nothing is left."""
        logs = {}
        for name, values in self._values.items():
            # The Trainer adds one after the other.
            number = sum(values[1:], values[0]) if name == "loss" else torch.stack(values).mean()
            number = accelerator.reduce(number, reduction="mean").item()
            logs[name] = number / (step - self._last_log) if name == "loss" else round(number, 4)
        self.forget(step)
        return logs

    def forget(self, step: int) -> None:
        """Starts anew after a step."""
        self._values.clear()
        self._last_log = step

    def save(self, path: Path) -> None:
        """Writes the losses to a safetensors file."""
        values = {name: torch.stack(losses) for name, losses in self._values.items()}
        save_file({**values, "last_log": torch.tensor(self._last_log)}, path)

    def load(self, path: Path, device: torch.device) -> None:
        """Reads what `save` wrote.

        Raises:
            ValueError: if a tensor is no list of losses.
        """
        tensors = load_file(path)
        self.forget(int(tensors.pop("last_log")))
        for name, losses in tensors.items():
            if losses.ndim != 1 or len(losses) == 0:
                raise ValueError(f"`{name}` must be losses one after the other, found shape {tuple(losses.shape)}")
            self._values[name] = list(losses.to(device))
