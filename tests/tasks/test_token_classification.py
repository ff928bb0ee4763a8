"""Labels of words: losses with and without a CRF, and what `logits` mean."""

import pytest
import torch
from task_models import LSTM, make_batch, make_task_model
from tiny_inputs import assert_outputs_close
from torch import nn

from elmo_hf import ElmoForTokenClassification
from elmo_hf.tasks.crf import LinearChainCRF


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


@pytest.mark.parametrize("task", ["labelling", "crf"])
def test_parts_of_a_batch_add_up_to_it_when_the_number_of_labels_is_given(task: str) -> None:
    fields = {"scalar_mix_l2": 0.25, "representation_dropout": 0.0}
    model, batch = make_task_model(task, **fields).train(), make_batch(task)
    model.elmo.scalar_mixes[0].set_weights([0.1, 0.2, 0.7])
    whole = model(**batch).loss
    parts = [
        model(**{key: value[rows] for key, value in batch.items()}, num_items_in_batch=13).loss
        for rows in (slice(0, 1), slice(1, 3))
    ]
    assert_outputs_close(sum(parts), whole)


def test_with_a_crf_the_largest_logits_are_its_best_sequence_and_the_others_its_probabilities() -> None:
    model, batch = make_task_model("crf", **LSTM), make_batch("crf")
    texts = model.encode_texts(batch["input_ids"], batch["attention_mask"], None)
    emissions, mask = model.classifier(texts.vectors), texts.rows.mask
    logits = texts.rows.take(model(**batch).logits)
    best, marginals = model.crf.decode(emissions, mask), model.crf.log_marginals(emissions, mask)
    assert torch.equal(logits.argmax(dim=-1)[mask], best[mask])
    is_top = (marginals.argmax(dim=-1) == best) & mask
    assert 0 < is_top.sum() <= mask.sum()
    assert_outputs_close(logits[is_top].softmax(dim=-1), marginals[is_top].exp(), 1e-3)
    lower = nn.functional.one_hot(best, 5).bool().logical_not()
    assert_outputs_close(logits[lower & mask.unsqueeze(-1)], marginals[lower & mask.unsqueeze(-1)])


def test_a_best_sequence_that_the_marginals_disagree_with_still_wins() -> None:
    # One sequence scores 1.0; two others, which share their first label, 0.9 each.
    crf = LinearChainCRF(["red", "green", "blue"])
    with torch.no_grad():
        crf.transitions.copy_(torch.tensor([[1.0, -50, -50], [-50, 0.9, 0.9], [-50, -50, -50]]))
    emissions, mask = torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool)
    assert crf.log_marginals(emissions, mask)[0, 0].argmax() == 1
    assert crf.decode(emissions, mask).tolist() == [[0, 0]]
    answers = ElmoForTokenClassification._answers(crf, emissions, mask)
    assert answers.argmax(dim=-1).tolist() == [[0, 0]]
    assert answers[0, 0, 0].item() == pytest.approx(answers[0, 0, 1].item() + 1e-3, abs=1e-6)


def test_a_new_crf_prefers_nothing() -> None:
    torch.manual_seed(0)
    crf = type(make_task_model("crf"))(make_task_model("crf").config).crf
    assert all(parameter.abs().sum() == 0 for parameter in crf.parameters())
