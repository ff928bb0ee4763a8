"""Damaged and hostile inputs for everything that the project reads: each must be refused clearly or read exactly.

`python -m tests.fuzz --count 20000` runs any number of inputs, `test_fuzz.py` two hundred. An input is a valid one
(`targets.py`), changed by what knows its format (`changes.py`, `text_changes.py`). It is opened in a process of its own
with limits on memory and time, so that a crash is a result, and judged (`inputs.py`):

    refused   one clear error of ours, and nothing left behind
    exact     read, and the result is what a plain reader finds in the changed files (`expected.py`)
    defect    anything else

The seed, the target's name and the input's number decide everything, so `--seed S --only TARGET:NUMBER` repeats one.
"""

import os

# Before torch is imported: everything computes on one thread, and nothing looks for the Hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
