"""Rows of words, and the task's LSTM against torch's packed one."""

import torch
from tiny_inputs import assert_outputs_close
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmo_hf.tasks.task_encoder import BiLSTM
from elmo_hf.tasks.text_rows import TextRows

# Two rows of six positions; 1 and 2 mark the words of the first and of the second text.
TEXTS = torch.tensor([[0, 1, 1, 0, 2, 0], [0, 0, 0, 1, 2, 2]])
VALUES = torch.arange(12).view(2, 6)


def test_each_text_gets_a_row_with_its_words_first_which_go_back_to_their_places() -> None:
    rows = TextRows([TEXTS == 1, TEXTS == 2])
    assert rows.mask.tolist() == [[True, True], [True, False], [True, False], [True, True]]
    taken = rows.take(VALUES).masked_fill(~rows.mask, -1)
    assert taken.tolist() == [[1, 2], [9, -1], [4, -1], [10, 11]]
    assert torch.equal(rows.take(torch.stack([VALUES, -VALUES], dim=-1))[..., 1], -rows.take(VALUES))
    assert rows.put_back(rows.take(VALUES)).tolist() == [[0, 1, 2, 0, 4, 0], [0, 0, 0, 9, 10, 11]]
    vectors = torch.randn(4, 2, 3)
    assert torch.equal(rows.put_back(vectors)[1, 5], vectors[3, 1])


def test_a_batch_without_words_keeps_a_column() -> None:
    rows = TextRows([torch.zeros(2, 3, dtype=torch.bool)])
    assert rows.mask.tolist() == [[False], [False]]
    assert rows.put_back(torch.ones(2, 1, 4)).tolist() == torch.zeros(2, 3, 4).tolist()


def test_the_tasks_lstm_is_torchs_over_packed_texts() -> None:
    ours, theirs = BiLSTM(5, 3), nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    for lstm, suffix in ((ours.forward_lstm, ""), (ours.backward_lstm, "_reverse")):
        lstm.load_state_dict({name: getattr(theirs, name + suffix) for name in names})
    lengths = torch.tensor([4, 1, 3])
    inputs, mask = torch.randn(3, 4, 5), torch.arange(4) < lengths.unsqueeze(1)
    packed, _ = theirs(pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True)
    assert_outputs_close(ours(inputs, mask), expected)
