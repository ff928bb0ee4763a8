"""A loop is the same run eagerly and as one operator of an exported graph."""

import pytest
import torch
from tiny_inputs import assert_outputs_close
from torch import Tensor, nn

from elmo_hf.scan.operator import State, Stepped, scan_words


def step(state: State, word: State) -> Stepped:
    (first, second), (addend, factor) = state, word
    return (first + addend, first - second * factor), second


class Loop(nn.Module):
    """Both parts of the state start as one tensor, and the output is a part of the state."""

    def __init__(self, reverse: bool) -> None:
        super().__init__()
        self.reverse = reverse

    def forward(self, addends: Tensor, factors: Tensor, start: Tensor) -> tuple[State, Tensor]:
        return scan_words(step, (start, start), (addends, factors), self.reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_exported_loop_gives_the_loops_numbers_for_every_length(reverse: bool) -> None:
    def words(length: int) -> tuple[Tensor, ...]:
        return torch.randn(length, 2, 4), torch.randn(length, 2, 1), torch.randn(2, 4)

    loop, any_length = Loop(reverse), {0: torch.export.Dim("words", min=1)}
    graph = torch.export.export(loop, words(3), dynamic_shapes=(any_length, any_length, None), strict=False).module()
    for length in (5, 8, 1):
        tensors = words(length)
        assert_outputs_close(graph(*tensors), loop(*tensors))


def test_outputs_stand_in_reading_order() -> None:
    words = (torch.tensor([[1.0], [2.0], [4.0]]), torch.ones(3, 1))
    state = (torch.zeros(1), torch.tensor([8.0]))
    # The output is the second part before the word; it becomes the first part less itself.
    assert scan_words(step, state, words)[1].flatten().tolist() == [8, -8, 9]
    assert scan_words(step, state, words, reverse=True)[1].flatten().tolist() == [12, -8, 8]
