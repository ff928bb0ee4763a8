"""Runs that a power cut ends at a chosen point, and what a model computes afterwards."""

from typing import Any

import pytest
from torch import Tensor

from elmo_hf import BiLMState, ElmoModel


class Interrupt(Exception):
    """Stands for a power cut."""


def fail_at_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    """Makes `OWNER.NAME` fail at its call of this number, counted from 1."""
    function, calls = getattr(owner, name), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise Interrupt
        return function(*args)

    monkeypatch.setattr(owner, name, failing)


def count_rows(mixed_model: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records how many sentences each call of the biLM reads."""
    forward, counts = mixed_model.bilm.forward, []

    def counting(vectors: Tensor, *args: Any) -> tuple[list[Tensor], BiLMState]:
        counts.append(len(vectors))
        return forward(vectors, *args)

    monkeypatch.setattr(mixed_model.bilm, "forward", counting)
    return counts
