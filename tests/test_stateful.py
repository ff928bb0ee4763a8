"""`StatefulElmo`: what it keeps between calls, and that it keeps nothing once it is switched off."""

import pytest
import torch
from torch import Tensor

from elmo_hf import ElmoModel
from elmo_hf.stateful import StatefulElmo
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer


@pytest.fixture
def elmo(tiny_folder: object) -> StatefulElmo:
    return StatefulElmo(ElmoModel.from_pretrained(tiny_folder).eval())


@pytest.fixture
def inputs(tiny_tokenizer: ElmoTokenizer) -> dict[str, Tensor]:
    return tiny_tokenizer(["The ferry left .", "Yes ."], padding=True, return_tensors="pt")


@torch.no_grad()
def vectors(elmo: StatefulElmo, inputs: dict[str, Tensor]) -> Tensor:
    return elmo(**inputs).last_hidden_state


def test_switched_off_from_the_start_it_keeps_no_state(elmo: StatefulElmo, inputs: dict[str, Tensor]) -> None:
    elmo.stateful = False
    first, second = vectors(elmo, inputs), vectors(elmo, inputs)
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    assert elmo._state is None
    elmo.stateful = True
    torch.testing.assert_close(vectors(elmo, inputs), first, rtol=0, atol=0)


def test_switched_off_later_it_keeps_the_state_it_had(elmo: StatefulElmo, inputs: dict[str, Tensor]) -> None:
    first = vectors(elmo, inputs)
    state = elmo._state
    assert state is not None
    before = [tensor.clone() for tensor in state]
    elmo.stateful = False
    for _ in range(2):
        torch.testing.assert_close(vectors(elmo, inputs), first, rtol=0, atol=0)
    assert elmo._state is state
    for tensor, kept in zip(state, before, strict=True):
        torch.testing.assert_close(tensor, kept, rtol=0, atol=0)
    elmo.stateful = True
    assert (vectors(elmo, inputs) - first).abs().max() > 1e-2
