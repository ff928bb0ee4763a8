"""Parts of the drop-in do what AllenNLP's do when old code reads, replaces, loads, trains or freezes them."""

import copy
import functools
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from elmo_hf.allennlp import Elmo, _ElmoBiLm, _ElmoCharacterEncoder, batch_to_ids
from elmo_hf.allennlp.lstm import LstmCellWithProjection
from tests.helpers import old_elmo_code as old
from tests.helpers.checkpoints import FIXTURES
from tests.helpers.golden import Golden, assert_close

FOLDER = FIXTURES / "allennlp_parts"
RECORDED = dict(np.load(FOLDER / "expected.npz"))
NAMES = json.loads((FOLDER / "names.json").read_text(encoding="utf-8"))
CASES = {name: Golden(name) for name in ("base_2l_relu", "tight_clip_2l_tanh")}
IDS = batch_to_ids(old.SENTENCES)
# float32; two versions of torch sum in other orders, and training repeats the difference.
TOLERANCE = 1e-5


def recorded(kind: str) -> dict[str, Tensor]:
    """The recorded tensors of one kind, by the names of parameters."""
    prefix = f"{kind}/"
    return {
        name.removeprefix(prefix): torch.from_numpy(array)
        for name, array in RECORDED.items()
        if name.startswith(prefix)
    }


STATE = recorded("state")


@functools.cache
def loaded(case: str, requires_grad: bool) -> Elmo:
    """For `make` only: a test must not change it."""
    return old.no_state(Elmo(*CASES[case].files, 1, requires_grad=requires_grad, dropout=0))


@functools.cache
def untouched_vectors() -> Tensor:
    return old.vectors_of(make(), IDS).detach()


def make(case: str = "base_2l_relu", requires_grad: bool = True) -> Elmo:
    return copy.deepcopy(loaded(case, requires_grad))


def make_cached(requires_grad: bool = True) -> Elmo:
    """An `Elmo` with a table of cached words."""
    files = CASES["base_2l_relu"].files
    elmo = Elmo(*files, 1, requires_grad=requires_grad, dropout=0, vocab_to_cache=old.WORDS)
    return old.no_state(elmo)


@pytest.mark.parametrize("operation", old.OPERATIONS)
@pytest.mark.parametrize("name", old.PARTS)
def test_a_part_does_what_allennlps_does(name: str, operation: str) -> None:
    expected = RECORDED[operation][old.PARTS.index(name)]
    assert np.abs(expected - untouched_vectors().numpy()).max() > 100 * TOLERANCE
    elmo = old.OPERATIONS[operation](make, name, IDS, STATE)
    assert_close(old.vectors_of(elmo, IDS), expected, TOLERANCE)


def test_parameters_have_allennlps_order_which_the_states_of_optimizers_follow() -> None:
    assert [name for name, _ in make().named_parameters()] == NAMES["parameters"]
    assert list(make().state_dict()) == list(STATE)
    cached = make_cached()
    assert [name for name, parameter in cached.named_parameters() if parameter.requires_grad] == (
        NAMES["cached_parameters"]
    )


def test_every_parameter_gets_allennlps_gradient() -> None:
    elmo = make()
    old.loss_of(elmo, IDS).backward()
    gradients = recorded("gradient")
    for name, parameter in elmo.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


def test_hooks_make_parts_run_one_by_one_with_the_same_gradient() -> None:
    calls = []
    elmo = make()
    for part in elmo._elmo_lstm.modules():
        part.register_forward_hook(lambda part, inputs, output: calls.append(type(part)))
    old.loss_of(elmo, IDS).backward()
    assert calls.count(LstmCellWithProjection) == 4
    assert calls.count(nn.Conv1d) == len(elmo._elmo_lstm._token_embedder._convolutions)
    gradients = recorded("gradient")
    for name, parameter in elmo.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-6)


# Loading, as old code loads.


def load_whole(elmo: Elmo) -> None:
    elmo.load_state_dict(STATE)


def load_loosely(elmo: Elmo) -> None:
    keys = elmo.load_state_dict(STATE | {"classifier.weight": torch.ones(2)}, strict=False)
    assert keys.unexpected_keys == ["classifier.weight"]


def load_known_names(elmo: Elmo) -> None:
    own = elmo.state_dict()
    own.update({name: tensor for name, tensor in STATE.items() if name in own})
    elmo.load_state_dict(own)


def copy_by_name(elmo: Elmo) -> None:
    parameters = dict(elmo.named_parameters())
    for name, tensor in STATE.items():
        parameters[name].data.copy_(tensor)


def load_without_the_characters(elmo: Elmo) -> None:
    lstm = {name: tensor for name, tensor in STATE.items() if "_token_embedder" not in name}
    assert elmo.load_state_dict(lstm, strict=False).unexpected_keys == []
    elmo._elmo_lstm._token_embedder.load_state_dict(old.below(old.CHARACTERS, STATE))


def load_into_a_larger_model(elmo: Elmo) -> None:
    model = nn.ModuleDict({"embedder": nn.DataParallel(elmo)})
    model.load_state_dict({f"embedder.module.{name}": tensor for name, tensor in STATE.items()})


def assign(elmo: Elmo) -> None:
    for name, tensor in STATE.items():
        parent, _, last = name.rpartition(".")
        part = elmo.get_submodule(parent)
        delattr(part, last)
        setattr(part, last, nn.Parameter(tensor.clone()))


LOADINGS = [
    load_whole,
    load_loosely,
    load_known_names,
    copy_by_name,
    load_without_the_characters,
    load_into_a_larger_model,
    assign,
]


