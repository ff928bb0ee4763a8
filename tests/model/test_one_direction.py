"""A model of one direction is the forward half of one of two: values, states, gradients; saved, exported, in heads."""

from typing import Any

import pytest
import torch
from one_direction import forward_half, half_of
from task_models import LSTM, TASKS, make_batch, make_task_model
from tiny_inputs import assert_outputs_close, random_inputs

from elmo_hf import BiLMState, ElmoConfig, ElmoModel
from elmo_hf.scan.path import scan_path

P, H, L, B = 7, 9, 3, 4


@pytest.mark.parametrize("path", ["reference", "packed"])
def test_outputs_states_and_gradients_are_those_of_the_forward_half(path: str, tiny_config: ElmoConfig) -> None:
    tiny_config.num_hidden_layers, tiny_config.num_output_representations = L, 2
    both = ElmoModel(tiny_config).double().eval()
    with torch.no_grad():
        for parameter in both.bilm.parameters():
            parameter.mul_(3)
        for index, mix in enumerate(both.mixes):
            mix.logits.copy_(torch.arange(L + 1) * (index + 0.5))
    one, inputs = forward_half(both), random_inputs(both.config, [5, 2, 6, 1])
    states = [torch.randn(L, B, 2 * size, dtype=torch.float64, requires_grad=True) for size in (P, H)]
    half_states = [half_of(state).detach().requires_grad_() for state in states]
    with scan_path(path):
        expected = both(**inputs, state=BiLMState(*states), output_hidden_states=True)
        found = one(**inputs, state=BiLMState(*half_states), output_hidden_states=True)
    assert one.config.hidden_size == P
    assert tuple(found.state.cell.shape) == (L, B, H)
    assert_outputs_close(found.token_embeddings, expected.token_embeddings, 0)
    assert_outputs_close(found.hidden_states[0], found.token_embeddings, 0)
    assert_outputs_close(found.hidden_states, tuple(map(half_of, expected.hidden_states)), 1e-12)
    for name in ("last_hidden_state", "pooler_output", "representations", "state_hidden", "state_cell"):
        assert_outputs_close(found[name], half_of(expected[name]), 1e-12)
    half_of(expected.representations).square().sum().backward()
    found.representations.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in both.named_parameters()}
    for name, parameter in one.named_parameters():
        assert_outputs_close(parameter.grad, gradients[name], 1e-10)
    for state, half in zip(states, half_states, strict=True):
        assert_outputs_close(half.grad, half_of(state.grad), 1e-12)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("fields", [{}, LSTM], ids=["plain", "lstm"])
def test_heads_learn_from_one_direction_and_take_its_layers(task: str, fields: dict[str, Any]) -> None:
    model, batch = make_task_model(task, bidirectional=False, **fields), make_batch(task)
    output = model(**batch)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    layers = model.compute_bilm_layers(batch["input_ids"], batch["attention_mask"])
    assert layers.shape[-2:] == (3, 7)
    assert_outputs_close(model(**batch, bilm_layers=layers).loss, output.loss, 1e-6)
