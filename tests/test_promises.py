"""What users' code relies on without naming it: public names, the order of an output's fields, old signatures."""

import inspect
from dataclasses import fields

import torch
from tiny_inputs import random_inputs

import elmo_hf
from elmo_hf import ElmoForPreTrainingOutput, ElmoModel, allennlp

PUBLIC_NAMES = """
    BiLMState ElmoConfig ElmoForPreTraining ElmoForPreTrainingOutput ElmoForQuestionAnswering
    ElmoForSequenceClassification ElmoForTokenClassification ElmoModel ElmoModelOutput ElmoPreTrainedModel ElmoTokenizer
    PredictedWord WordVectors extract_answers pipeline predict_words tiny_model tiny_tokenizer
"""
OUTPUT_FIELDS = """
    last_hidden_state pooler_output representations token_embeddings state_hidden state_cell hidden_states
"""
PRETRAINING_OUTPUT_FIELDS = """
    loss forward_loss backward_loss sampled_forward_loss sampled_backward_loss state_hidden state_cell forward_log_probs
    backward_log_probs forward_logits backward_logits hidden_states
"""

ADDRESS = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway"
ALLENNLP_SIGNATURES = {
    allennlp.Elmo: """
        options_file weight_file num_output_representations requires_grad=False do_layer_norm=False dropout=0.5
        vocab_to_cache=None keep_sentence_boundaries=False scalar_mix_parameters=None module=None
    """,
    allennlp.ElmoEmbedder: f"options_file={ADDRESS}_options.json weight_file={ADDRESS}_weights.hdf5 cuda_device=-1",
    allennlp.ElmoEmbedder.embed_file: """
        self input_file output_file_path output_format=all batch_size=64 forget_sentences=False use_sentence_keys=False
    """,
}


def test_a_star_imports_the_public_names() -> None:
    assert elmo_hf.__all__ == PUBLIC_NAMES.split()
    assert all(getattr(elmo_hf, name).__name__ == name for name in elmo_hf.__all__)


def test_a_tuple_of_outputs_has_the_order_of_the_fields(tiny_model: ElmoModel) -> None:
    """Pipelines and traced models take outputs by their places."""
    inputs = random_inputs(tiny_model.config, [3, 2]) | {"output_hidden_states": True}
    by_place, by_name = tiny_model(**inputs, return_dict=False), tiny_model(**inputs)
    expected = tuple(by_name[name] for name in OUTPUT_FIELDS.split())
    torch.testing.assert_close(by_place, expected, rtol=0, atol=0)
    assert [field.name for field in fields(ElmoForPreTrainingOutput)] == PRETRAINING_OUTPUT_FIELDS.split()


def test_signatures_are_allennlps() -> None:
    for function, expected in ALLENNLP_SIGNATURES.items():
        parameters = inspect.signature(function).parameters.values()
        found = [each.name + (f"={each.default}" if each.default is not each.empty else "") for each in parameters]
        assert found == expected.split()
