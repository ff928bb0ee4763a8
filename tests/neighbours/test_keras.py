"""`KerasLayer` in Keras 3: the numbers of `Module`, models that learn, and saved models."""

import importlib
import os
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
