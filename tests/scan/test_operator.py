"""A loop is the same run eagerly and as one operator of a graph."""

import pytest
import torch
from tiny_inputs import assert_outputs_close
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from elmo_hf.scan.operator import State, Stepped, scan_words


def step(state: State, word: State) -> Stepped:
    (first, second), (addend, factor) = state, word
    return (first + addend, first - second * factor), second


def loop(addends: Tensor, factors: Tensor, start: Tensor, reverse: bool) -> tuple[State, Tensor]:
    """Both parts of the state start as one tensor, and the output is a part of the state."""
    return scan_words(step, (start, start), (addends, factors), reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_graph_gives_the_loops_numbers_and_gradients_for_every_length(reverse: bool) -> None:
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loop, backend=graphs, fullgraph=True, dynamic=True)
    for length in (3, 5, 8, 2):
        tensors = [torch.randn(length, 2, 4), torch.randn(length, 2, 1), torch.randn(2, 4)]
        found, gradients = [], []
        for run in (loop, compiled):
            leaves = [tensor.clone().requires_grad_() for tensor in tensors]
            state, outputs = run(*leaves, reverse)
            found.append((*state, outputs))
            gradients.append(torch.autograd.grad((state[1] * state[0]).sum() + outputs.square().sum(), leaves))
        assert_outputs_close(found[1], found[0], 1e-5)
        assert_outputs_close(gradients[1], gradients[0], 1e-4)
    assert graphs.frame_count == 1


def test_outputs_stand_in_reading_order() -> None:
    words = (torch.tensor([[1.0], [2.0], [4.0]]), torch.ones(3, 1))
    state = (torch.zeros(1), torch.tensor([8.0]))
    # The output is the second part before the word; it becomes the first part less itself.
    assert scan_words(step, state, words)[1].flatten().tolist() == [8, -8, 9]
    assert scan_words(step, state, words, reverse=True)[1].flatten().tolist() == [12, -8, 8]
