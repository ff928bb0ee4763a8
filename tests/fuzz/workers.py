"""Runs inputs in forked processes, so that a crash, a hang or a flood of memory is a result.

A worker is forked from this process, which has imported everything, and runs a batch of inputs of one target. It tells
over a pipe when it begins an input and how it ended. This process watches memory and processor time of each worker,
ends those above the limits, and gives the rest of their batch to others.
"""

import faulthandler
import gc
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

from .outcomes import DEFECT, MAX_BYTES, MAX_SECONDS, Outcome

BATCH = 25
# A worker above these is ended. It measures itself against the limits, which are lower, if it lives to do so.
PATIENCE, WALL_PATIENCE, MOST_BYTES = MAX_SECONDS + 5, 120.0, 2 * MAX_BYTES
# Of address space, in case memory grows faster than it is watched.
ADDRESSES = 8 << 30
PAGE, TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
Batch = tuple[str, list[int]]
RunOne = Callable[[str, int], Outcome]


@dataclass
class Worker:
    """A process that runs a batch.

    Attributes:
        pid: its number.
        pipe: where it tells.
        target: the name of the batch's target.
        left: inputs that have not ended.
        rest: what it told since the last line break.
        began: when it was last heard of, by the clock and in processor time.
        bytes: its memory then; without end until it is heard of.
        ended_for: why this process ended it.
    """

    pid: int
    pipe: int
    target: str
    left: list[int]
    rest: bytes = b""
    began: float = field(default_factory=time.monotonic)
    ticks: int = 0
    bytes: int = 1 << 62
    ended_for: str = ""


def run_all(batches: list[Batch], run_one: RunOne, num_workers: int) -> Iterator[Outcome]:
    """Runs every input of every batch; gives outcomes as they come."""
    waiting, workers = batches[::-1], list[Worker]()
    gc.collect()
    gc.freeze()  # No garbage collection of a worker visits, and so copies, what it shares.
    try:
        while waiting or workers:
            while waiting and len(workers) < num_workers:
                workers.append(start(*waiting.pop(), run_one))
            select.select([worker.pipe for worker in workers], [], [], 0.05)
            for worker in list(workers):
                outcomes, has_ended = listen(worker)
                yield from outcomes
                if not has_ended:
                    watch(worker)
                    continue
                workers.remove(worker)
                yield from bury(worker)
                if worker.left:
                    waiting.append((worker.target, worker.left))
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
        gc.unfreeze()


def start(target: str, indices: list[int], run_one: RunOne) -> Worker:
    """Forks a worker."""
    end, other = os.pipe()
    pid = os.fork()
    if pid:
        os.close(other)
        os.set_blocking(end, False)
        return Worker(pid, end, target, list(indices))
    try:
        os.close(end)
        silence()
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + ADDRESSES, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for index in indices:
            tell(other, {"begins": index, "bytes": status("VmRSS")})
            tell(other, asdict(run_one(target, index)))
        os._exit(0)
    except BaseException:
        os._exit(99)


def tell(pipe: int, message: dict[str, object]) -> None:
    """Writes one line."""
    os.write(pipe, json.dumps(message).encode() + b"\n")


def listen(worker: Worker) -> tuple[list[Outcome], bool]:
    """Reads what a worker told: outcomes, and whether it has ended."""
    outcomes = []
    while True:
        try:
            data = os.read(worker.pipe, 1 << 16)
        except BlockingIOError:
            return outcomes, False
        if not data:
            return outcomes, True
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            worker.began, worker.ticks = time.monotonic(), usage(worker.pid)[0]
            if "begins" in message:
                worker.bytes = message["bytes"]  # as the worker says, since this process may hear of it late
                continue
            outcomes.append(Outcome(**message))
            worker.left.remove(message["index"])


def watch(worker: Worker) -> None:
    """Ends a worker that is above a limit."""
    ticks, resident = usage(worker.pid)
    reasons = {
        f"time: more than {PATIENCE:.0f} s": (ticks - worker.ticks) / TICKS > PATIENCE,
        f"time: waits for more than {WALL_PATIENCE:.0f} s": time.monotonic() - worker.began > WALL_PATIENCE,
        f"memory: more than {MOST_BYTES >> 30} GiB": resident - worker.bytes > MOST_BYTES,
    }
    for reason, holds in reasons.items():
        if holds and not worker.ended_for:
            worker.ended_for = reason
            os.kill(worker.pid, signal.SIGKILL)


def bury(worker: Worker) -> Iterator[Outcome]:
    """Waits for a worker that has ended; the input at which it did so has an outcome of its own."""
    os.close(worker.pipe)
    _, code, used = os.wait4(worker.pid, 0)
    if not worker.left:
        return
    exit_code = os.waitstatus_to_exitcode(code)
    reason = f"signal {signal.Signals(-exit_code).name}" if exit_code < 0 else f"exit code {exit_code}"
    seconds = (used.ru_utime + used.ru_stime) if worker.ended_for else 0.0
    yield Outcome(
        worker.target, worker.left.pop(0), DEFECT, worker.ended_for or f"crash: {reason}", reason, seconds=seconds
    )


def usage(pid: int) -> tuple[int, int]:
    """A process's processor time in ticks, and its resident bytes; zeros if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0, 0
    return int(fields[11]) + int(fields[12]), int(fields[21]) * PAGE


def status(name: str) -> int:
    """A line of this process's own status, such as VmHWM, in bytes."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(f"{name}:"))


def forget_peak() -> int:
    """Lets the peak of memory, VmHWM, begin from now; returns the bytes now."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return status("VmRSS")


def silence() -> None:
    """What a worker prints goes nowhere; a message is judged where it is raised, and a crash by its signal."""
    faulthandler.disable()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
