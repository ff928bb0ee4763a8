"""Training and what wraps a model for it; initial weights, and what saving and loading keep in every precision."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel
from transformers.utils import logging

from elmo_hf import ElmoConfig, ElmoModel, ElmoPreTrainedModel
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.model.scan_elmo import breaks_compiled_graphs, is_exporting, using
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, random_inputs, word_config
from tests.helpers.tiny_lm import inputs_of, tiny_lm


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


def test_torch_func_gives_the_same_gradients_of_a_language_model() -> None:
    model = tiny_lm().eval()
    inputs = inputs_of(model)
    model(**inputs).loss.backward()
    learned = {name: weight for name, weight in model.named_parameters() if weight.grad is not None}

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, weights, (), inputs).loss

    gradients = torch.func.grad(loss)({name: weight.detach() for name, weight in learned.items()})
    for name, weight in learned.items():
        # Sums of float32 in another order: the package's loss has a gradient of its own, by blocks.
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-5, atol=1e-5)


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


def test_initial_weights_are_bilm_tfs() -> None:
    config = ElmoConfig(projection_size=64, cell_size=128, char_filters=[[1, 60], [3, 68]], num_highway_layers=1)
    model = ElmoModel(config)
    encoder, lstm = model.token_encoder, model.bilm.layers[1].backward_lstm
    assert encoder.embedding.weight[0].abs().max() == 0
    assert 0.95 < encoder.embedding.weight.abs().max() <= 1
    assert 0.045 < encoder.convolutions[1].weight.abs().max() <= 0.05
    assert encoder.highways[0].gate.bias.tolist() == [-2.0] * 128
    for linear in (encoder.highways[0].transform, *encoder.convolutions, encoder.projection):
        assert linear.bias.abs().max() == 0
    assert encoder.highways[0].gate.weight.std().item() == pytest.approx(128**-0.5, rel=0.03)
    assert encoder.projection.weight.std().item() == pytest.approx(128**-0.5, rel=0.05)
    fused_limit = (6 / (64 + 64 + 4 * 128)) ** 0.5
    for linear in (lstm.input_linear, lstm.recurrent_linear):
        assert 0.98 * fused_limit < linear.weight.abs().max() <= fused_limit
    assert lstm.input_linear.bias.abs().max() == 0
    assert 0.98 * (6 / 192) ** 0.5 < lstm.projection.weight.abs().max() <= (6 / 192) ** 0.5
    tanh = ElmoModel(ElmoConfig(projection_size=4, cell_size=5, char_activation="tanh", char_filters=[[3, 900]]))
    assert tanh.token_encoder.convolutions[0].weight.std().item() == pytest.approx(48**-0.5, rel=0.03)


def test_a_word_table_starts_with_glorots_weights_and_its_zeros_for_padding_never_learn() -> None:
    table = ElmoModel(word_config()).token_encoder.embedding
    limit = (6 / (19 + 7)) ** 0.5
    assert table.weight[0].abs().max() == 0
    assert 0.9 * limit < table.weight.abs().max() <= limit
    table(torch.tensor([0, 5])).sum().backward()
    assert table.weight.grad.abs().sum(dim=-1).nonzero().tolist() == [[5]]


class ElmoWithHead(ElmoPreTrainedModel):
    """A task model as a user might write it."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.classifier = nn.Linear(config.hidden_size, 3)
        self.post_init()


