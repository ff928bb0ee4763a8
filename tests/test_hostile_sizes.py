"""Small files that ask for much memory or time: a clear error within 1 GiB and 20 seconds, and nothing written.

`PYTHONPATH=tests/helpers python -m measured_hostile` prints what each of them takes.
"""

import os
from pathlib import Path

from fresh_process import python_path, run_forked
from measured_hostile import HOSTILE, MAX_MIB

MEASURE = """
import sys
from pathlib import Path
from measured_hostile import HOSTILE, measure

for name in HOSTILE:
    print(name, *measure(name, Path(sys.argv[1])), sep="|")
"""


def test_hostile_files_are_refused_within_the_limits(tmp_path: Path) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": python_path(Path(__file__).parent / "helpers")}
    printed = run_forked(MEASURE, [str(tmp_path / "source")], tmp_path, environment)
    found = dict(line.split("|", maxsplit=1) for line in printed.splitlines() if "|" in line)
    assert found.keys() == HOSTILE.keys()
    for name, (_, message) in HOSTILE.items():
        grown, _, answer = found[name].split("|", maxsplit=2)
        assert message in answer, (name, answer)
        assert 0 <= int(grown) < MAX_MIB, (name, grown)
