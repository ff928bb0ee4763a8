"""Checkpoints give AllenNLP's and bilm-tf's numbers; each piece gives the NumPy reference's, gradients included."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.readers.hdf5_layout import allennlp_rules, options_from_config
from elmo_hf.conversion.rules import export_arrays
from elmo_hf.conversion.witness.reference import ReferenceElmo, State
from elmo_hf.kernels.path import scan_path
from tests.helpers.checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, shared
from tests.helpers.golden import Call, Golden, allennlp_calls, assert_golden
from tests.helpers.tiny_inputs import TINY

GRADIENT_TOLERANCE = 1e-4
of_each_norm = pytest.mark.parametrize(("layer_norm", "key"), [("none", "mix"), ("batch", "mix_layer_norm")])


def golden_model(case: str, layer_norm: str, folder: Path) -> ElmoModel:
    """A converted case with AllenNLP's three mixes, which are given before the softmax; -9e10 picks a layer."""
    allennlp_to_folder(FIXTURES / case, folder, source_name=case)
    model = ElmoModel.from_pretrained(folder, num_output_representations=3, scalar_mix_layer_norm=layer_norm).eval()
    weights, scales = (torch.from_numpy(Golden(case).expected[key]) for key in ("mix_scalars", "mix_gammas"))
    for mix, scalars, scale in zip(model.scalar_mixes, weights, scales, strict=True):
        mix.set_weights(scalars.softmax(0).tolist(), scale=scale.item())
    return model


@of_each_norm
@pytest.mark.parametrize("case", GOLDEN_CASES)
def test_layers_and_states_of_all_calls_and_three_mixes_are_allennlps(
    case: str, layer_norm: str, key: str, tmp_path: Path
) -> None:
    assert_golden(golden_model(case, layer_norm, tmp_path), allennlp_calls(case, key))


@of_each_norm
@pytest.mark.parametrize("case", ["base_2l_relu", "tight_clip_2l_tanh"])
def test_gradients_in_the_files_own_layout_are_allennlps(case: str, layer_norm: str, key: str, tmp_path: Path) -> None:
    model, sentences = golden_model(case, layer_norm, tmp_path), Golden(case).sentences["call1"]
    gradients = np.load(FIXTURES / case / "expected_grads.npz")
    kind = "plain/" if layer_norm == "none" else "layer_norm/"
    expected = {name.removeprefix(kind): gradients[name] for name in gradients if name.startswith(kind)}
    inputs = ElmoTokenizer.from_pretrained(tmp_path)(
        sentences, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    representation = model(**inputs).elmo_representations[1]
    loss = 0.0
    for row, words in enumerate(sentences):
        projection = torch.from_numpy(gradients["projection"][row, : len(words)])
        loss = loss + (representation[row, 1 : 1 + len(words)] * projection).sum()
    loss.backward()
    mix = model.scalar_mixes[1]
    bilm = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None and "mixes" not in name}
    actual = {"loss": loss.detach(), "scalar_parameters": mix.logits.grad, "gamma": mix.scale.grad}
    actual |= export_arrays(allennlp_rules(model.config), bilm)
    expected.pop("_padding_row")  # the inverse of PREPEND_ZERO_ROW refuses anything but zeros there
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-7, atol=GRADIENT_TOLERANCE, err_msg=name)


def tensorflows_model(name: str, folder: Path, options: str = "options.json") -> tuple[Path, ElmoModel]:
    """The files of a model that TensorFlow ran, and the same model, converted."""
    source = shared("fixtures", name)
    allennlp_to_folder(NamedFiles(source / options, source / "lm_weights.hdf5"), folder / "elmo", source_name=name)
    return source, ElmoModel.from_pretrained(folder / "elmo")


@pytest.mark.parametrize(
    ("name", "sentences"),
    [("bilm_tf_fixture", "sentences.json"), ("bilm_tf_noskip_fixture", "lm_embeddings_sentences.json")],
)
def test_real_tensorflow_exports_give_tensorflows_vectors_with_carried_state(
    name: str, sentences: str, tmp_path: Path
) -> None:
    source, model = tensorflows_model(name, tmp_path)
    streams = json.loads((source / sentences).read_text())
    files = [h5py.File(source / f"lm_embeddings_{index}.hdf5") for index in range(3)]
    # The last layer by direction, `(2, T, P)`.
    halves = [[file[str(number)][()] for file in files] for number in range(10)]
    calls = [
        Call([stream[number].split() for stream in streams], [np.concatenate(each, axis=-1)[None] for each in of_call])
        for number, of_call in enumerate(halves)
    ]
    assert_golden(model, calls, tolerance=5e-6)


