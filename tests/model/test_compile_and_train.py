"""Training and what wraps a model for it: dropout, checkpointing, adapters, autocast, compilation, export."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from task_models import logits_of, make_batch, make_task_model
from tiny_inputs import assert_outputs_close, random_inputs, word_config
from torch._dynamo.testing import CompileCounterWithBackend

from elmo_hf import ElmoConfig, ElmoModel


@pytest.fixture
def small_config(tiny_config: ElmoConfig) -> ElmoConfig:
    """One layer, one filter and no highway, because compile time grows with the graph."""
    tiny_config.representation_dropout, tiny_config.num_hidden_layers = 0.0, 1
    tiny_config.char_filters, tiny_config.num_highway_layers = [[2, 4]], 0
    return tiny_config


def test_dropout_acts_on_representations_in_training_only(tiny_config: ElmoConfig) -> None:
    tiny_config.num_output_representations = 2
    model = ElmoModel(tiny_config)
    inputs = random_inputs(tiny_config, [6, 6, 6])
    evaluated, trained = model.eval()(**inputs), model.train()(**inputs)
    assert_outputs_close(trained.last_hidden_state, evaluated.last_hidden_state)
    masks = [representation == 0 for representation in trained.elmo_representations]
    assert not torch.equal(*masks)
    for mask, actual, expected in zip(masks, trained.elmo_representations, evaluated.elmo_representations, strict=True):
        assert 0.3 < mask.float().mean() < 0.7
        assert_outputs_close(actual[~mask], 2 * expected[~mask])


def test_without_dropout_training_gives_the_evaluated_representations(tiny_config: ElmoConfig) -> None:
    tiny_config.representation_dropout = 0.0
    model, inputs = ElmoModel(tiny_config), random_inputs(tiny_config, [6, 4])
    evaluated, trained = model.eval()(**inputs), model.train()(**inputs)
    assert_outputs_close(trained.elmo_representations, evaluated.elmo_representations, 0)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_gradient_checkpointing_gives_the_same_gradients(tiny_config: ElmoConfig, use_reentrant: bool) -> None:
    tiny_config.representation_dropout = 0.0
    model = ElmoModel(tiny_config).train()
    inputs = random_inputs(tiny_config, [5, 3])
    model(**inputs).last_hidden_state.square().sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})
    model(**inputs).last_hidden_state.square().sum().backward()
    assert_outputs_close({name: parameter.grad for name, parameter in model.named_parameters()}, expected)


def test_gradient_checkpointing_runs_every_layer_twice(tiny_config: ElmoConfig) -> None:
    model = ElmoModel(tiny_config).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    calls: list[object] = []
    for layer in model.bilm.layers:
        layer.forward_lstm.register_forward_pre_hook(lambda module, args: calls.append(module))
    model(**random_inputs(tiny_config, [5, 3])).last_hidden_state.sum().backward()
    assert len(calls) == 2 * 2


def test_lora_adapters_attach_to_the_lstms_linears_and_act(tiny_model: ElmoModel) -> None:
    peft = pytest.importorskip("peft")
    inputs = random_inputs(tiny_model.config, [5, 3])
    before = tiny_model(**inputs).last_hidden_state
    targets = ["input_linear", "recurrent_linear"]
    adapted = peft.get_peft_model(tiny_model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False))
    after = adapted(**inputs).last_hidden_state
    assert (after - before).abs().max() > 1e-4
    after.sum().backward()
    trained = {name for name, parameter in adapted.named_parameters() if parameter.grad is not None}
    assert len(trained) == 2 * 2 * 2 * len(targets)
    assert all("lora_" in name for name in trained)


def test_autocast_runs_forward_and_backward(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, [5, 3])
    expected = tiny_model(**inputs).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = tiny_model(**inputs).last_hidden_state
    assert_outputs_close(output.float(), expected, 5e-2)
    output.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in tiny_model.bilm.parameters())


def test_one_compiled_graph_serves_every_batch_size_and_length_with_equal_gradients(small_config: ElmoConfig) -> None:
    model = ElmoModel(small_config)
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    # For fewer than 16 words in all, torch computes gradients of convolutions in another way, by a second graph.
    for num_graphs, batch_size, length in [(1, 2, 9), (1, 3, 7), (1, 4, 5), (2, 2, 3)]:
        inputs = random_inputs(small_config, [length, *range(1, batch_size)][:batch_size])
        for tensor in inputs.values():
            torch._dynamo.mark_dynamic(tensor, [0, 1])
        gradients = []
        for run in (model, compiled):
            model.zero_grad()
            output = run(**inputs, output_hidden_states=True)
            output.elmo_representations[0].square().sum().backward()
            gradients.append(({name: p.grad for name, p in model.named_parameters()}, output.to_tuple()))
        assert_outputs_close(gradients[1], gradients[0], 1e-5)
        assert graphs.frame_count == num_graphs


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's own compiler needs one for C++")
def test_torchs_own_compiler_gives_equal_values_and_gradients(small_config: ElmoConfig) -> None:
    small_config.num_highway_layers = 1  # Without, torch 2.13 gives both directions' W_p the sum of both gradients.
    model = ElmoModel(small_config)
    torch._dynamo.reset()
    inputs = random_inputs(small_config, [3, 2])
    results = []
    # Compiled in this process, and without vector instructions, which torch would first try out one by one.
    quick = torch._inductor.config.patch({"compile_threads": 1, "cpp.vec_isa_ok": False})
    with torch._dynamo.config.patch(capture_scalar_outputs=True), quick:
        for run in (model, torch.compile(model)):
            model.zero_grad()
            output = run(**inputs, output_hidden_states=True)
            output.elmo_representations[0].square().sum().backward()
            results.append(({name: p.grad for name, p in model.named_parameters()}, output.to_tuple()))
    assert_outputs_close(results[1], results[0], 1e-5)


@pytest.mark.parametrize("task", ["crf", "questions"])
def test_models_for_a_task_compile_into_one_graph_for_every_batch_size_and_length(task: str) -> None:
    model = make_task_model(task, num_hidden_layers=1, num_highway_layers=0, char_filters=[[2, 4]])
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    for side, rows in (("left", slice(0, 3)), ("right", slice(1, 3)), ("right", slice(0, 2)), ("left", slice(0, 2))):
        batch = make_batch(task, side, rows)
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        for tensor in inputs.values():
            torch._dynamo.mark_dynamic(tensor, [0, 1])
        with torch.no_grad():
            assert_outputs_close(logits_of(compiled(**inputs)), logits_of(model(**inputs)), 1e-5)
    assert graphs.frame_count == 1


def test_a_model_compiles_into_one_graph_and_takes_one_text_after_many(tiny_model: ElmoModel) -> None:
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("eager")
    compiled: Any = torch.compile(tiny_model, backend=graphs, fullgraph=True, dynamic=True)
    for num_graphs, lengths in ((1, [3, 2]), (2, [4])):
        inputs = random_inputs(tiny_model.config, lengths)
        with torch.no_grad():
            assert_outputs_close(compiled(**inputs).to_tuple(), tiny_model(**inputs).to_tuple(), 1e-6)
        assert graphs.frame_count == num_graphs


def test_an_exported_model_takes_any_batch_size_and_length(small_config: ElmoConfig, tmp_path: Path) -> None:
    small_config.num_hidden_layers = 2  # for the skip connection
    model = ElmoModel(small_config).eval()
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(3)  # so that the clips act
    dimensions = {0: torch.export.Dim("texts", min=2, max=64), 1: torch.export.Dim("words", min=2, max=512)}
    example = random_inputs(model.config, [5, 3])
    shapes = dict.fromkeys(example, dimensions)
    program = torch.export.export(model, (), example, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, tmp_path / "elmo.pt2")
    exported = torch.export.load(tmp_path / "elmo.pt2").module()
    for lengths in ([4, 2, 1], [9, 9]):
        inputs = random_inputs(model.config, lengths)
        assert_outputs_close(exported(**inputs).to_tuple(), model(**inputs).to_tuple(), 1e-5)


def test_inputs_for_tracing_run(tiny_model: ElmoModel) -> None:
    assert tiny_model(**tiny_model.dummy_inputs).last_hidden_state.shape == (2, 3, 14)


def test_inputs_for_tracing_a_word_model_run() -> None:
    model = ElmoModel(word_config())
    assert model(**model.dummy_inputs).last_hidden_state.shape == (2, 3, 14)
