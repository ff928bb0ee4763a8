"""Runs that a power cut ends at a chosen point, what a model computes, and the files that were written."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elmo_hf import ElmoModel
from elmo_hf.embedding.processes import Alone


class Interrupt(Exception):
    """Stands for a power cut."""


def power_cut() -> None:
    raise Interrupt


@contextmanager
def at_call(model: ElmoModel, number: int, action: Callable[[], Any]) -> Iterator[None]:
    """Does something before the biLM's call of this number, counted from 1."""
    calls: list[int] = []

    def count(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == number:
            action()

    hook = model.bilm.register_forward_pre_hook(count)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def interrupted(model: ElmoModel, number: int) -> Iterator[None]:
    """A power cut at the biLM's call of this number."""
    with at_call(model, number, power_cut), pytest.raises(Interrupt):
        yield


def count_rows(model: ElmoModel) -> list[int]:
    """Records how many sentences each call of the biLM reads."""
    counts: list[int] = []
    model.bilm.register_forward_pre_hook(lambda module, args: counts.append(len(args[0])))
    return counts


class Waiting(Alone):
    """A process that does something when all shards are written, before they are joined."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self.left = iter([lambda: None, action])

    def wait_for_everyone(self) -> None:
        next(self.left)()


def unjoined(embed: Callable[..., int], output: str, *sources: str, **options: Any) -> Path:
    """The folder of the shards of a run that a power cut ended before it joined them."""
    with pytest.raises(Interrupt):
        embed(output, *sources, processes=Waiting(power_cut), **options)
    return work_of(output)


def work_of(output: str) -> Path:
    return Path(output if output.endswith("/") else f"{output}.partial")


def contents(output: str | Path) -> dict[str, bytes]:
    """Every file of a folder, or a file."""
    root = Path(output)
    return {str(path.relative_to(root)): path.read_bytes() for path in [root, *root.rglob("*")] if path.is_file()}
