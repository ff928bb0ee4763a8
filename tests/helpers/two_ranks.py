"""What each of two processes does in `test_trainer.py`."""

import shutil
import signal
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import TrainerControl, TrainerState

from elmo_hf.cli import app
from elmo_hf.training.interruption import StopSignals

STEPS = "--max-steps 8 --checkpoint-steps 4 --unroll-steps 5 --seed 4 --reset-probability 0.4"
# Without dropout and sampling, two processes of 2 rows do what one process of 4 rows does.
EXACT = f"{STEPS} --logging-steps 1 --accumulate 2 --frozen-steps 2"
# Logs and checkpoints come after different steps.
RANDOM = f"{STEPS} --softmax sampled --samples 4 --logging-steps 3"


def arguments(folder: Path, name: str, options: str) -> list[str]:
    """Arguments of a run that writes `folder / name`; its config is `name.json`."""
    options += f" --vocabulary {folder}/words.txt --config {folder / name}.json --held-out {folder}/held-out.txt"
    return ["pretrain", str(folder / "corpus.txt"), "-o", str(folder / name), *options.split()]


def main(folder: Path) -> None:
    """Makes three runs: an exact one, one with dropout and sampling, and that one resumed from its middle."""
    app(arguments(folder, "exact", f"{EXACT} --rows 2"), standalone_mode=False)
    app(arguments(folder, "random", f"{RANDOM} --rows 2"), standalone_mode=False)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        (folder / "resumed").mkdir()
        shutil.copy(folder / "random.json", folder / "resumed.json")
        shutil.copy(folder / "random" / "run.json", folder / "resumed")
        shutil.copytree(folder / "random" / "checkpoint-4", folder / "resumed" / "checkpoint-4")
    torch.distributed.barrier()
    app(arguments(folder, "resumed", f"{RANDOM} --rows 2"), standalone_mode=False)
    signals, control = StopSignals(False), TrainerControl()
    signals.number = signal.SIGTERM * torch.distributed.get_rank()
    stops = []
    for step in (9, 10):
        args = SimpleNamespace(world_size=2, device=torch.device("cpu"))
        signals.on_step_end(args, TrainerState(global_step=step, max_steps=50), control)
        stops.append(control.should_training_stop and control.should_save)
    (folder / f"stops-{torch.distributed.get_rank()}").write_text(str(stops))
