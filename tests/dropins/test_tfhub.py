"""TF-Hub's signatures and outputs: AllenNLP's numbers, and converted modules that do as TensorFlow did."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo_hf import tfhub as hub
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source
from elmo_hf.conversion.options import read_options
from elmo_hf.conversion.witness.reference import ReferenceElmo
from tests.helpers.checkpoints import read_datasets, shared
from tests.helpers.golden import BASE, SENTENCES, assert_close
from tests.helpers.hub_modules import LOGITS, SCALE, variables_of, write_module

P = 8
TEXTS = [" ".join(words) for words in SENTENCES]
WEIGHTS = np.exp(LOGITS) / np.exp(LOGITS).sum()
EXPORTS = {
    "google_style/module.tar.gz": "google_style/outputs.npz",
    "google_style/saved_model.tar.gz": "google_style/outputs.npz",
    "google_style/stateful_variables.tar.gz": "google_style/outputs_stateful.npz",
    "deeppavlov_style/module.tar.gz": "deeppavlov_style/outputs.npz",
}


@pytest.fixture
def elmo(tiny_folder: Path) -> hub.Module:
    """A model that no module became, with its state switched on."""
    module = hub.Module(tiny_folder)
    module.elmo.stateful = True
    return module


def converted(style: str, folder: Path) -> hub.Module:
    """A module of our own with that style's variables and a learned mix."""
    convert_source(write_module(folder / "source", variables_of(style)), folder / style, NamedFiles())
    return hub.Module(folder / style)


def as_tokens(sentences: list[list[str]]) -> dict[str, Any]:
    """As TF-Hub's page shows: every list as long as the longest, filled up with empty words."""
    longest = max(len(words) for words in sentences)
    return {
        "tokens": [words + [""] * (longest - len(words)) for words in sentences],
        "sequence_len": [len(words) for words in sentences],
    }


