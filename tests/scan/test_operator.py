"""A loop over words; as one operator of an exported graph it is tested with whole models, in `tests/share`."""

import torch

from elmo_hf.scan.operator import State, Stepped, scan_words


def step(state: State, word: State) -> Stepped:
    (first, second), (addend, factor) = state, word
    return (first + addend, first - second * factor), second


def test_outputs_stand_in_reading_order() -> None:
    words = (torch.tensor([[1.0], [2.0], [4.0]]), torch.ones(3, 1))
    state = (torch.zeros(1), torch.tensor([8.0]))
    # The output is the second part before the word; it becomes the first part less itself.
    assert scan_words(step, state, words)[1].flatten().tolist() == [8, -8, 9]
    assert scan_words(step, state, words, reverse=True)[1].flatten().tolist() == [12, -8, 8]