@pytest.mark.parametrize("loading", LOADINGS)
def test_a_state_dict_of_allennlp_is_loaded_as_old_code_loads_it(loading: Any) -> None:
    elmo = make()
    loading(elmo)
    assert_close(old.vectors_of(elmo, IDS), RECORDED["trained"], TOLERANCE)
    for name, tensor in elmo.state_dict().items():
        assert tensor.equal(STATE[name]), name


def test_a_wrapped_lstm_is_called_and_its_state_dict_has_the_wrappers_names() -> None:
    elmo = make()
    elmo._elmo_lstm._elmo_lstm = old.Wrapped(elmo._elmo_lstm._elmo_lstm)
    assert_close(old.vectors_of(elmo, IDS), RECORDED["wrapped"], TOLERANCE)
    inner = f"{old.LSTM}."
    wrapped = {name.replace(inner, f"{inner}lstm."): tensor for name, tensor in STATE.items()}
    elmo.load_state_dict(wrapped)
    assert all(tensor.equal(wrapped[name]) for name, tensor in elmo.state_dict().items())


def test_a_trained_mix_is_put_back() -> None:
    trained, again = make(), make()
    trained.load_state_dict(STATE)
    again._elmo_lstm.load_state_dict(old.below(old.BILM, STATE))
    again.scalar_mix_0 = trained.scalar_mix_0
    assert_close(old.vectors_of(again, IDS), RECORDED["trained"], TOLERANCE)


def test_copies_and_whole_files_have_parts_of_their_own(tmp_path: Any) -> None:
    elmo = make()
    torch.save(elmo, tmp_path / "elmo.pt")
    opened = torch.load(tmp_path / "elmo.pt", weights_only=False)  # a whole model, written by the line above
    for other in (copy.deepcopy(elmo), opened):
        other.load_state_dict(STATE)
        assert_close(old.vectors_of(other, IDS), RECORDED["trained"], TOLERANCE)
    assert not np.allclose(old.vectors_of(elmo, IDS).detach(), RECORDED["trained"], atol=1e-3)


# Training.


@pytest.mark.parametrize("requires_grad", [False, True], ids=["frozen", "all"])
@pytest.mark.parametrize("case", CASES)
def test_adam_takes_allennlps_steps_and_resumes_from_what_was_saved(case: str, requires_grad: bool) -> None:
    rows = [(name, trains) for name in CASES for trains in (False, True)]
    expected = RECORDED["losses"][rows.index((case, requires_grad))]
    first = old.Training(make(case, requires_grad), IDS)
    np.testing.assert_allclose(first.steps(old.NUM_STEPS), expected[: old.NUM_STEPS], rtol=1e-5)
    second = old.Training(make(case, requires_grad), IDS)
    second.elmo.load_state_dict(first.elmo.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    np.testing.assert_allclose(second.steps(4), expected[old.NUM_STEPS :], rtol=1e-4)


def test_adam_resumes_from_allennlps_own_moments() -> None:
    training = old.Training(make(), IDS)
    training.elmo.load_state_dict(STATE)
    moments = {kind: recorded(kind) for kind in ("exp_avg", "exp_avg_sq")}
    state = training.optimizer.state_dict()
    for index, name in enumerate(NAMES["parameters"]):
        own = {kind: tensors[name].clone() for kind, tensors in moments.items()}
        state["state"][index] = own | {"step": torch.tensor(float(old.NUM_STEPS))}
    training.optimizer.load_state_dict(state)
    expected = RECORDED["losses"][1][old.NUM_STEPS :]
    np.testing.assert_allclose(training.steps(4), expected, rtol=1e-4)


def test_the_table_of_cached_words_is_allennlps_with_a_first_row_of_zeros() -> None:
    elmo = make_cached(requires_grad=False)
    table = elmo._elmo_lstm._word_embedding.weight
    assert_close(table, RECORDED["table"], TOLERANCE)
    assert not table[0].any()
    assert not table.requires_grad
    assert f"{old.BILM}._word_embedding.weight" in elmo.state_dict()
    assert_close(old.tied_softmax(elmo), RECORDED["tied"], TOLERANCE)


def test_cached_words_train_in_place_of_the_character_cnn() -> None:
    elmo = make_cached()
    old.tied_softmax(elmo).backward()
    assert all(parameter.grad is None for parameter in elmo._elmo_lstm._token_embedder.parameters())
    torch.optim.SGD(elmo.parameters(), lr=0.1).step()
    assert_close(elmo._elmo_lstm._word_embedding.weight, RECORDED["trained_table"], TOLERANCE)
    assert_close(old.tied_softmax(elmo), RECORDED["trained_tied"], TOLERANCE)


# Parts used alone.


def test_the_token_embedder_of_a_model_is_used_alone_and_a_model_without_it_reads_cached_words() -> None:
    golden = CASES["base_2l_relu"]
    embedder = make()._elmo_lstm._token_embedder
    assert isinstance(embedder, _ElmoCharacterEncoder)
    output = embedder(batch_to_ids(golden.sentences["call1"]))
    mask = golden.expected["mask_with_boundaries"]
    assert_close(output["token_embedding"], golden.expected["token_embedding"] * mask[..., None])
    elmo = make_cached()
    numbers = torch.tensor(old.NUMBERS)
    expected = elmo(numbers, numbers)["elmo_representations"][0]
    del elmo._elmo_lstm._token_embedder
    assert elmo(numbers, numbers)["elmo_representations"][0].equal(expected)


def test_layers_are_taken_by_index_from_the_activations() -> None:
    golden = CASES["base_2l_relu"]
    output = _ElmoBiLm(*golden.files)(batch_to_ids(golden.sentences["call1"]))
    for index, layer in enumerate(golden.expected["layers_with_boundaries"]):
        assert_close(output["activations"][index], layer)