def test_weights_missing_from_a_checkpoint_are_initialised_and_those_of_padding_stay_as_they_were(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.token_encoder.embedding.weight.data[0] = 0.25
    kept = {name: tensor for name, tensor in tiny_model.state_dict().items() if "highways" not in name}
    tiny_model.save_pretrained(tmp_path, state_dict=kept)
    model = ElmoWithHead.from_pretrained(tmp_path)
    highway = model.elmo.token_encoder.highways[0]
    assert highway.gate.bias.tolist() == [-2.0] * 13
    assert 0 < highway.transform.weight.abs().max() < 2
    assert model.classifier.bias.tolist() == [0, 0, 0]
    assert 0 < model.classifier.weight.abs().max() < 0.2
    assert torch.equal(model.elmo.token_encoder.embedding.weight, tiny_model.token_encoder.embedding.weight)


@pytest.mark.parametrize(
    ("dtype", "tolerance", "options"),
    [
        (torch.float32, 0, {}),
        (torch.float32, 0, {"device_map": "auto"}),
        (torch.float32, 0, {"dtype": "auto"}),
        (torch.float64, 1e-6, {"dtype": torch.float64}),
        (torch.bfloat16, 5e-2, {"dtype": torch.bfloat16}),
        (torch.float16, 5e-3, {"dtype": torch.float16}),
    ],
    ids=str,
)
def test_saving_in_shards_and_loading_gives_the_same_numbers_in_every_precision(
    dtype: torch.dtype, tolerance: float, options: dict[str, Any], tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.scalar_mixes[0].set_weights([0.1, 0.6, 0.3], scale=1.5)
    tiny_model.save_pretrained(tmp_path, max_shard_size="1KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    inputs = random_inputs(tiny_model.config, [5, 3]) | {"output_hidden_states": True}
    found, expected = (
        [*output.hidden_states, *output.to_tuple()[:-1]]
        for output in (ElmoModel.from_pretrained(tmp_path, **options).eval()(**inputs), tiny_model(**inputs))
    )
    assert {tensor.dtype for tensor in found} == {dtype}
    assert_outputs_close([tensor.float() for tensor in found], expected, tolerance)


@pytest.mark.parametrize("load", [ElmoModel.from_pretrained, AutoModel.from_pretrained], ids=["own", "auto"])
def test_a_learned_mix_is_loaded_frozen_or_replaced_as_asked(
    tiny_model: ElmoModel, tmp_path: Path, load: Callable[..., ElmoModel]
) -> None:
    tiny_model.scalar_mixes[0].set_weights([0.1, 0.6, 0.3], scale=1.5)
    tiny_model.save_pretrained(tmp_path)

    def mix_of(**config: Any) -> tuple[list[float], float, bool]:
        mix = load(tmp_path, **config).scalar_mixes[0]
        return pytest.approx(mix.weights.tolist(), abs=1e-6), mix.scale.item(), mix.logits.requires_grad

    assert mix_of() == ([0.1, 0.6, 0.3], 1.5, True)
    assert mix_of(scalar_mix_trainable=False) == ([0.1, 0.6, 0.3], 1.5, False)
    assert mix_of(scalar_mix_weights=[0, 0, 1]) == ([0, 0, 1], 1, True)
    assert mix_of(scalar_mix_weights=[0, 0, 1], scalar_mix_trainable=False) == ([0, 0, 1], 1, False)
    replaced = load(tmp_path, scalar_mix_weights=[0.2, 0.3, 0.5])
    replaced.scalar_mixes[0].set_weights([0.7, 0.2, 0.1])
    replaced.save_pretrained(tmp_path)
    assert mix_of() == ([0.7, 0.2, 0.1], 1, True)


def test_loading_can_ask_for_more_representations_and_other_initial_weights(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    bilm_only = {name: tensor for name, tensor in tiny_model.state_dict().items() if "scalar_mixes" not in name}
    tiny_model.save_pretrained(tmp_path, state_dict=bilm_only)
    fields = {"num_output_representations": 2, "scalar_mix_weights": [0.2, 0.3, 0.5]}
    model, info = ElmoModel.from_pretrained(tmp_path, output_loading_info=True, **fields)
    assert not info["missing_keys"]
    weights = torch.stack([mix.weights.detach() for mix in model.scalar_mixes])
    assert_outputs_close(weights, torch.tensor([[0.2, 0.3, 0.5]] * 2))


class Answers(nn.Module):
    """Ones where a graph is being exported, and in what is left to Python a graph alone; else zeros."""

    @staticmethod
    @breaks_compiled_graphs
    def in_python(numbers: Tensor) -> Tensor:
        return numbers + int(torch.compiler.is_compiling())

    def forward(self, numbers: Tensor) -> Tensor:
        return torch.stack([numbers + int(is_exporting()), self.in_python(numbers)])


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this torch does not tell them apart")
def test_an_export_is_told_from_a_compiled_graph() -> None:
    zero = torch.zeros(())
    for strict in (False, True):
        program = torch.export.export(Answers(), (zero,), strict=strict)
        assert program.module()(zero).tolist() == [1, 1]
    assert torch.compile(Answers(), backend="eager")(zero).tolist() == [0, 0]
    assert Answers()(zero).tolist() == [0, 0]
