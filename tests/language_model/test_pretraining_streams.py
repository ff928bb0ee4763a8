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


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("sentence", SENTENCES[:4], ids=len)
def test_a_sentence_is_the_same_as_a_stream_of_one_sentence(
    make: Callable[..., ElmoForPreTraining], sentence: list[str], tmp_path: Path
) -> None:
    model = make()
    options = {"output_log_probs": True, "output_logits": True}
    alone = model(**inputs_of(model, tmp_path, [sentence]), **options)
    stream = model(**stream_of(model, tmp_path, [[sentence]]), **options)
    for name in ("loss", "forward_loss", "backward_loss"):
        assert_close(stream[name], alone[name])
    assert stream.forward_log_probs.shape == (1, len(sentence) + 1)
    assert_close(stream.forward_log_probs, alone.forward_log_probs[:, 1:])
    assert_close(stream.backward_log_probs, alone.backward_log_probs[:, :-1])
    assert_close(stream.forward_logits, alone.forward_logits[:, :-1])
    assert_close(stream.backward_logits, alone.backward_logits[:, 1:])


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


def test_a_stream_that_is_reset_at_every_sentence_predicts_as_sentences_do(tmp_path: Path) -> None:
    model = tiny_lm()
    stream = stream_of(model, tmp_path, ROWS)
    begins = [np.cumsum([0] + [len(words) + 1 for words in row])[:-1] for row in ROWS]
    resets = torch.zeros(2, 12, dtype=torch.bool)
    for row, places in enumerate(begins):
        resets[row, places] = True
    reset = model(**stream, forward_resets=resets, backward_resets=resets.flip(1), output_log_probs=True)
    carried = model(**stream, output_log_probs=True)
    for row, sentences in enumerate(ROWS):
        alone = model(**inputs_of(model, tmp_path, sentences), output_log_probs=True)
        for number, (begin, words) in enumerate(zip(begins[row], sentences, strict=True)):
            length = len(words) + 1
            place, backward_place = slice(begin, begin + length), slice(12 - begin - length, 12 - begin)
            assert_close(reset.forward_log_probs[row, place], alone.forward_log_probs[number, 1 : length + 1])
            assert_close(reset.backward_log_probs[row, backward_place], alone.backward_log_probs[number, :length])
            is_first = number == 0
            for name, columns in (("forward_log_probs", place), ("backward_log_probs", backward_place)):
                assert torch.allclose(carried[name][row, columns], reset[name][row, columns], atol=1e-5) == is_first


def test_the_streams_of_both_directions_may_be_of_different_text(tmp_path: Path) -> None:
    model = tiny_lm()
    first, second = stream_of(model, tmp_path, ROWS), stream_of(model, tmp_path, ROWS[::-1])
    mixed = first | {name: second[name] for name in ("backward_input_ids", "backward_targets")}
    output = model(**mixed, output_log_probs=True)
    assert_close(output.forward_log_probs, model(**first, output_log_probs=True).forward_log_probs)
    assert_close(output.backward_log_probs, model(**second, output_log_probs=True).backward_log_probs)
