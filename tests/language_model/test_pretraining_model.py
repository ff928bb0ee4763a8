"""`ElmoForPreTraining`: sentences, dropout, softmaxes; windows of streams, their state and resets."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo_hf import ElmoForPreTraining, ElmoModel
from elmo_hf.model.scan_elmo import BatchLayout
from tests.helpers.tiny_lm import ROWS, SENTENCES, WORDS, assert_close, inputs_of, stream_of, tiny_lm, tiny_word_lm

V, P = len(WORDS), 7


@pytest.mark.parametrize("layer_mix", ["scalar", "linear"])
def test_everything_that_learns_gets_a_gradient_and_the_mixes_do_not_learn(layer_mix: str, tmp_path: Path) -> None:
    made = tiny_lm(layer_mix=layer_mix)
    made.save_pretrained(tmp_path / "model")
    for model in (made, ElmoForPreTraining.from_pretrained(tmp_path / "model")):
        model(**inputs_of(model)).loss.backward()
        assert all((parameter.grad is not None) == parameter.requires_grad for parameter in model.parameters())
        frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
        assert frozen == {f"elmo.{layer_mix}_mixes.{name}" for name, _ in model.elmo.mixes.named_parameters()}
    mixes = ElmoModel.from_pretrained(tmp_path / "model").mixes
    assert all(parameter.requires_grad for parameter in mixes.parameters())


def top_of(model: ElmoForPreTraining, inputs: Any) -> Tensor:
    """The highest layer `(B, T, 2P)`."""
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    return model.elmo(**given, output_hidden_states=True).hidden_states[-1]


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_word_is_predicted_from_the_state_beside_it_and_losses_are_means(
    side: str, each_lm: ElmoForPreTraining
) -> None:
    inputs = inputs_of(each_lm, side=side)
    labels, mask = inputs["labels"], inputs["attention_mask"].bool()
    labels[3, 4] = labels[3, 5] = -100
    output = each_lm(**inputs, output_log_probs=True, output_logits=True)
    hidden, table = top_of(each_lm, inputs), (each_lm.softmax.weight, each_lm.softmax.bias)
    # Logits are for the word after a position, and for the word before it.
    logits = [nn.functional.linear(half, *table) for half in hidden.chunk(2, dim=-1)]
    assert_close([output.forward_logits, output.backward_logits], logits)
    expected = torch.zeros(2, *labels.shape)
    for row in range(len(SENTENCES)):
        places = mask[row].nonzero().flatten()
        # The forward direction never predicts `<S>`, the backward direction never `</S>`.
        for direction, (states, targets) in enumerate([(places[:-1], places[1:]), (places[1:], places[:-1])]):
            for state, target in zip(states, targets, strict=True):
                if labels[row, target] != -100:
                    log_probs = logits[direction][row, state].log_softmax(dim=-1)
                    expected[direction, row, target] = log_probs[labels[row, target]]
    assert (expected != 0).sum(dim=(1, 2)).tolist() == [sum(len(words) + 1 for words in SENTENCES) - 2] * 2
    assert_close(torch.stack([output.forward_log_probs, output.backward_log_probs]), expected)
    losses = [-log_probs[log_probs != 0].mean() for log_probs in expected]
    assert_close([output.forward_loss, output.backward_loss, output.loss], [*losses, sum(losses) / 2])
    assert (losses[0] - losses[1]).abs() > 0.01


def test_every_way_of_calling_gives_the_same_numbers() -> None:
    model = tiny_lm()
    inputs = inputs_of(model)
    output, scored = model(**inputs), model(**inputs, output_log_probs=True)
    assert_close([scored[name] for name in output], list(output.values()), 1e-6)
    parameters = list(model.elmo.bilm.parameters())
    gradients = [torch.autograd.grad(each.loss, parameters) for each in (scored, output)]
    assert_close(*gradients)
    assert_close(model(**inputs, return_dict=False), output.to_tuple())
    del inputs["labels"]
    without = model(**inputs, output_log_probs=True)
    # The first output has a gradient, also without labels.
    assert list(without) == ["forward_logits", "backward_logits", "state_hidden", "state_cell"]
    assert without[0].requires_grad
    assert_close(without.state, model.elmo(**inputs).state)
    assert list(model(**inputs, output_logits=False)) == ["state_hidden", "state_cell"]


@pytest.mark.parametrize("lengths", [[], [0]])
def test_nothing_to_predict_is_a_loss_of_zero(lengths: list[int]) -> None:
    model = tiny_lm()
    ids = torch.zeros(len(lengths), 3, 11, dtype=torch.long)
    output = model(ids, labels=torch.full(ids.shape[:2], 5), output_log_probs=True)
    assert (output.loss.item(), output.forward_log_probs.abs().sum().item()) == (0, 0)


def test_dropout_applies_to_each_layers_input_and_the_output_and_skips_carry_dropped_inputs() -> None:
    model = tiny_lm(lm_dropout=0.35).double()
    inputs = inputs_of(model)
    found = []
    for checkpoints in (False, True):
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        torch.manual_seed(5)
        loss = model.train()(**inputs).loss
        parameters = [*model.elmo.token_encoder.parameters(), *model.elmo.bilm.parameters()]
        found.append((loss, torch.autograd.grad(loss, parameters)))
    assert_close(found[1], found[0], 1e-6)

    def drop(vectors: Tensor) -> Tensor:
        return nn.functional.dropout(vectors, 0.35)

    torch.manual_seed(5)
    vectors, mask = model.elmo.embed_words(inputs["input_ids"], inputs["attention_mask"])
    layout, hidden, cell = BatchLayout(mask), vectors.new_zeros(len(mask), 2 * P), vectors.new_zeros(len(mask), 18)
    first, second = model.elmo.bilm.layers
    second.has_skip_connection = False
    dropped = drop(first(drop(torch.cat([vectors, vectors], dim=-1)), layout, hidden, cell)[0])
    top = drop(second(dropped, layout, hidden, cell)[0] + dropped)
    losses, is_predicted = [], mask[:, 1:]
    for before, after in ((top[:, :-1, :P], inputs["labels"][:, 1:]), (top[:, 1:, P:], inputs["labels"][:, :-1])):
        logits = nn.functional.linear(before[is_predicted], model.softmax.weight, model.softmax.bias)
        losses.append(nn.functional.cross_entropy(logits, after[is_predicted]))
    assert_close(found[0][0], (losses[0] + losses[1]) / 2)


def test_a_sampled_loss_has_its_own_name_and_does_not_occur_in_evaluation() -> None:
    model = tiny_lm(softmax="sampled", lm_dropout=0.0)
    inputs = inputs_of(model)
    full = model(**inputs)
    assert list(full) == ["loss", "forward_loss", "backward_loss", "state_hidden", "state_cell"]
    sampled = model.train()(**inputs, output_log_probs=True)
    names = ["loss", "sampled_forward_loss", "sampled_backward_loss", "forward_log_probs", "backward_log_probs"]
    assert list(sampled) == [*names, "state_hidden", "state_cell"]
    # Log-probabilities come from the exact softmax.
    assert_close(sampled.forward_log_probs.sum() / (sampled.forward_log_probs != 0).sum(), -full.forward_loss)


def test_without_the_package_only_a_loss_is_refused_and_not_logits_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_lm(softmax="sampled", lm_dropout=0.0).train()
    monkeypatch.setattr(type(model), "package_parts", None)
    inputs = inputs_of(model)
    with pytest.raises(ImportError, match="sampled losses"):
        model(**inputs)
    inputs.pop("labels")
    output = model(**inputs)
    assert output.loss is None
    assert_close(output.forward_logits, model.eval()(**inputs).forward_logits)


def test_a_shared_softmax_follows_an_embedding_that_was_replaced() -> None:
    model = tiny_word_lm(share_embedding_softmax=True, num_softmax_words=None)
    assert model.config.num_softmax_words == V
    model.set_input_embeddings(nn.Embedding(V + 1, P, padding_idx=0))
    inputs = inputs_of(model, SENTENCES[:1])
    table = model.elmo.token_encoder.embedding.weight[1:]
    expected = top_of(model, inputs)[..., :P] @ table.t() + model.softmax.bias
    assert_close(model(**inputs, output_logits=True).forward_logits, expected)


@pytest.mark.parametrize("cuts", [[0, 4, 5, 11, 12], [0, 1, 12], [0, 6, 12]])
def test_windows_with_their_state_carried_are_one_long_window(cuts: list[int]) -> None:
    model = tiny_lm()
    stream = stream_of(model)
    stream |= {name: torch.rand(2, 12) < 0.3 for name in ("forward_resets", "backward_resets")}
    whole = model(**stream, output_log_probs=True)
    state, losses, log_probs = None, [], []
    for begin, end in pairwise(cuts):
        # The backward stream reads its last column first.
        columns, turned = slice(begin, end), slice(12 - end, 12 - begin)
        part = {name: each[:, turned if "backward" in name else columns] for name, each in stream.items()}
        output = model(**part, state=state, output_log_probs=True)
        state = output.state
        assert not any(tensor.requires_grad for tensor in state)
        losses.append((end - begin) / 12 * output.loss)
        log_probs.append((output.forward_log_probs, output.backward_log_probs))
    forward, backward = zip(*log_probs, strict=True)
    assert_close(torch.stack(losses).sum(), whole.loss)
    assert_close(torch.cat(forward, dim=1), whole.forward_log_probs)
    assert_close(torch.cat(backward[::-1], dim=1), whole.backward_log_probs)
    assert_close(state, whole.state)


def test_a_stream_that_is_reset_at_every_sentence_predicts_as_sentences_do(each_lm: ElmoForPreTraining) -> None:
    model = each_lm
    stream = stream_of(model)
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
        alone = model(**inputs_of(model, sentences), output_log_probs=True, output_logits=True)
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
