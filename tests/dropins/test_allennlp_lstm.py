"""`ElmoLstm` by itself: made by hand, with dropout, and with directions or linears that were changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo_hf.allennlp import ElmoLstm, LstmCellWithProjection, _ElmoBiLm
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers import old_elmo_code as old
from tests.helpers.checkpoints import FIXTURES
from tests.helpers.golden import BASE

RECORDED = np.load(FIXTURES / "allennlp_parts" / "expected.npz")
SIZES = {"input_size": 8, "hidden_size": 8, "cell_size": 16, "num_layers": 2}
MASK = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
INPUTS = old.waves(3, 5, 8)


def filled(**arguments: Any) -> ElmoLstm:
    lstm = ElmoLstm(**(SIZES | old.LIMITS | arguments))
    old.fill(lstm)
    return lstm


def by_calls(lstm: ElmoLstm) -> ElmoLstm:
    """Hooks make every direction be called."""
    for part in [*lstm.forward_layers, *lstm.backward_layers]:
        part.register_forward_hook(lambda part, inputs, output: None)
    return lstm


def compare(actual: Tensor, expected: Tensor) -> None:
    # float32, sums in another order; a backward pass repeats the difference.
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "run", "make"),
    [("lstm", old.lstm_by_itself, ElmoLstm), ("direction", old.direction_by_itself, LstmCellWithProjection)],
)
def test_what_is_made_by_hand_gives_allennlps_numbers(
    kind: str, run: Callable[[Any], list[Tensor]], make: type[nn.Module]
) -> None:
    tensors = run(make)
    assert len(tensors) == sum(name.startswith(f"{kind}/") for name in RECORDED)
    for index, tensor in enumerate(tensors):
        compare(tensor.detach(), torch.from_numpy(RECORDED[f"{kind}/{index}"]))


def test_calls_of_each_direction_give_the_values_states_and_gradients_of_the_fast_scan() -> None:
    mask = MASK.clone()
    mask[1, 2] = False  # a gap, before which the words stand in the calls
    lstms = [filled(), by_calls(filled())]
    weights = old.waves(2, 3, 5, 16)
    outputs = []
    gradients = []
    for lstm in lstms:
        inputs = INPUTS.clone().requires_grad_()
        layers = torch.cat([lstm(inputs, mask), lstm(inputs, mask.flip(1))])
        (layers * weights.repeat(2, 1, 1, 1)).sum().backward()
        outputs.append([layers.detach(), *lstm._states])
        gradients.append([inputs.grad, *(parameter.grad for parameter in lstm.parameters())])
    for fast, called in zip(outputs[0] + gradients[0], outputs[1] + gradients[1], strict=True):
        compare(called, fast)
    assert not outputs[0][0][:2, ~mask].any()


def test_a_direction_of_other_classes_gets_what_allennlp_gives_it() -> None:
    class Sum(nn.Module):
        def forward(self, inputs: Tensor, lengths: list[int], state: tuple[Tensor, Tensor]) -> Any:
            assert lengths == [5, 3, 2]
            for row, length in enumerate(lengths):
                assert not inputs[row, length:].any()
            return inputs.cumsum(dim=1), state

    lstm = filled(num_layers=1)
    lstm.forward_layer_0 = Sum()
    expected = (INPUTS * MASK.unsqueeze(-1)).cumsum(dim=1) * MASK.unsqueeze(-1)
    layers = lstm(INPUTS, MASK)
    torch.testing.assert_close(layers[0, ..., :8], expected)
    compare(layers[0, ..., 8:], filled(num_layers=1)(INPUTS, MASK)[0, ..., 8:])


def set_bias(lstm: Any) -> None:
    lstm.forward_layer_0.input_linearity = nn.Linear(8, 64)
    old.fill(lstm.forward_layer_0.input_linearity)


def set_projection_bias(lstm: Any) -> None:
    lstm.backward_layer_1.state_projection.bias = nn.Parameter(old.waves(8) / 10)


def set_limit(lstm: Any) -> None:
    lstm.backward_layer_0.memory_cell_clip_value = 0.1


def turn(lstm: Any) -> None:
    lstm.backward_layer_1.go_forward = True


def double(lstm: Any) -> None:
    class Doubled(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return 2 * super().forward(inputs)

    lstm.forward_layer_1.state_linearity.__class__ = Doubled


@pytest.mark.parametrize("change", [set_bias, set_projection_bias, set_limit, turn, double])
def test_what_is_changed_within_a_direction_counts(change: Callable[[Any], None]) -> None:
    before = filled()(INPUTS, MASK)
    lstm, called = filled(), by_calls(filled())
    for changed in (lstm, called):
        change(changed)
    after = lstm(INPUTS, MASK)
    compare(after, called(INPUTS, MASK))
    assert (after - before).abs().max() > 1e-3


def test_a_limit_of_zero_does_not_clip() -> None:
    expected = filled(memory_cell_clip_value=None)(INPUTS, MASK)
    assert filled(memory_cell_clip_value=0.0)(INPUTS, MASK).equal(expected)
    assert (expected - filled()(INPUTS, MASK)).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["", "state_linearity", "state_projection"])
def test_a_hook_of_a_direction_or_of_a_linear_in_it_is_called(name: str) -> None:
    lstm = filled()
    seen: list[Any] = []
    part = lstm.get_submodule("backward_layer_1").get_submodule(name)
    part.register_forward_hook(lambda part, inputs, output: seen.append(output))
    layers = lstm(INPUTS, MASK)
    assert seen
    compare(layers, filled()(INPUTS, MASK))


def test_recurrent_dropout_drops_the_same_elements_of_a_row_at_all_words_and_only_in_training() -> None:
    lstm = filled(num_layers=1, recurrent_dropout_probability=0.5)
    plain = filled(num_layers=1)
    for part in (lstm, plain):
        part.stateful = False
    expected = plain(INPUTS, MASK)[0]
    compare(lstm.eval()(INPUTS, MASK)[0], expected)
    dropped = lstm.train()(INPUTS, MASK)[0]
    words = dropped[1]  # five words
    is_zero = words == 0
    assert is_zero.any()
    assert is_zero.equal(is_zero[:1].expand_as(is_zero))
    first = dropped[:, 0, :8]  # no state yet
    compare(first, torch.where(first == 0, 0, 2 * expected[:, 0, :8]))


def test_weights_are_loaded_from_a_file_and_then_train_as_the_constructor_says() -> None:
    loaded = _ElmoBiLm(*BASE.files)._elmo_lstm
    sizes = {"input_size": 8, "hidden_size": 8, "cell_size": 32, "num_layers": 2}
    lstm = ElmoLstm(**sizes)
    assert all(parameter.requires_grad for parameter in lstm.parameters())
    lstm.load_weights(BASE.files[1])
    for name, tensor in loaded.state_dict().items():
        assert lstm.state_dict()[name].equal(tensor)
    assert not any(parameter.requires_grad for parameter in lstm.parameters())
    trains = ElmoLstm(**sizes, requires_grad=True)
    trains.load_weights(BASE.files[1])
    assert all(parameter.requires_grad for parameter in trains.parameters())
    with pytest.raises(ConversionError, match="shape"):
        ElmoLstm(**(sizes | {"cell_size": 16})).load_weights(BASE.files[1])


def test_new_weights_are_orthogonal_for_each_gate_and_forget_gates_start_open() -> None:
    part = LstmCellWithProjection(6, 8, 4)
    for gate in part.state_linearity.weight.detach().chunk(4):
        compare(gate @ gate.T, torch.eye(4))
    assert part.state_linearity.bias.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8


def test_the_state_of_some_rows_is_forgotten() -> None:
    lstm = filled()
    lstm(INPUTS, MASK)
    before = lstm._states
    lstm.reset_states(torch.tensor([False, True, False]))
    for old_part, new_part in zip(before, lstm._states, strict=True):
        assert not new_part[:, 1].any()
        assert new_part[:, [0, 2]].equal(old_part[:, [0, 2]])
    with pytest.raises(ValueError, match=r"\(3,\)"):
        lstm.reset_states(torch.tensor([True]))
    lstm._states = [tensor[..., :4] for tensor in lstm._states]
    with pytest.raises(ValueError, match="_states"):
        lstm(INPUTS, MASK)


def test_a_row_without_words_is_zero_and_keeps_its_state() -> None:
    for lstm in (filled(), by_calls(filled())):
        lstm(INPUTS, MASK)
        before = lstm._states
        mask = MASK.clone()
        mask[1] = False
        layers = lstm(INPUTS, mask)
        assert not layers[:, 1].any()
        for old_part, new_part in zip(before, lstm._states, strict=True):
            assert new_part[:, 1].equal(old_part[:, 1])
        assert lstm(INPUTS[:, :0], mask[:, :0]).shape == (2, 3, 0, 16)
