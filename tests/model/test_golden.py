"""The whole way from checkpoint to vectors gives AllenNLP's and bilm-tf's numbers."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from allennlp_cases import Golden
from checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, shared
from golden import Call, allennlp_calls, assert_golden

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.readers.hdf5_layout import allennlp_rules
from elmo_hf.conversion.rules import export_arrays

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
    actual = {"loss": loss.detach(), "scalar_parameters": mix.logits.grad, "gamma": mix.scale.grad[None]}
    actual |= export_arrays(allennlp_rules(model.config), bilm)
    expected.pop("_padding_row")  # the inverse of PREPEND_ZERO_ROW refuses anything but zeros there
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-7, atol=GRADIENT_TOLERANCE, err_msg=name)


def tensorflows_model(name: str, folder: Path, options: str = "options.json") -> tuple[Path, ElmoModel]:
    """The files of a model that TensorFlow ran, and the same model, converted."""
    source = shared("fixtures", name)
    allennlp_to_folder(Given(source / options, source / "lm_weights.hdf5"), folder / "elmo", source_name=name)
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
