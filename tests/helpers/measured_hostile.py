"""What a hostile file or folder takes: `PYTHONPATH=tests/helpers python -m measured_hostile` prints all.

`HOSTILE` has both: checkpoints are converted, folders of models opened.
"""

import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from checkpoints import BASE
from hostile_checkpoints import HOSTILE_CHECKPOINTS
from hostile_folders import HOSTILE_FOLDERS, open_folder

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError

MAX_MIB = 1024
MAX_SECONDS = 20
HOSTILE = HOSTILE_CHECKPOINTS | HOSTILE_FOLDERS


def measure(name: str, folder: Path) -> tuple[int, float, str]:
    """Works on one of them in a process of its own: MiB of memory above those at its start, seconds of work, message.

    The process may take no more than `MAX_MIB`, as a command may take no more than the machine has. Work beyond
    `MAX_SECONDS` ends it; the message then says so.
    """
    folder.mkdir()
    source = HOSTILE[name][0](folder)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        work = open_folder if name in HOSTILE_FOLDERS else convert
        os.write(writing, "|".join(map(str, _run(work, source))).encode("utf-8", "replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(folder)
    grown, seconds, message = answer.split("|", maxsplit=2) if answer else (-1, -1, f"ended with status {status}")
    return int(grown), float(seconds), message


def convert(source: Path) -> None:
    """Converts a checkpoint; AssertionError if a refusal has written something."""
    destination = (source if source.is_dir() else source.parent) / "DEST"
    try:
        convert_source(source, destination, Given(BASE / "options.json") if source.suffix == ".th" else Given())
    except ConversionError:
        assert not destination.exists()
        raise


def _run(work: Callable[[Path], None], source: Path) -> tuple[int, float, str]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (MAX_MIB << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        work(source)
        message = "no error"
    except (ConversionError, OSError, ValueError) as error:
        message = str(error)
    except BaseException as error:
        message = f"DEFECT {error!r}"
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (after.ru_maxrss - before.ru_maxrss) >> 10, seconds, message


def main() -> None:
    """Prints the table of all of them."""
    for name in HOSTILE:
        with tempfile.TemporaryDirectory() as folder:
            grown, seconds, message = measure(name, Path(folder) / "source")
        sys.stdout.write(f"{name}|{grown} MiB|{seconds:.1f} s|{message[:150]!r}\n")


if __name__ == "__main__":
    main()