def assert_outputs(
    outputs: dict[str, Tensor], arrays: list[np.ndarray], mean: Any = (1 / 3, 1 / 3, 1 / 3), scale: float = 1.0
) -> None:
    """Compares the words of each sentence with its layers `(3, n, 2P)`, and `default` with their weighted `mean`.

    `elmo` has the `scale` too. Behind the words biLM layers are zero.
    """
    assert outputs.keys() == {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
    for row, layers in enumerate(arrays):
        mixed = np.tensordot(mean, layers, axes=1)
        expected = {"word_emb": layers[0][:, :P], "lstm_outputs1": layers[1], "lstm_outputs2": layers[2]}
        for name, vectors in (expected | {"elmo": scale * mixed}).items():
            assert outputs[name].shape == (len(arrays), max(each.shape[1] for each in arrays), vectors.shape[1]), name
            assert_close(outputs[name][row, : len(vectors)], vectors)
        assert_close(outputs["default"][row], mixed.mean(axis=0))
        assert not torch.stack([outputs["lstm_outputs1"], outputs["lstm_outputs2"]])[:, row, layers.shape[1] :].any()


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_tokens_signature_carries_the_state_from_call_to_call(elmo: hub.Module, side: str) -> None:
    elmo.tokenizer.padding_side = side  # that of the saved tokenizer
    for call, sentences in sorted(BASE.sentences.items()):
        outputs = elmo(inputs=as_tokens(sentences), signature="tokens", as_dict=True)
        assert_outputs(outputs, BASE.arrays(call))
        for row, words in enumerate(sentences):
            assert not outputs["word_emb"][row, len(words) :].any()
            assert not outputs["elmo"][row, len(words) :].any()


def test_the_default_signature_splits_on_blanks_alone(elmo: hub.Module) -> None:
    for texts in (TEXTS, ["  ".join(words) + " " for words in SENTENCES]):
        assert_outputs(elmo(texts, signature="default", as_dict=True), BASE.arrays("call1"))
        elmo.elmo.reset_states()
    assert elmo(["one\ttwo three"], as_dict=True)["elmo"].shape == (1, 2, 2 * P)


def test_a_model_that_was_no_module_keeps_no_state_as_googles(tiny_folder: Path) -> None:
    module = hub.Module(tiny_folder)
    for name in ("call1", "call2", "call1"):
        sentences = BASE.sentences[name]
        outputs = module(as_tokens(sentences), signature="tokens", as_dict=True)
        again = module(as_tokens(sentences), signature="tokens", as_dict=True)
        for output in outputs:
            assert torch.equal(outputs[output], again[output])
        if name == "call1":
            assert_outputs(outputs, BASE.arrays(name))


def test_switched_off_it_keeps_the_state_it_had(elmo: hub.Module) -> None:
    for stateful, call in ((False, "call1"), (True, "call1"), (False, "call1"), (True, "call2")):
        elmo.elmo.stateful = stateful
        outputs = elmo(as_tokens(BASE.sentences[call]), signature="tokens", as_dict=True)
        assert_outputs(outputs, BASE.arrays(call))


def test_a_sentence_without_words_has_zeros(elmo: hub.Module) -> None:
    outputs = elmo(["", "Yes ."], as_dict=True)
    assert outputs["elmo"].shape == (2, 2, 2 * P)
    assert not outputs["default"][0].any()
    assert not outputs["elmo"][0].any()
    assert outputs["default"][1].all()


@pytest.mark.parametrize("trainable", [False, True])
def test_only_the_four_scalars_train_and_only_if_asked(trainable: bool, tiny_folder: Path) -> None:
    elmo = hub.Module(tiny_folder, trainable=trainable)
    parameters = [parameter for parameter in elmo.parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in parameters) == 4 * trainable
    elmo.elmo.stateful = False
    output = elmo.train()(["Yes ."])
    assert torch.equal(output, elmo(["Yes ."]))  # without dropout
    assert output.requires_grad == trainable
    if trainable:
        output.sum().backward()
        assert all(parameter.grad is not None for parameter in parameters)


def test_a_module_has_a_name_and_signatures_and_takes_its_text_by_name(tiny_folder: Path) -> None:
    elmo = hub.Module(tiny_folder, trainable=True, name="elmo_module")
    assert elmo.name == "elmo_module"
    assert_outputs(elmo(dict(text=TEXTS), as_dict=True), BASE.arrays("call1"))
    signatures = hub.load(tiny_folder).signatures
    assert_outputs(signatures["default"](np.array(TEXTS)), BASE.arrays("call1"))
    assert signatures["tokens"](tokens=[["Yes", "."]], sequence_len=[2])["elmo"].shape == (1, 2, 2 * P)


def test_bytes_and_ids_give_what_strings_give(tiny_folder: Path) -> None:
    elmo = hub.Module(tiny_folder)
    elmo.elmo.stateful = False
    texts = [*TEXTS, "naïve Größe 日本"]
    expected = elmo(texts)
    ids = elmo.elmo.encode([text.split(" ") for text in texts], 30)
    for inputs in ([text.encode() for text in texts], ids):
        torch.testing.assert_close(elmo(inputs), expected)


@pytest.mark.parametrize("source", EXPORTS)
def test_every_output_of_every_call_of_a_converted_module_is_tensorflows(source: str, tmp_path: Path) -> None:
    """In one session and in fresh ones, padding included."""
    path = shared("fixtures", "tfhub", *source.split("/"))
    expected = np.load(shared("fixtures", "tfhub", *EXPORTS[source].split("/")))
    inputs = np.load(path.parent / "outputs.npz")
    convert_source(path, tmp_path / "elmo", NamedFiles(), FolderSettings(check=True))
    module = hub.Module(tmp_path / "elmo")
    calls: dict[str, list[str]] = {}
    for key in expected.files:
        place, _, output = key.rpartition("/")
        if output != "input" and expected[key].dtype == np.float32:
            calls.setdefault(place, []).append(output)
    for place in sorted(calls):
        if place.startswith("fresh/"):
            module = hub.Module(tmp_path / "elmo")
            signature, name = place.removeprefix("fresh/").split("_")
        else:
            signature, name = expected[f"{place}/input"]
        if signature == "default":
            given: Any = list(inputs[f"strings/{name}"])
        else:
            given = {"tokens": inputs[f"tokens/{name}"], "sequence_len": inputs[f"sequence_len/{name}"]}
        outputs = module(given, signature=signature, as_dict=True)
        for output in calls[place]:
            assert_close(outputs[output], expected[f"{place}/{output}"], 1e-5)


def test_googles_feeds_no_boundaries_and_keeps_no_state(tmp_path: Path) -> None:
    options, weights = map(Path, BASE.files)
    witness = ReferenceElmo(read_options(options), read_datasets(weights), with_boundaries=False)
    module, expected = converted("google", tmp_path), [witness.embed(words) for words in SENTENCES]
    for _ in range(2):
        assert_outputs(module(TEXTS, as_dict=True), expected, SCALE * WEIGHTS)


def test_deeppavlovs_feeds_both_and_keeps_a_state_for_each_signature(tmp_path: Path) -> None:
    module = converted("deeppavlov", tmp_path)
    names = sorted(BASE.sentences)
    for name in [*names, names[0]]:
        if name == names[0]:
            module.elmo.reset_states()
        sentences = BASE.sentences[name]
        texts = [" ".join(words) for words in sentences]
        for inputs, signature in ((texts, "default"), (as_tokens(sentences), "tokens")):
            outputs = module(inputs, signature=signature, as_dict=True)
            assert_outputs(outputs, BASE.arrays(name), WEIGHTS, SCALE)


@pytest.mark.parametrize(("style", "word"), [("google", ""), ("deeppavlov", None)])
def test_padding_has_the_token_vector_that_tensorflow_put_there(style: str, word: str | None, tmp_path: Path) -> None:
    """And outputs are as long as the lists of words."""
    module = converted(style, tmp_path)
    tokens = {"tokens": [["the", "cat", "", ""], ["dogs", "", "", ""]], "sequence_len": [2, 1]}
    outputs = module(tokens, signature="tokens", as_dict=True)
    ids = torch.zeros(1, 50, dtype=torch.long)
    if word is not None:
        ids = torch.tensor([module.tokenizer.convert_tokens_to_ids(word)])
    vector = module.elmo.model.token_encoder(ids)[0]
    mixed = float(SCALE * WEIGHTS[0]) * vector.repeat(2)
    for row, length in enumerate((2, 1)):
        torch.testing.assert_close(outputs["word_emb"][row, length:], vector.expand(4 - length, P))
        torch.testing.assert_close(outputs["elmo"][row, length:], mixed.expand(4 - length, 2 * P))
        assert not outputs["lstm_outputs2"][row, length:].any()
