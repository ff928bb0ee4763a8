"""Labels of words: losses with and without a CRF, and what `logits` mean."""

import torch
from task_models import LSTM, make_batch, make_task_model
from tiny_inputs import assert_outputs_close
from torch import nn

from elmo_hf import ElmoForTokenClassification


def labels_everywhere(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The batch with labels on a boundary and on padding too, which count for nothing."""
    labels = batch["labels"].clone()
    labels[0, 0], labels[1, 2:] = 4, 3
    return batch | {"labels": labels}


def test_without_a_crf_logits_are_the_classifiers_of_each_word_and_the_loss_is_cross_entropy() -> None:
    model, batch = make_task_model("labelling", scalar_mix_layer_norm="batch"), make_batch("labelling")
    is_word = batch["labels"] != -100
    expected = model.classifier(model.elmo(batch["input_ids"]).elmo_representations[0]) * is_word.unsqueeze(-1)
    output = model(**labels_everywhere(batch))
    assert_outputs_close(output.logits, expected, 1e-5)
    assert_outputs_close(output.loss, nn.functional.cross_entropy(expected[is_word], batch["labels"][is_word]))


def test_a_batch_without_any_word_or_boundary_has_no_labels() -> None:
    for task in ("labelling", "crf"):
        model, batch = make_task_model(task), make_batch(task)
        assert model(batch["input_ids"][:, :0]).logits.shape == (3, 0, 5)


def test_the_crfs_loss_is_its_likelihood_for_each_labelled_word() -> None:
    model, batch = make_task_model("crf"), make_batch("crf")
    emissions = model.classifier(model.elmo(batch["input_ids"]).elmo_representations[0])
    total = sum(
        model.crf.loss(
            emissions[row : row + 1, 1 : 1 + length],
            batch["labels"][row : row + 1, 1 : 1 + length],
            torch.ones(1, length, dtype=torch.bool),
        )
        for row, length in enumerate([6, 1, 6])
    )
    assert_outputs_close(model(**labels_everywhere(batch)).loss, total / 13)


def test_logits_of_a_crf_are_its_log_probabilities_but_the_best_sequence_is_on_top() -> None:
    model, batch = make_task_model("crf", **LSTM), make_batch("crf")
    texts = model.encode_texts(batch["input_ids"], batch["attention_mask"], None)
    emissions, mask = model.classifier(texts.vectors), texts.rows.mask
    logits = texts.rows.take(model(**batch).logits)
    best, expected = model.crf.decode(emissions, mask), model.crf.log_marginals(emissions, mask)
    assert 0 < (expected.argmax(dim=-1) == best)[mask].sum() < 13  # of 13 words some disagree
    assert torch.equal(logits.argmax(dim=-1)[mask], best[mask])
    is_best = nn.functional.one_hot(best, 5).bool()
    least = expected.masked_fill(is_best, -torch.inf).amax(dim=-1, keepdim=True) + 1e-3
    assert_outputs_close(logits[mask], torch.where(is_best, expected.maximum(least), expected)[mask])


def test_a_new_crf_prefers_nothing() -> None:
    crf = ElmoForTokenClassification(make_task_model("crf").config).crf
    assert all(parameter.abs().sum() == 0 for parameter in crf.parameters())
