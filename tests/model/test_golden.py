"""The whole way from checkpoint to vectors gives AllenNLP's and bilm-tf's numbers."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, shared

from elmo_hf import BiLMState, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.readers.hdf5_layout import allennlp_rules
from elmo_hf.conversion.rules import export_arrays

# AllenNLP's float32 differs from float64 by up to 3.2e-6 on outputs; cells without clipping grow larger.
OUTPUT_TOLERANCE = 2e-5
CELL_TOLERANCE = 5e-5
GRADIENT_TOLERANCE = 1e-4
MIXES = ("mix_scalars", "mix_gammas")


class Golden:
    """One golden case, converted."""

    def __init__(self, name: str, folder: Path) -> None:
        source = FIXTURES / name
        allennlp_to_folder(source, folder / name, source_name=name)
        self.folder = folder / name
        self.sentences: dict[str, list[list[str]]] = json.loads((source / "sentences.json").read_text())
        self.expected = np.load(source / "expected.npz")
        self.tokenizer = ElmoTokenizer.from_pretrained(self.folder)

    def model(self, num_mixes: int = 0, **config: Any) -> ElmoModel:
        """The model with so many of AllenNLP's mixes, which are given before the softmax; -9e10 picks a layer."""
        model = ElmoModel.from_pretrained(self.folder, num_output_representations=num_mixes or 1, **config).eval()
        for mix, scalars, gamma in zip(model.scalar_mixes, *map(self.call1, MIXES), strict=True) if num_mixes else ():
            mix.set_weights(scalars.softmax(0).tolist(), scale=gamma.item())
        return model

    def inputs(self, call: str) -> dict[str, torch.Tensor]:
        return self.tokenizer(self.sentences[call], is_split_into_words=True, padding=True, return_tensors="pt")

    def call1(self, key: str) -> torch.Tensor:
        return torch.from_numpy(self.expected[key])


@pytest.fixture(scope="module", params=GOLDEN_CASES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    return Golden(request.param, tmp_path_factory.mktemp("golden"))


def assert_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = OUTPUT_TOLERANCE) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def test_every_layer_of_every_stateful_call_is_allennlps(golden: Golden) -> None:
    model = golden.model()
    state: BiLMState | None = None
    for call in sorted(golden.sentences):
        prefix = "" if call == "call1" else f"{call}_"
        inputs = golden.inputs(call)
        batch_size = len(inputs["input_ids"])
        with torch.no_grad():
            output = model(
                **inputs, state=None if state is None else state.resize(batch_size), output_hidden_states=True
            )
        state = output.state if state is None else state.update(output.state)
        mask = golden.call1(f"{prefix}mask_with_boundaries")
        torch.testing.assert_close(inputs["attention_mask"].bool(), mask)
        assert_close(torch.stack(output.hidden_states), golden.call1(f"{prefix}layers_with_boundaries"))
        assert_close(state.hidden, golden.call1(f"{call}_state_h"))
        assert_close(state.cell, golden.call1(f"{call}_state_c"), CELL_TOLERANCE)
        if call == "call1":
            assert_close(output.token_embeddings, golden.call1("token_embedding").masked_fill(~mask.unsqueeze(-1), 0))


@pytest.mark.parametrize(("layer_norm", "suffix"), [("none", ""), ("batch", "_layer_norm")])
def test_three_scalar_mixes_at_once_are_allennlps(golden: Golden, layer_norm: str, suffix: str) -> None:
    model = golden.model(num_mixes=3, scalar_mix_layer_norm=layer_norm)
    with torch.no_grad():
        output = model(**golden.inputs("call1"))
    # AllenNLP leaves numbers on padding when it normalises; ours are zero there.
    mask = golden.call1("mask_with_boundaries")
    expected = golden.call1(f"mix{suffix}_with_boundaries").masked_fill(~mask.unsqueeze(-1), 0)
    assert_close(torch.stack(output.elmo_representations), expected)


