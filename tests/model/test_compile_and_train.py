"""Training and what wraps a model for it: dropout, checkpointing, functional calls, bfloat16, compilation."""

from typing import Any

import pytest
import torch
from tiny_inputs import TINY, assert_outputs_close, random_inputs
from torch import Tensor
from transformers.utils import logging

from elmo_hf import ElmoConfig, ElmoModel
from elmo_hf.scan.kernels import using
from elmo_hf.scan.processor_kernels import ProcessorKernels


def results(run: Any, model: ElmoModel, inputs: dict[str, Tensor]) -> tuple[Any, ...]:
    """Outputs, and gradients of a mix."""
    model.zero_grad()
    output = run(**inputs, output_hidden_states=True)
    output.elmo_representations[0].square().sum().backward()
    return output.to_tuple(), {name: parameter.grad for name, parameter in model.named_parameters()}


def test_dropout_acts_on_representations_in_training_only(tiny_config: ElmoConfig) -> None:
    tiny_config.num_output_representations = 2
    model = ElmoModel(tiny_config)
    inputs = random_inputs(tiny_config, [6, 6, 6])
    evaluated = model.eval()(**inputs, output_hidden_states=True)
    trained = model.train()(**inputs, output_hidden_states=True)
    assert_outputs_close(trained.hidden_states, evaluated.hidden_states)
    masks = [representation == 0 for representation in trained.elmo_representations]
    assert not torch.equal(*masks)
    for mask, actual, expected in zip(masks, trained.elmo_representations, evaluated.elmo_representations, strict=True):
        assert 0.3 < mask.float().mean() < 0.7
        assert_outputs_close(actual[~mask], 2 * expected[~mask])


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_runs_layers_twice_and_gives_the_same_gradients(
    tiny_config: ElmoConfig, use_reentrant: bool
) -> None:
    tiny_config.representation_dropout = 0.0
    model = ElmoModel(tiny_config).train()
    inputs = random_inputs(tiny_config, [5, 3])
    expected = results(model, model, inputs)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})
    calls: list[object] = []
    model.bilm.layers[0].forward_lstm.register_forward_pre_hook(lambda module, args: calls.append(module))
    assert_outputs_close(results(model, model, inputs), expected)
    assert len(calls) == 2


def test_torch_func_gives_the_same_gradients(tiny_config: ElmoConfig) -> None:
    model, inputs = ElmoModel(tiny_config).eval(), random_inputs(tiny_config, [5, 3])
    _, expected = results(model, model, inputs)

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, weights, (), inputs).last_hidden_state.square().sum()

    gradients = torch.func.grad(loss)({name: weight.detach() for name, weight in model.named_parameters()})
    assert_outputs_close(gradients, expected)


@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("way", ["float32", "loaded", "autocast"])
def test_bfloat16_warns_once_where_the_processor_does_not_multiply_it(
    way: str, multiplies: bool, tiny_model: ElmoModel, caplog: pytest.LogCaptureFixture
) -> None:
    logging.warning_once.cache_clear()
    inputs = random_inputs(tiny_model.config, [4, 2])
    model = tiny_model.bfloat16() if way == "loaded" else tiny_model
    with using(ProcessorKernels(multiplies_bfloat16=multiplies)), torch.autocast("cpu", enabled=way == "autocast"):
        for _ in range(2):
            model(**inputs).last_hidden_state.float().sum().backward()
    found = [record.message for record in caplog.records if "bfloat16" in record.message]
    assert len(found) == (not multiplies and way != "float32")
    assert all("dtype=torch.float32" in message for message in found)


def test_a_compiled_model_gives_equal_values_and_gradients_for_every_batch_size_and_length() -> None:
    # One layer, one filter and no highway, because compile time grows with the graph.
    small = {"num_hidden_layers": 1, "char_filters": [[2, 4]], "num_highway_layers": 0, "representation_dropout": 0.0}
    model = ElmoModel(ElmoConfig(**TINY | small))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    for lengths in ([7, 1, 2], [5, 1, 2, 3], [4]):
        inputs = random_inputs(model.config, lengths)
        assert_outputs_close(results(compiled, model, inputs), results(model, model, inputs), 1e-5)
