"""A layer as an operator of compiled graphs: its gradient, torch's own checks, and the same bits as outside a graph."""

import functools
from typing import Any

import pytest
import torch
from scan_layers import H, P, Tensors, arguments_of, layer_of
from tiny_inputs import assert_outputs_close
from torch import Tensor
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from elmo_hf import ElmoConfig
from elmo_hf.model.bilm import BiLM, BiLMState
from elmo_hf.scan import packed
from elmo_hf.scan.registered import register
from elmo_hf.tasks import crf, task_encoder  # noqa: F401  (they register operators)

# Padding on either side, a gap, a text without words.
MASK = torch.tensor([[0, 1, 1, 0, 1, 1], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]).bool()


def operator_arguments(mask: Tensor, has_resets: bool, **fields: Any) -> tuple[Any, ...]:
    layer = layer_of(**fields)
    inputs, hidden, cell = arguments_of(layer)
    weights = [each for lstm in layer.lstms for each in lstm.weights() if each is not None]
    weights = [weight.detach().requires_grad_() for weight in weights]
    resets = [torch.rand(mask.shape) < 0.4 for _ in layer.lstms] if has_resets else []
    limits = (layer.forward_lstm.cell_clip, layer.forward_lstm.projection_clip if len(weights) % 4 == 0 else None)
    return inputs, mask, resets, hidden, cell, weights, *limits, True


@pytest.mark.parametrize(
    ("fields", "has_resets"),
    [
        ({}, True),
        ({"cell_size": P, "cell_clip": None}, False),
        ({"bidirectional": False}, True),
        ({"bidirectional": False, "cell_size": P}, False),
    ],
)
def test_its_gradient_is_that_of_its_values(fields: dict[str, Any], has_resets: bool) -> None:
    inputs, mask, resets, hidden, cell, weights, *options = operator_arguments(MASK, has_resets, **fields)

    def results(inputs: Tensor, hidden: Tensor, cell: Tensor, *weights: Tensor) -> Tensors:
        return torch.ops.elmo_hf.layer_3(inputs, mask, resets, hidden, cell, list(weights), *options)[:3]

    assert torch.autograd.gradcheck(results, (inputs, hidden, cell, *weights), fast_mode=True)


def test_torch_finds_no_fault_with_it() -> None:
    operator = torch.ops.elmo_hf.layer_3.default
    torch.library.opcheck(operator, operator_arguments(torch.ones_like(MASK), has_resets=True))
    # With padding, part of the memory for the gradient is arbitrary, which the fourth check would compare.
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(operator, operator_arguments(MASK, has_resets=False), test_utils=checks)


@pytest.mark.parametrize(
    "kind", ["plain", "large, with resets", "checkpointed, with autocast", "one direction, with resets"]
)
def test_a_compiled_bilm_gives_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind.startswith("large"):
        monkeypatch.setattr(packed, "JOINT_BYTES", 0)
    config = ElmoConfig(
        projection_size=P, cell_size=H, cell_clip=0.4, projection_clip=0.3, bidirectional=not kind.startswith("one")
    )
    bilm, count = BiLM(config), config.num_directions
    for parameter in bilm.parameters():
        torch.nn.init.uniform_(parameter, -0.9, 0.9)
    for layer in bilm.layers if kind.startswith("checkpointed") else ():
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(bilm, backend="aot_eager", fullgraph=True, dynamic=True)
    for mask in (MASK, MASK[:2, :5].contiguous()):
        states = [torch.randn(2, len(mask), count * size) for size in (P, H)]
        leaves = [torch.randn(*mask.shape, P), *states]
        leaves = [*(leaf.requires_grad_() for leaf in leaves), *bilm.parameters()]
        resets = [torch.rand(mask.shape) < 0.4 for _ in range(count)] if "resets" in kind else None
        found = []
        for run in (bilm, compiled):
            with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in kind):
                outputs, state = run(leaves[0], mask, BiLMState(*leaves[1:3]), resets)
            gradients = torch.autograd.grad(outputs[-1].square().sum(), leaves)
            found.append((*outputs, *state, *gradients))
        assert_outputs_close(found[1], found[0], 0)
    assert counters["stats"]["unique_graphs"] == 1


def test_without_gradient_nothing_is_kept_for_it() -> None:
    *arguments, _ = operator_arguments(MASK, has_resets=False)
    results = torch.ops.elmo_hf.layer_3(*arguments, False)
    assert [tensor.numel() for tensor in results[3:]] == [0, 0, 0]
    assert_outputs_close(results[:3], torch.ops.elmo_hf.layer_3(*arguments, True)[:3], 0)


# Folders carry copies of this code, which share operators: what changes any of these needs a new version in the name.
SCHEMAS = [
    "layer_3(Tensor inputs, Tensor mask, Tensor[] resets, Tensor hidden, Tensor cell, Tensor[] weights, "
    "float? cell_limit, float? projection_limit, bool has_trace) -> "
    "(Tensor outputs, Tensor hidden, Tensor cell, Tensor gates, Tensor cells, Tensor vectors)",
    "layer_backward_3(Tensor d_outputs, Tensor d_hidden, Tensor d_cell, Tensor mask, Tensor[] resets, Tensor hidden, "
    "Tensor[] weights, Tensor[] trace, float? cell_limit, float? projection_limit, bool needs_inputs) -> Tensor[]",
    "crf_alphas_1(Tensor emissions, Tensor mask, Tensor transitions, Tensor start) -> Tensor",
    "crf_betas_1(Tensor emissions, Tensor mask, Tensor transitions, Tensor end) -> Tensor",
    "crf_best_labels_1(Tensor emissions, Tensor mask, Tensor transitions, Tensor start, Tensor end) -> Tensor",
    "lstm_1(Tensor inputs, Tensor input_weight, Tensor recurrent_weight, Tensor input_bias, Tensor recurrent_bias) "
    "-> Tensor",
    *(f"{name}_1_backward(Tensor d_result, Tensor[] tensors) -> Tensor[]" for name in ("crf_alphas", "crf_betas")),
    *(f"{name}_1_backward(Tensor d_result, Tensor[] tensors) -> Tensor[]" for name in ("crf_best_labels", "lstm")),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=[schema.partition("(")[0] for schema in SCHEMAS])
def test_a_second_copy_of_the_code_takes_the_registered_operator(schema: str) -> None:
    name = schema.partition("(")[0]
    operator = register(name, "", print, print)
    assert str(operator._schema) == f"elmo_hf::{schema}"