@pytest.mark.parametrize(("layer_norm", "kind"), [("none", "plain"), ("batch", "layer_norm")])
@pytest.mark.parametrize("name", ["base_2l_relu", "tight_clip_2l_tanh"])
def test_gradients_in_the_files_own_layout_are_allennlps(name: str, layer_norm: str, kind: str, tmp_path: Path) -> None:
    golden = Golden(name, tmp_path)
    gradients = np.load(FIXTURES / name / "expected_grads.npz")
    model = golden.model(num_mixes=3, scalar_mix_layer_norm=layer_norm)
    representation = model(**golden.inputs("call1")).elmo_representations[1]
    loss = 0.0
    for row, words in enumerate(golden.sentences["call1"]):
        projection = torch.from_numpy(gradients["projection"][row, : len(words)])
        loss = loss + (representation[row, 1 : 1 + len(words)] * projection).sum()
    loss.backward()
    expected = {key.removeprefix(f"{kind}/"): gradients[key] for key in gradients if key.startswith(f"{kind}/")}
    np.testing.assert_allclose(loss.item(), expected.pop("loss"), atol=GRADIENT_TOLERANCE)
    mix = model.scalar_mixes[1]
    np.testing.assert_allclose(mix.logits.grad, expected.pop("scalar_parameters"), atol=GRADIENT_TOLERANCE)
    np.testing.assert_allclose(mix.scale.grad, expected.pop("gamma")[0], atol=GRADIENT_TOLERANCE)
    expected.pop("_padding_row")  # the inverse of PrependZeroRow below refuses anything but zeros there
    bilm = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None and "mixes" not in name}
    actual = export_arrays(allennlp_rules(model.config), bilm)
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, atol=GRADIENT_TOLERANCE, err_msg=name)


def tensorflows(name: str, folder: Path, options: str = "options.json") -> tuple[Path, ElmoModel, ElmoTokenizer]:
    """The files of a model that TensorFlow ran, the same model, converted, and its tokenizer."""
    source = shared("fixtures", name)
    allennlp_to_folder(AllenNlpFiles(source / options, source / "lm_weights.hdf5"), folder / "elmo", source_name=name)
    model = ElmoModel.from_pretrained(folder / "elmo").eval().requires_grad_(False)
    return source, model, ElmoTokenizer.from_pretrained(folder / "elmo")


@pytest.mark.parametrize(
    ("name", "sentences"),
    [("bilm_tf_fixture", "sentences.json"), ("bilm_tf_noskip_fixture", "lm_embeddings_sentences.json")],
)
def test_real_tensorflow_exports_give_tensorflows_vectors_with_carried_state(
    name: str, sentences: str, tmp_path: Path
) -> None:
    source, model, tokenizer = tensorflows(name, tmp_path)
    streams = json.loads((source / sentences).read_text())
    expected = [h5py.File(source / f"lm_embeddings_{index}.hdf5") for index in range(3)]
    state = None
    for number in range(10):
        batch = [stream[number].split() for stream in streams]
        inputs = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")
        output = model(**inputs, state=state, output_hidden_states=True)
        state = output.state
        for row, words in enumerate(batch):
            halves = expected[row][str(number)][()]  # (2, words, P)
            actual = output.hidden_states[-1][row, 1 : 1 + len(words)]
            assert_close(actual, torch.from_numpy(np.concatenate(halves, axis=-1)), 5e-6)


@pytest.mark.parametrize(("kind", "is_stateful"), [("zero_state", False), ("stateful", True)])
def test_a_trained_tensorflow_model_gives_its_vectors(kind: str, is_stateful: bool, tmp_path: Path) -> None:
    source, model, tokenizer = tensorflows("bilm_tf_trained", tmp_path, "options_infer.json")
    state = None
    with h5py.File(source / f"lm_embeddings_{kind}.hdf5") as file:
        for number, line in enumerate((source / "sentences.txt").read_text().splitlines()):
            inputs = tokenizer([line.split()], is_split_into_words=True, return_tensors="pt")
            output = model(**inputs, state=state, output_hidden_states=True)
            state = output.state if is_stateful else None
            assert_close(torch.stack(output.hidden_states)[:, 0, 1:-1], torch.from_numpy(file[str(number)][()]))
