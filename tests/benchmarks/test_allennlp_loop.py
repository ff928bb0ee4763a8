"""The loop that ours is timed against computes what ours does: values, layers and gradients."""

import pytest
import torch
from allennlp_loop import LoopElmo, LoopLanguageModels
from tiny_inputs import assert_outputs_close, random_inputs, word_config

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel
from elmo_hf.language_model.sampled_softmax import draw_candidates

LENGTHS = [3, 1, 5, 3]


def test_the_loop_gives_our_layers_and_mix(tiny_model: ElmoModel) -> None:
    tiny_model.scalar_mixes[0].set_weights([0.2, 0.5, 0.3], scale=1.5)
    inputs = random_inputs(tiny_model.config, LENGTHS)
    ours = tiny_model(**inputs, output_hidden_states=True)
    theirs = LoopElmo(tiny_model)(inputs["input_ids"])
    assert_outputs_close(theirs.layers, list(ours.hidden_states))
    assert_outputs_close(theirs.mix, ours.elmo_representations[0])


def test_the_loop_gives_our_gradients(tiny_model: ElmoModel) -> None:
    inputs = random_inputs(tiny_model.config, LENGTHS)
    loop = LoopElmo(tiny_model)
    tiny_model(**inputs).elmo_representations[0].square().sum().backward()
    loop(inputs["input_ids"]).mix.square().sum().backward()
    backward = tiny_model.bilm.layers[0].backward_lstm
    theirs = loop.bilm.backward_layers[0]
    assert_outputs_close(theirs.input_linear.weight.grad, backward.input_linear.weight.grad, 1e-5)
    assert_outputs_close(theirs.state_linear.weight.grad, backward.recurrent_linear.weight.grad, 1e-5)
    assert_outputs_close(theirs.state_linear.bias.grad, backward.input_linear.bias.grad, 1e-5)
    assert_outputs_close(theirs.projection.weight.grad, backward.projection.weight.grad, 1e-5)
    highway, encoder = loop.token_encoder.highways[0], tiny_model.token_encoder
    transform, gate = highway.linear.weight.grad.chunk(2)
    assert_outputs_close(transform, encoder.highways[0].transform.weight.grad, 1e-5)
    assert_outputs_close(gate, -encoder.highways[0].gate.weight.grad, 1e-5)
    assert_outputs_close(loop.token_encoder.embedding.grad[1:], encoder.embedding.weight.grad[1:], 1e-5)


def test_the_loops_language_models_give_our_loss(tiny_config: ElmoConfig) -> None:
    for name, value in (("num_softmax_words", 23), ("softmax", "sampled"), ("num_softmax_samples", 6)):
        setattr(tiny_config, name, value)
    tiny_config.lm_dropout = 0.0
    model = ElmoForPreTraining(tiny_config).train()
    streams = [random_inputs(tiny_config, [4, 4, 4], seed)["input_ids"] for seed in (1, 2)]
    targets = torch.randint(23, (2, 3, 4)).unbind()
    candidates = (draw_candidates(23, 6), draw_candidates(23, 6))
    batch = {"backward_input_ids": streams[1], "forward_targets": targets[0], "backward_targets": targets[1]}
    ours = model(streams[0], **batch, candidates=candidates)
    theirs = LoopLanguageModels(model).train()(streams[0], **batch, candidates=candidates)
    assert_outputs_close(theirs, ours.loss)


def test_models_that_allennlp_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="AllenNLP's ELMo reads characters alone and projects its cells"):
        LoopElmo(ElmoModel(word_config()))
