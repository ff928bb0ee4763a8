"""A process of another interpreter or checkout that works on request: one line of JSON each way.

This file must run in Python 3.8, like `allennlp_peer.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Worker:
    """This process's end of the pipe."""

    def __init__(self, python: Path, script: Path, *arguments: object) -> None:
        """Starts `script`."""
        self._script = script
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Returns the script's answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            raise SystemExit(f"{self._script.name} ended with status {status}; its message is above.")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def serve(answer: Callable[..., dict[str, Any]]) -> None:
    """The other end: answers requests until the pipe is closed."""
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
