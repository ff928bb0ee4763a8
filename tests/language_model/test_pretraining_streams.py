"""`ElmoForPreTraining` on streams: sentences joined together, windows of them, state, resets, errors."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_lm import MAKERS, SENTENCES, assert_close, inputs_of, stream_of, tiny_lm
from torch import Tensor

from elmo_hf.language_model.pretraining import ElmoForPreTraining

ROWS = [[SENTENCES[0], SENTENCES[1], SENTENCES[4]], [SENTENCES[3], SENTENCES[4][:1], SENTENCES[1]]]


def window(stream: dict[str, Tensor], begin: int, end: int) -> dict[str, Tensor]:
    """Steps `begin` to `end`; the backward stream reads from the last column on."""
    return {
        name: tensor.flip(1)[:, begin:end].flip(1) if "backward" in name else tensor[:, begin:end]
        for name, tensor in stream.items()
    }


@pytest.mark.parametrize("cuts", [[0, 4, 5, 11, 12], [0, 1, 12], [0, 6, 12]])
def test_windows_with_their_state_carried_are_one_long_window(cuts: list[int], tmp_path: Path) -> None:
    model = tiny_lm()
    stream = stream_of(model, tmp_path, ROWS)
    assert stream["input_ids"].shape == (2, 12, 11)
    stream |= {name: torch.rand(2, 12) < 0.3 for name in ("forward_resets", "backward_resets")}
    whole = model(**stream, output_log_probs=True)
    state, losses, log_probs = None, [], []
    for begin, end in pairwise(cuts):
        output = model(**window(stream, begin, end), state=state, output_log_probs=True)
        state = output.state
        assert not any(tensor.requires_grad for tensor in state)
        losses.append((end - begin) / 12 * output.loss)
        log_probs.append((output.forward_log_probs, output.backward_log_probs))
    forward, backward = zip(*log_probs, strict=True)
    assert_close(torch.stack(losses).sum(), whole.loss)
    assert_close(torch.cat(forward, dim=1), whole.forward_log_probs)
    assert_close(torch.cat(backward[::-1], dim=1), whole.backward_log_probs)
    assert_close(state, whole.state)


@pytest.mark.parametrize("make", MAKERS)
def test_a_stream_that_is_reset_at_every_sentence_predicts_as_sentences_do(
    make: Callable[..., ElmoForPreTraining], tmp_path: Path
) -> None:
    model = make()
    stream = stream_of(model, tmp_path, ROWS)
    # The directions read different text.
    stream |= {name: stream[name].flip(0) for name in ("backward_input_ids", "backward_targets")}
    begins = [np.cumsum([0] + [len(words) + 1 for words in row])[:-1] for row in ROWS]
    resets = torch.zeros(2, 12, dtype=torch.bool)
    for row, places in enumerate(begins):
        resets[row, places] = True
    given = {"forward_resets": resets, "backward_resets": resets.flip(0, 1)}
    reset = model(**stream, **given, output_log_probs=True, output_logits=True)
    carried = model(**stream, output_log_probs=True)
    sums = torch.zeros(2)
    for row, sentences in enumerate(ROWS):
        alone = model(**inputs_of(model, tmp_path, sentences), output_log_probs=True, output_logits=True)
        for number, (begin, words) in enumerate(zip(begins[row], sentences, strict=True)):
            end, length = begin + len(words) + 1, len(words) + 1
            forward, backward = (row, slice(begin, end)), (1 - row, slice(12 - end, 12 - begin))
            assert_close(reset.forward_log_probs[forward], alone.forward_log_probs[number, 1 : length + 1])
            assert_close(reset.backward_log_probs[backward], alone.backward_log_probs[number, :length])
            assert_close(reset.forward_logits[forward], alone.forward_logits[number, :length])
            assert_close(reset.backward_logits[backward], alone.backward_logits[number, 1 : length + 1])
            for name, columns in (("forward_log_probs", forward), ("backward_log_probs", backward)):
                assert torch.allclose(carried[name][columns], reset[name][columns], atol=1e-5) == (number == 0)
        sums += torch.stack([alone.forward_log_probs.sum(), alone.backward_log_probs.sum()])
    assert_close(torch.stack([reset.forward_loss, reset.backward_loss]), -sums / 24)
    assert_close(reset.loss, -sums.sum() / 48)
