"""Code of the time around TF-Hub's module: names, `hub.load`, layers of Keras, in scripts rewritten after such code."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from allennlp_cases import Golden, assert_close
from torch import nn

from elmo_hf import tfhub as hub

GOLDEN = Golden("base_2l_relu")
SENTENCES = [" ".join(words) for words in GOLDEN.sentences["call1"]]
MEAN = GOLDEN.layers("call1").mean(axis=0).sum(axis=1) / [[max(len(words), 1)] for words in GOLDEN.sentences["call1"]]


def run(script: str, folder: Path, **names: Any) -> dict[str, Any]:
    """Runs an old script with another import and another address."""
    script = script.replace("import tensorflow_hub as hub", "from elmo_hf import tfhub as hub")
    script = script.replace('"https://tfhub.dev/google/elmo/3"', "folder")
    assert "elmo_hf" in script
    names |= {"folder": folder, "texts": SENTENCES}
    exec(compile(script, "legacy", "exec"), names)
    return names


A_NAMED_MODULE = """
import tensorflow_hub as hub

elmo = hub.Module("https://tfhub.dev/google/elmo/3", trainable=True, name="{}_module".format("elmo"))
pooled = elmo(dict(text=texts))
learning = [name for name, parameter in elmo.named_parameters() if parameter.requires_grad]
name = elmo.name
"""


def test_a_module_has_a_name_and_takes_its_text_by_name(tiny_folder: Path) -> None:
    names = run(A_NAMED_MODULE, tiny_folder)
    assert_close(names["pooled"], MEAN)
    assert names["name"] == "elmo_module"
    assert names["learning"] == ["elmo.model.scalar_mixes.0.logits", "elmo.model.scalar_mixes.0.scale"]


LOADED_AS_IN_TENSORFLOW_2 = """
import numpy as np
import tensorflow_hub as hub

elmo = hub.load("https://tfhub.dev/google/elmo/3")
signature = elmo.signatures["default"]
vectors = signature(np.array(texts))["elmo"].numpy()
one_by_one = [elmo.signatures["tokens"](tokens=[words], sequence_len=[len(words)])["elmo"] for words in lists]
"""


def test_hub_load_gives_signatures(tiny_folder: Path) -> None:
    names = run(LOADED_AS_IN_TENSORFLOW_2, tiny_folder, lists=[["Yes", "."]])
    assert_close(names["vectors"], GOLDEN.layers("call1").mean(axis=0))
    assert names["one_by_one"][0].shape == (1, 2, 16)


LAYERS_OF_KERAS = """
import numpy as np
import tensorflow_hub as hub

pooling = hub.KerasLayer("https://tfhub.dev/google/elmo/3", input_shape=[], dtype=str, trainable=False)
pooled = pooling(np.array(texts))
every = hub.KerasLayer(hub.load("https://tfhub.dev/google/elmo/3"), signature="default",
                       signature_outputs_as_dict=True)(texts)
words = hub.KerasLayer("https://tfhub.dev/google/elmo/3", signature="tokens", output_key="elmo")
vectors = words({"tokens": [["Yes", "."], ["No", ""]], "sequence_len": np.array([2, 1])})
"""


def test_hub_keras_layer_is_a_layer_of_torch(tiny_folder: Path) -> None:
    names = run(LAYERS_OF_KERAS, tiny_folder)
    assert isinstance(names["pooling"], nn.Module)
    assert not any(parameter.requires_grad for parameter in names["pooling"].parameters())
    assert_close(names["pooled"], MEAN)
    assert_close(names["every"]["lstm_outputs2"], GOLDEN.layers("call1")[2])
    assert names["vectors"].shape == (2, 2, 16)
    assert not names["vectors"][1, 1].any()


A_CLASSIFIER = """
import numpy as np
import tensorflow_hub as hub
import torch

column = np.array([" ".join(t.split()[0:150]) for t in texts], dtype=object)[:, np.newaxis]
embedding = hub.KerasLayer("https://tfhub.dev/google/elmo/3", trainable=True)
model = torch.nn.Sequential(embedding, torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
vectors = embedding(column)
embedding.module.elmo.reset_states()
predictions = model(column)
predictions.sum().backward()
"""


def test_a_trainable_layer_learns_the_mix(tiny_folder: Path) -> None:
    names = run(A_CLASSIFIER, tiny_folder)
    assert_close(names["vectors"], MEAN)
    assert names["predictions"].shape == (len(SENTENCES), 1)
    parameters = [parameter for parameter in names["embedding"].parameters() if parameter.requires_grad]
    assert sum(parameter.numel() for parameter in parameters) == 4
    assert all(parameter.grad is not None for parameter in parameters)


def test_strings_of_numpy_and_bytes_are_texts(tiny_folder: Path) -> None:
    layer = hub.KerasLayer(tiny_folder)
    layer.module.elmo.stateful = False
    expected = layer(SENTENCES)
    for inputs in (np.array(SENTENCES), [text.encode() for text in SENTENCES], np.array(SENTENCES)[:, None]):
        torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=0)
