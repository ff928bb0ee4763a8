"""What the conversion of a hostile file takes: `PYTHONPATH=tests/helpers python -m measured_conversions` prints all."""

import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from checkpoints import BASE
from hostile_checkpoints import HOSTILE

from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.errors import ConversionError

MAX_MIB = 1024
MAX_SECONDS = 20


def measure(name: str, folder: Path) -> tuple[int, float, str]:
    """Converts one of them in a process of its own: MiB of memory above those at its start, seconds of work, message.

    Work beyond `MAX_SECONDS`, or memory beyond twice `MAX_MIB`, ends the process; the message then says so.
    """
    make, _ = HOSTILE[name]
    folder.mkdir()
    source = make(folder)
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, "|".join(map(str, _convert(source, folder / "DEST"))).encode("utf-8", "replace"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    shutil.rmtree(folder)
    grown, seconds, message = answer.split("|", maxsplit=2) if answer else (-1, -1, f"ended with status {status}")
    return int(grown), float(seconds), message


def _convert(source: Path, destination: Path) -> tuple[int, float, str]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 * MAX_MIB << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    before = resource.getrusage(resource.RUSAGE_SELF)
    try:
        convert_source(source, destination, Given(BASE / "options.json") if source.suffix == ".th" else Given())
        message = "converted"
    except ConversionError as error:
        message = str(error)
    except BaseException as error:
        message = f"DEFECT {error!r}"
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if destination.exists():
        message += ", and wrote something"
    return (after.ru_maxrss - before.ru_maxrss) >> 10, seconds, message


def main() -> None:
    """Prints the table of all of them."""
    for name in HOSTILE:
        with tempfile.TemporaryDirectory() as folder:
            grown, seconds, message = measure(name, Path(folder) / "source")
        sys.stdout.write(f"{name}|{grown} MiB|{seconds:.1f} s|{message!r}\n")


if __name__ == "__main__":
    main()
