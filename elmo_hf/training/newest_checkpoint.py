"""Which checkpoint a run goes on from: the newest one that is as it was written.

The last file of a checkpoint lists the others with their checksums. A checkpoint without that list is incomplete, and
one that does not agree with it is damaged; both are skipped.
"""

import logging
from pathlib import Path

from ..disk.checksums import SUMS, sums_agree

logger = logging.getLogger(__name__)


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run that is complete and undamaged; None if none was ever completed.

    Raises:
        ValueError: if all complete checkpoints are damaged.
    """
    checkpoints = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdecimal()]
    for path in sorted(checkpoints, key=lambda path: int(path.name[11:]), reverse=True):
        if sums_agree(path):
            return path
        logger.warning("%s is incomplete or damaged, so it is skipped.", path)
    if any((path / SUMS).exists() for path in checkpoints):
        raise ValueError(f"all checkpoints in {folder} are damaged; remove them to start anew.")
    return None
