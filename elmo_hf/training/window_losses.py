"""The losses of the windows of a run: their means for the logs, which a resumed run continues.

A log has the mean of each loss over the windows since the last log, and at the end `train_loss`, the mean over all
windows of the run. Checkpoints and logs come at different steps, so a checkpoint has a file for each process:

    losses_0.json    each loss since the last log, by name; as `total`, the sum of `loss` over all logged windows, and
                     their number

So a resumed run logs what an undisturbed one does. Checkpoints of earlier versions have no such file; then the first
means are of the windows since the run was resumed, as always with transformers' Trainer.
"""

import json
from collections import defaultdict
from pathlib import Path

import torch
from torch import Tensor

from ..folder.saved_json import naming, read_json

LOSS, TOTAL = "loss", "total"


class WindowLosses:
    """The losses of one process, by name; `LOSS` is what the run minimises, in nats per prediction."""

    def __init__(self) -> None:
        """Before the first window."""
        self._since_log: dict[str, list[Tensor]] = defaultdict(list)
        self._total = torch.zeros(2, dtype=torch.float64)  # the sum of `LOSS` over all logged windows, and their number

    def add(self, losses: dict[str, Tensor]) -> None:
        """Adds the losses of a window, each a tensor with one number."""
        for name, loss in losses.items():
            self._since_log[name].append(loss.detach().float())

    def take_means(self) -> dict[str, Tensor]:
        """The mean of each loss since the last call, which is that of the last log."""
        means = {name: torch.stack(losses).mean() for name, losses in self._since_log.items()}
        self._total = self._total_of_all()
        self._since_log.clear()
        return means

    def mean_of_all(self) -> Tensor | None:
        """The mean of `LOSS` over all windows of the run, of type float64; None if no window is known."""
        total, number = self._total_of_all()
        if number == 0:
            return None
        return total / number

    def save(self, path: Path) -> None:
        """Writes the losses to a file of a checkpoint."""
        content = {name: torch.stack(losses).tolist() for name, losses in self._since_log.items()}
        content[TOTAL] = self._total.tolist()
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, device: torch.device) -> "WindowLosses":
        """The losses that a checkpoint keeps.

        Raises:
            ValueError: if the file is damaged.
        """
        losses = cls()
        content = read_json(path)
        with naming(f"{path} is damaged"):
            total, number = content.pop(TOTAL)
            losses._total = torch.tensor([total, number], dtype=torch.float64)
            for name, values in content.items():
                losses._since_log[name] = list(torch.tensor(values, dtype=torch.float32, device=device))
        return losses

    def _total_of_all(self) -> Tensor:
        """The sum of `LOSS` over all windows, and their number, `(2,)`."""
        losses = self._since_log.get(LOSS, [])
        if not losses:
            return self._total
        total = torch.stack(losses).double().sum().cpu()
        return self._total + torch.stack([total, torch.tensor(float(len(losses)), dtype=torch.float64)])
