"""Takes the place of `subprocess` in the benchmarks: forks their scripts from a process that has imported torch."""

import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path

from fresh_process import PRELOADED, TIME_LIMIT, run_program

PIPE = subprocess.PIPE
CODE = """
import os, runpy, sys
os.dup2(0, 1)
os.dup2(int(sys.argv[1]), 2)
sys.stdin = open(0)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Popen:
    """A script of this interpreter, which reads standard input and writes standard output."""

    def __init__(self, command: list[str], **options: object) -> None:
        python, *arguments = command
        assert python == sys.executable
        if arguments[:2] == ["-W", "ignore"]:
            del arguments[:2]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        self.end, other = socket.socketpair()
        self.process = context.Process(target=_serve, args=(other, arguments, dict(os.environ)))
        self.process.start()
        other.close()
        self.stdin, self.stdout = self.end.makefile("w"), self.end.makefile("r")

    def wait(self) -> int | None:
        self.process.join(TIME_LIMIT)
        return self.process.exitcode

    def communicate(self) -> tuple[str, None]:
        self.end.shutdown(socket.SHUT_WR)
        output = self.stdout.read()
        assert self.wait() == 0
        for file in (self.stdin, self.stdout, self.end):
            file.close()
        return output, None


def run(command: list[str], **options: object) -> subprocess.CompletedProcess:
    return subprocess.CompletedProcess(command, 0, Popen(command).communicate()[0])


def _serve(end: socket.socket, arguments: list[str], environment: dict[str, str]) -> None:
    os.dup2(end.fileno(), 0)
    end.close()
    run_program(CODE, [str(os.dup(2)), *arguments], Path.cwd(), environment, Path(os.devnull), Path(os.devnull))
