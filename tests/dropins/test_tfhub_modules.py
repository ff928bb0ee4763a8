"""Converted modules of TF-Hub do as TensorFlow did: boundaries, state, mean and padding; real exports, and our own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import TOLERANCE, Golden
from checkpoints import BASE, read_datasets, shared
from hub_modules import LOGITS, SCALE, variables_of, write_module

from elmo_hf import tfhub as hub
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.options import read_options
from elmo_hf.conversion.witness.reference import ReferenceElmo

P = 8
WEIGHTS = np.exp(LOGITS) / np.exp(LOGITS).sum()
SENTENCES = [["the", "cat", "is", "on"], ["dogs"]]
EXPORTS = {
    "google_style/module.tar.gz": "google_style/outputs.npz",
    "google_style/saved_model.tar.gz": "google_style/outputs.npz",
    "google_style/stateful_variables.tar.gz": "google_style/outputs_stateful.npz",
    "deeppavlov_style/module.tar.gz": "deeppavlov_style/outputs.npz",
}


def made(style: str, folder: Path) -> Path:
    """Our own module, converted."""
    convert_source(write_module(folder / "source", variables_of(style)), folder / style, Given())
    return folder / style


def call(module: hub.Module, inputs: dict[str, np.ndarray], signature: str, name: str) -> dict[str, np.ndarray]:
    given: Any = inputs[f"strings/{name}"] if signature == "default" else None
    if given is None:
        given = {"tokens": inputs[f"tokens/{name}"], "sequence_len": inputs[f"sequence_len/{name}"]}
    with torch.no_grad():
        outputs = module(list(given) if signature == "default" else given, signature=signature, as_dict=True)
    return {key: tensor.numpy() for key, tensor in outputs.items()}


@pytest.mark.parametrize("source", EXPORTS)
def test_every_output_of_every_call_is_tensorflows(source: str, tmp_path: Path) -> None:
    """In one session and in fresh ones, padding included."""
    path = shared("fixtures", "tfhub", *source.split("/"))
    expected = np.load(shared("fixtures", "tfhub", *EXPORTS[source].split("/")))
    inputs = np.load(path.parent / "outputs.npz")
    convert_source(path, tmp_path / "elmo", Given(), check=True)
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
        outputs = call(module, inputs, signature, name)
        for output in calls[place]:
            theirs = expected[f"{place}/{output}"]
            np.testing.assert_allclose(outputs[output], theirs, rtol=0, atol=1e-5, err_msg=f"{place}/{output}")


def test_googles_feeds_no_boundaries_and_keeps_no_state(tmp_path: Path) -> None:
    arrays = read_datasets(BASE / "weights.hdf5")
    witness = ReferenceElmo(read_options(BASE / "options.json"), arrays, with_boundaries=False)
    module = hub.Module(made("google", tmp_path))
    for _ in range(2):
        outputs = module([" ".join(words) for words in SENTENCES], as_dict=True)
        for row, words in enumerate(SENTENCES):
            layers = witness.embed(words)
            elmo = SCALE * np.tensordot(WEIGHTS, layers, axes=1)
            expected = {"word_emb": layers[0][:, :P], "lstm_outputs1": layers[1], "lstm_outputs2": layers[2]}
            for name, vectors in (expected | {"elmo": elmo}).items():
                np.testing.assert_allclose(outputs[name][row, : len(words)].detach(), vectors, rtol=0, atol=1e-5)
            np.testing.assert_allclose(outputs["default"][row].detach(), elmo.mean(axis=0), rtol=0, atol=1e-5)


def test_deeppavlovs_feeds_both_and_keeps_a_state_for_each_signature(tmp_path: Path) -> None:
    golden = Golden("base_2l_relu")
    module = hub.Module(made("deeppavlov", tmp_path))
    names = sorted(golden.sentences)
    for name in [*names, names[0]]:
        if name == names[0]:
            module.elmo.reset_states()
        sentences, layers = golden.sentences[name], golden.layers(name)
        longest = max(map(len, sentences))
        tokens = [words + [""] * (longest - len(words)) for words in sentences]
        lengths = [len(words) for words in sentences]
        mixed = np.tensordot(WEIGHTS, layers, axes=1)
        for outputs in (
            module([" ".join(words) for words in sentences], as_dict=True),
            module({"tokens": tokens, "sequence_len": lengths}, signature="tokens", as_dict=True),
        ):
            top, elmo, pooled = (outputs[key].detach() for key in ("lstm_outputs2", "elmo", "default"))
            np.testing.assert_allclose(top, layers[2], rtol=0, atol=TOLERANCE)
            for row, length in enumerate(lengths):
                np.testing.assert_allclose(elmo[row, :length], SCALE * mixed[row, :length], rtol=0, atol=TOLERANCE)
            mean = mixed.sum(axis=1) / np.array(lengths)[:, None]
            np.testing.assert_allclose(pooled, mean, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("style", "word"), [("google", ""), ("deeppavlov", None)])
def test_padding_has_the_token_vector_that_tensorflow_put_there(style: str, word: str | None, tmp_path: Path) -> None:
    """And outputs are as long as the lists of words."""
    module = hub.Module(made(style, tmp_path))
    tokens = {"tokens": [["the", "cat", "", ""], ["dogs", "", "", ""]], "sequence_len": [2, 1]}
    outputs = module(tokens, signature="tokens", as_dict=True)
    ids = torch.zeros(1, 50, dtype=torch.long)
    if word is not None:
        ids = torch.tensor([module.tokenizer.convert_tokens_to_ids(word)])
    vector = module.elmo.model.token_encoder(ids)[0]
    for row, length in enumerate((2, 1)):
        rest = outputs["word_emb"][row, length:]
        torch.testing.assert_close(rest, vector.expand(4 - length, P))
        mixed = float(SCALE * WEIGHTS[0]) * vector.repeat(2)
        torch.testing.assert_close(outputs["elmo"][row, length:], mixed.expand(4 - length, 2 * P))
        assert not outputs["lstm_outputs2"][row, length:].any()