@pytest.mark.parametrize(("kind", "is_stateful"), [("zero_state", False), ("stateful", True)])
def test_a_trained_tensorflow_model_gives_its_vectors(kind: str, is_stateful: bool, tmp_path: Path) -> None:
    source, model = tensorflows_model("bilm_tf_trained", tmp_path, "options_infer.json")
    lines = (source / "sentences.txt").read_text().splitlines()
    with h5py.File(source / f"lm_embeddings_{kind}.hdf5") as file:
        calls = [Call([line.split()], [file[str(number)][()]]) for number, line in enumerate(lines)]
    assert_golden(model, calls, carries_state=is_stateful)


WORDS = ["The", "naïve", "日本語", "", "extraordinarily"]


# Architectures that differ from the tiny config in one way each.
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "tanh": {"char_activation": "tanh"},
    "no highway": {"num_highway_layers": 0},
    "no skip": {"use_skip_connections": False},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "four layers": {"num_hidden_layers": 4},
    "one direction": {"bidirectional": False},
    "no cell projection": {"cell_size": 7, "cell_projection": False},
    "square cell projection": {"cell_size": 7, "cell_projection": True},
    "no char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": False},
    "square char projection": {"char_filters": [[1, 3], [4, 4]], "char_projection": True},
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> ElmoModel:
    model = ElmoModel(ElmoConfig(**TINY | request.param)).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.token_encoder.embedding.weight[0] = 0
    return model


def reference_of(model: ElmoModel) -> ReferenceElmo:
    """The reference on the model's weights, in the checkpoint's own names and layout."""
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return ReferenceElmo(options_from_config(model.config), export_arrays(allennlp_rules(model.config), tensors))


def ids_of(reference: ReferenceElmo, words: list[str]) -> torch.Tensor:
    return torch.tensor([reference.character_ids(word) for word in words]) + 1


@pytest.mark.parametrize("path", ["reference", "packed"])
def test_all_layers_and_the_state_of_two_calls_are_the_references(model: ElmoModel, path: str) -> None:
    reference = reference_of(model)
    reference_state: State = {}
    state = None
    for words in (WORDS, ["Second", "call", "."]):
        expected = reference.embed(words, reference_state)
        ids = ids_of(reference, ["<S>", *words, "</S>"])[None]
        with scan_path(path):
            output = model(ids, state=state, output_hidden_states=True)
        state = output.state
        np.testing.assert_allclose(torch.stack(output.hidden_states)[:, 0].detach(), expected, atol=1e-12)
        for part, tensor in enumerate(state):
            halves = [
                np.stack([reference_state[name, layer][part] for layer in range(model.config.num_hidden_layers)])
                for name in reference.directions
            ]
            np.testing.assert_allclose(tensor[:, 0], np.concatenate(halves, axis=-1), atol=1e-12)


def test_gradients_of_every_parameter_are_the_references_finite_differences(model: ElmoModel) -> None:
    """Along a random direction, of a random projection of all layers; NumPy has no gradients of its own."""
    reference = reference_of(model)
    weights = torch.randn(model.config.num_hidden_layers + 1, len(WORDS) + 2, model.config.hidden_size).double()

    def loss_of(reference: ReferenceElmo) -> float:
        return float((reference.embed(WORDS) * weights.numpy()).sum())

    ids = ids_of(reference, ["<S>", *WORDS, "</S>"])[None]
    layers = torch.stack(model(ids, output_hidden_states=True).hidden_states)[:, 0]
    (layers * weights).sum().backward()
    for name, parameter in model.named_parameters():
        if name.startswith("scalar_mixes"):
            continue
        original = parameter.data.clone()
        direction = torch.randn_like(parameter)
        if name == "token_encoder.embedding.weight":
            direction[0] = 0
        losses = []
        for step in (1e-6, -1e-6):
            parameter.data = original + step * direction
            losses.append(loss_of(reference_of(model)))
        parameter.data = original
        assert parameter.grad is not None
        analytic = float((parameter.grad * direction).sum())
        assert analytic == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4, abs=1e-6), name
