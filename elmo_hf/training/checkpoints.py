"""The checkpoints of a run: which folders they are, the newest, the one of the best score, and which are removed.

The checkpoint after step N is the folder `checkpoint-N`. Files and folders with other names belong to the user, and
stay. The file of a checkpoint that is written last, SHA256SUMS, lists the others with their checksums: a checkpoint
without it is incomplete, and a checkpoint that differs from it is damaged.

Checkpoints are ordered by N alone. Times of files say nothing about the order, because clocks are corrected, and copies
have new times or the old ones.
"""

import logging
import math
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..disk.checksums import SUMS, sums_agree
from ..disk.whole_files import leftover

logger = logging.getLogger(__name__)
NAME = re.compile(r"checkpoint-(0|[1-9][0-9]*)")
# How a run was started: a file of its folder (`record.py`), with a copy in each checkpoint.
RECORD = "run.json"


def checkpoint_folder(output: Path, step: int) -> Path:
    """The folder of the checkpoint after a step."""
    return output / f"checkpoint-{step}"


def checkpoint_folders(output: Path) -> dict[int, Path]:
    """The checkpoints of a run by their steps, from the first to the last, with incomplete and damaged ones."""
    folders = {}
    for path in output.glob("checkpoint-*"):
        name = NAME.fullmatch(path.name)
        if name is not None and path.is_dir():
            folders[int(name[1])] = path
    return dict(sorted(folders.items()))


def complete_checkpoints(output: Path) -> dict[int, Path]:
    """The checkpoints that were written to the end, by their steps; some of them may be damaged since."""
    return {step: path for step, path in checkpoint_folders(output).items() if (path / SUMS).exists()}


def newest_checkpoint(output: Path) -> Path | None:
    """The newest undamaged checkpoint of a run; None if no checkpoint was completed.

    Raises:
        ValueError: if all complete checkpoints are damaged.
    """
    for path in reversed(checkpoint_folders(output).values()):
        if sums_agree(path):
            return path
        logger.warning("%s is incomplete or damaged, so it is skipped.", path)
    if complete_checkpoints(output):
        raise ValueError(f"all checkpoints in {output} are damaged; remove them to start again.")
    return None


def refuse_damaged(path: Path) -> None:
    """Raises ValueError unless a checkpoint was written to the end and has not changed since."""
    if not sums_agree(path):
        raise ValueError(
            f"{path} must be a checkpoint with the files that its {SUMS} lists, found it incomplete or damaged. Resume "
            "from another one; with `resume_from_checkpoint=True` it is the newest one that is whole."
        )


class BestScore(NamedTuple):
    """The best score among checkpoints, and the step after which it was measured."""

    score: float
    step: int


def best_score(
    log: Sequence[Mapping[str, Any]], metric: str, greater_is_better: bool, steps: Collection[int]
) -> BestScore | None:
    """The best finite score in a log that was measured after one of `steps`, and of equal scores the earliest.

    Args:
        log: the Trainer's log, with a `step` in each entry.
        metric: the name of the score in the log, such as `eval_perplexity`.
        greater_is_better: whether the best score is the largest one.
        steps: those of checkpoints that are there.

    Returns:
        None if no such score was measured.
    """
    scores = [BestScore(entry[metric], entry["step"]) for entry in log if metric in entry and entry["step"] in steps]
    finite = [score for score in scores if math.isfinite(score.score)]
    if not finite:
        return None
    values = [score.score for score in finite]
    best = max(values) if greater_is_better else min(values)
    return BestScore(best, min(score.step for score in finite if score.score == best))


def refuse_damaged_best(path: Path) -> None:
    """Raises ValueError if the best checkpoint is damaged."""
    if not sums_agree(path):
        raise ValueError(
            f"{path}, the best checkpoint, is damaged. Remove this folder and give the same command again to go on "
            "without it: then the best of the other checkpoints counts as the best."
        )


def remove_old_checkpoints(output: Path, most: int | None, newest: int, best: int | None) -> None:
    """Removes checkpoints until at most `most` are left: incomplete ones first, then those of the fewest steps.

    Neither the newest nor the best checkpoint is removed. Checkpoints of later steps than the newest are not counted
    and stay; a resumed run has skipped them as damaged or incomplete, and writes them again.

    Args:
        output: the folder of the run.
        most: how many checkpoints may be left; None or 0 keeps all.
        newest: the step of the newest checkpoint.
        best: the step of the best checkpoint; None if there is none.
    """
    if not most:
        return
    folders, complete = checkpoint_folders(output), complete_checkpoints(output)
    protected = {newest, best} & folders.keys()
    older = [step for step in folders if step < newest and step not in protected]
    older.sort(key=lambda step: (step in complete, step), reverse=True)
    num_others = max(most - len(protected), 0)
    for step in older[num_others:]:
        with leftover(folders[step]):
            (folders[step] / SUMS).unlink(missing_ok=True)  # a removal that is cut off leaves an incomplete checkpoint
            shutil.rmtree(folders[step])
