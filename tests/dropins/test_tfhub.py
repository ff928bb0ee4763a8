"""TF-Hub's signatures, outputs and layers against AllenNLP's numbers: state carried, padding zero."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp_cases import TOLERANCE, Golden, assert_close
from torch import Tensor

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


def test_a_module_has_a_name_and_signatures_and_takes_its_text_by_name(tiny_folder: Path) -> None:
    elmo = hub.Module(tiny_folder, trainable=True, name="elmo_module")
    assert elmo.name == "elmo_module"
    assert_close(elmo(dict(text=SENTENCES)), MEAN)
    signatures = hub.load(tiny_folder).signatures
    assert_outputs(signatures["default"](np.array(SENTENCES)), "call1")
    assert signatures["tokens"](tokens=[["Yes", "."]], sequence_len=[2])["elmo"].shape == (1, 2, 2 * P)


def test_a_layer_of_keras_is_one_of_torch_and_learns_the_mix_if_asked(tiny_folder: Path) -> None:
    texts = np.array(SENTENCES)
    frozen = hub.KerasLayer(tiny_folder, input_shape=[], dtype=str, trainable=False)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    layer = hub.KerasLayer(hub.load(tiny_folder), trainable=True)
    assert_close(layer(texts), MEAN)
    layer.module.elmo.stateful = False
    frozen.module.elmo.stateful = False
    texts = np.array([*SENTENCES, "naïve Größe 日本"])
    for inputs in (texts[:, None], texts.astype(object), [text.encode() for text in texts]):
        torch.testing.assert_close(layer(inputs), frozen.module(texts.tolist()), rtol=0, atol=0)
    layer(["Yes ."]).sum().backward()
    learning = [parameter for parameter in layer.parameters() if parameter.grad is not None]
    assert sum(parameter.numel() for parameter in learning) == 4
    assert_outputs(hub.KerasLayer(tiny_folder, signature="default", signature_outputs_as_dict=True)(SENTENCES), "call1")
    words = hub.KerasLayer(tiny_folder, signature="tokens", output_key="elmo")
    vectors = words({"tokens": [["Yes", "."], ["No", ""]], "sequence_len": np.array([2, 1])})
    assert vectors.shape == (2, 2, 2 * P)
    assert not vectors[1, 1].any()
