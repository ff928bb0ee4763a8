"""Damaged and hostile inputs for everything that the project reads: each must be refused clearly or read exactly.

`python -m tests.fuzz --count 20000` runs any number of inputs, `test_fuzz.py` a few hundred. An input is a valid one
(`targets.py`), changed by mutators that know its formats (`mutators/`). It is opened in a worker process with limits on
memory and time (`workers.py`), so that a crash is a result. What happened is classed in `outcomes.py`:

    refused   one clear error of ours, and nothing left behind
    exact     read, and the result is what a plain reader finds in the changed files
    defect    anything else

The seed, the target's name and the input's number decide everything, so `--seed S --only TARGET:NUMBER` repeats one.
"""

import os
import sys
from pathlib import Path

# Before torch is imported: workers compute on one thread, and nothing looks for the Hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HELPERS = str(Path(__file__).parents[1] / "helpers")
if HELPERS not in sys.path:  # pytest puts them there itself
    sys.path.append(HELPERS)
