"""`KerasLayer` in Keras 3: the numbers of `Module`, models that learn, and saved models."""

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import tfhub
from tests.helpers.neighbours import TEXTS

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
KerasLayer = importlib.import_module("elmo_hf.tfhub").KerasLayer

LABELS = np.arange(len(TEXTS)) % 2


def num_trained(layer: Any) -> int:
    return sum(int(np.prod(weight.shape)) for weight in layer.trainable_weights)


def model_of(layer: Any, functional: bool) -> Any:
    if not functional:
        return keras.Sequential([layer, keras.layers.Dense(3)])
    ids = keras.Input((None, 50), dtype="int32")
    return keras.Model(ids, keras.layers.Dense(3)(layer(ids)))


def test_outputs_are_those_of_the_module_in_every_call_and_have_the_shapes_that_keras_expects(folder: Path) -> None:
    for name, output in tfhub.Module(folder)(TEXTS, as_dict=True).items():
        expected = output.numpy()
        layer = KerasLayer(folder, output_key=name)
        ids = layer.encode(TEXTS)
        for inputs in (TEXTS, np.array(TEXTS)[:, None], [each.encode() for each in TEXTS], ids):
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(inputs)), expected)
        assert layer.compute_output_shape(ids.shape) == expected.shape
        assert layer.compute_output_shape((None, None, 50))[-1] == expected.shape[-1]
        if name != "default":
            ids = layer.encode([text.split() for text in TEXTS])
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(ids)), expected)


TOKENS: dict[str, Any] = {"tokens": [["the", "cat", ""], ["dogs", "", ""]], "sequence_len": [2, 1]}


def test_the_signature_tokens_gives_all_outputs_of_the_module_by_name(folder: Path) -> None:
    layer = KerasLayer(folder, signature="tokens", signature_outputs_as_dict=True, tags=[], arguments={})
    expected = tfhub.Module(folder)(TOKENS, signature="tokens", as_dict=True)
    ids = layer.encode(TOKENS)
    for inputs in (TOKENS, ids):
        outputs = layer(inputs)
        assert outputs.keys() == expected.keys()
        for name, output in expected.items():
            np.testing.assert_array_equal(keras.ops.convert_to_numpy(outputs[name]), output.numpy())
    assert layer.compute_output_shape(ids.shape) == {name: output.shape for name, output in expected.items()}
    outputs = layer(keras.Input((None, 50), dtype="int32"))
    assert outputs["elmo"].shape == (None, None, expected["elmo"].shape[-1])


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a signature": (lambda: KerasLayer("tiny", signature="words"), "one of default, tokens"),
    "an output": (lambda: KerasLayer("tiny", output_key="lstm_outputs3"), "lstm_outputs2"),
    "one output and all": (
        lambda: KerasLayer("tiny", output_key="elmo", signature_outputs_as_dict=True),
        "`signature_outputs_as_dict`",
    ),
    "arguments": (lambda: KerasLayer("tiny", arguments={"batch": 3}), "arguments"),
    "a tag": (lambda: KerasLayer("tiny", tags="train"), "'train'"),
    "no text": (lambda: KerasLayer("tiny").encode([]), "at least one text"),
    "a string": (lambda: KerasLayer("tiny").encode("Yes ."), "'Yes .'"),
    "strings for tokens": (lambda: KerasLayer("tiny", signature="tokens")(["Yes ."]), "lists of words"),
    "tokens for strings": (lambda: KerasLayer("tiny")(TOKENS), "lists of words"),
    "tokens without lengths": (
        lambda: KerasLayer("tiny", signature="tokens")({"tokens": [["Yes"]]}),
        "tokens and sequence_len",
    ),
    "an array of words": (lambda: KerasLayer("tiny").encode(np.array([["a", "b"]])), "(1, 2)"),
    "an input of strings": (lambda: KerasLayer("tiny")(keras.Input((1,), dtype="string")), "`encode`"),
    "TensorFlow's shape of strings": (lambda: keras.Sequential([KerasLayer("tiny", input_shape=[])]), "`encode`"),
}


@pytest.mark.filterwarnings("ignore:Do not pass an `input_shape`")  # Keras's own advice
@pytest.mark.parametrize("name", REFUSED)
def test_what_the_layer_does_not_take_is_named(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


@pytest.mark.parametrize("functional", [False, True], ids=["sequential", "functional"])
def test_a_model_learns_its_mix_and_is_the_same_when_loaded(functional: bool, folder: Path, tmp_path: Path) -> None:
    assert KerasLayer(folder).trainable_weights == []
    layer = KerasLayer(folder, trainable=True)
    assert layer.count_params() > num_trained(layer) == 4
    before = {name: each.clone() for name, each in layer.module.state_dict().items()}
    ids, model = layer.encode(TEXTS), model_of(layer, functional)
    model.compile(keras.optimizers.Adam(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(ids, LABELS, epochs=8, batch_size=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    changed = [name for name, each in layer.module.state_dict().items() if not torch.equal(each, before[name])]
    assert {name.partition("scalar_mixes.0.")[2] for name in changed} == {"logits", "scale"}
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(ids, verbose=0), model.predict(ids, verbose=0))
    assert num_trained(loaded.layers[-2]) == 4
