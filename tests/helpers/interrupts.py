"""Runs that a power cut ends at a chosen point, and what a model computes: hooks of the biLM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from elmo_hf import ElmoModel


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
