"""TF-Hub's two signatures and five outputs, against AllenNLP's numbers: state carried, padding zero.

And code of the time around them, `hub.load` and layers of Keras, in scripts rewritten after such code.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import TOLERANCE, Golden, assert_close
from torch import Tensor, nn

from elmo_hf import ElmoModel
from elmo_hf import tfhub as hub

GOLDEN = Golden("base_2l_relu")
CALLS = GOLDEN.sentences
P = 8
SENTENCES = [" ".join(words) for words in CALLS["call1"]]
MEAN = GOLDEN.layers("call1").mean(axis=0).sum(axis=1) / [[max(len(words), 1)] for words in CALLS["call1"]]


@pytest.fixture
def elmo(tiny_folder: Path) -> hub.Module:
    return hub.Module(tiny_folder)


def as_tokens(sentences: list[list[str]]) -> dict[str, Any]:
    """As TF-Hub's page shows: every list as long as the longest, filled up with empty words."""
    longest = max(len(words) for words in sentences)
    return {
        "tokens": [words + [""] * (longest - len(words)) for words in sentences],
        "sequence_len": [len(words) for words in sentences],
    }


def assert_outputs(outputs: dict[str, Tensor], call: str) -> None:
    layers = torch.from_numpy(GOLDEN.layers(call))
    lengths = torch.tensor([[len(words)] for words in CALLS[call]])
    expected = {
        "word_emb": layers[0][..., :P],
        "lstm_outputs1": layers[1],
        "lstm_outputs2": layers[2],
        "elmo": layers.mean(dim=0),
        "default": layers.mean(dim=0).sum(dim=1) / lengths,
    }
    assert outputs.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(outputs[name].detach(), tensor, rtol=0, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("side", ["right", "left"])
def test_the_tokens_signature_gives_five_outputs_with_the_state_carried_from_call_to_call(
    elmo: hub.Module, side: str
) -> None:
    elmo.tokenizer.padding_side = side  # that of the saved tokenizer
    for call in sorted(CALLS):
        assert_outputs(elmo(inputs=as_tokens(CALLS[call]), signature="tokens", as_dict=True), call)


def test_the_default_signature_splits_on_blanks_alone(elmo: hub.Module) -> None:
    first = elmo(SENTENCES, signature="default", as_dict=True)
    assert_outputs(first, "call1")
    elmo.elmo.reset_states()
    blanks = elmo(["  ".join(words) + " " for words in CALLS["call1"]], as_dict=True)
    assert_outputs(blanks, "call1")
    assert elmo(["one\ttwo three"], as_dict=True)["elmo"].shape == (1, 2, 2 * P)


def test_switched_off_it_keeps_the_state_it_had(elmo: hub.Module) -> None:
    for stateful in (False, True, False):
        elmo.elmo.stateful = stateful
        assert_outputs(elmo(as_tokens(CALLS["call1"]), signature="tokens", as_dict=True), "call1")
    elmo.elmo.stateful = True
    assert_outputs(elmo(as_tokens(CALLS["call2"]), signature="tokens", as_dict=True), "call2")


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


def test_a_learned_mix_is_kept(tiny_folder: Path, tmp_path: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder)
    model.scalar_mixes[0].set_weights([0, 0, 1], scale=2)
    model.save_pretrained(tmp_path)
    hub.Module(tiny_folder).tokenizer.save_pretrained(tmp_path)
    outputs = hub.Module(tmp_path)(as_tokens(CALLS["call1"]), signature="tokens", as_dict=True)
    torch.testing.assert_close(outputs["elmo"], 2 * outputs["lstm_outputs2"])


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
