"""Pooling, pairs, and the losses of each kind of problem."""

import pytest
import torch
from task_models import make_batch, make_task_model
from tiny_inputs import assert_outputs_close, word_config
from torch import Tensor, nn

from elmo_hf import ElmoConfig, ElmoForSequenceClassification
from elmo_hf.tasks.sequence_classification import Pooler


def pooled(pooling: str, vectors: Tensor, mask: Tensor) -> Tensor:
    pooler = Pooler(ElmoConfig(pooling=pooling), vectors.shape[-1])
    if pooling == "attention":
        pooler.query.weight.data = torch.tensor([[1.0, -2.0]])
    return pooler(vectors, mask)


def test_poolings_look_at_words_alone_and_give_zeros_and_finite_gradients_without_words() -> None:
    vectors = torch.tensor([[[1.0, -4], [3, -2], [9, 9]], [[-1, -2], [9, 9], [9, 9]], [[9, 9], [9, 9], [9, 9]]])
    mask = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    assert pooled("mean", vectors, mask).tolist() == [[2, -3], [-1, -2], [0, 0]]
    assert pooled("max", vectors, mask).tolist() == [[3, -2], [-1, -2], [0, 0]]
    weights = torch.tensor([9.0, 7.0]).softmax(dim=0)
    expected = [(weights.unsqueeze(-1) * vectors[0, :2]).sum(dim=0), vectors[1, 0], torch.zeros(2)]
    assert_outputs_close(pooled("attention", vectors, mask), torch.stack(expected))
    for pooling in ("mean", "max", "attention"):
        (gradient,) = torch.autograd.grad(pooled(pooling, vectors.requires_grad_(), mask).sum(), vectors)
        assert gradient.isfinite().all()
        assert gradient[~mask].abs().sum() == 0


@pytest.mark.parametrize("pooling", ["mean", "max", "attention"])
def test_logits_are_the_classifiers_of_pooled_representations_without_boundaries(pooling: str) -> None:
    model, batch = make_task_model("classification", pooling=pooling), make_batch("classification")
    representation = model.elmo(batch["input_ids"]).elmo_representations[0]
    for row, length in enumerate([6, 1, 6]):
        words = representation[row : row + 1, 1 : 1 + length]
        expected = model.classifier(model.pooler(words, torch.ones(1, length, dtype=torch.bool)))
        assert_outputs_close(model(**batch).logits[row : row + 1], expected, 1e-5)


def test_a_pair_is_compared_by_vectors_of_each_text_alone() -> None:
    model = make_task_model("pairs", pooling="max")
    batch, firsts = make_batch("pairs"), make_batch("classification")
    texts = (firsts["input_ids"][:1], batch["input_ids"][:1, 8:13])
    first, second = (model.elmo(ids).elmo_representations[0][:, 1:-1].amax(dim=1) for ids in texts)
    features = torch.cat([first, second, (first - second).abs(), first * second], dim=-1)
    assert_outputs_close(model(**batch).logits[:1], model.classifier(features), 1e-5)


def test_the_loss_is_that_of_the_problem_type() -> None:
    several = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])
    for num_labels, labels, loss in (
        (3, torch.tensor([2, 0, 1]), nn.functional.cross_entropy),
        (3, several, nn.functional.binary_cross_entropy_with_logits),
        (1, torch.tensor([0.5, -1, 2]), lambda logits, labels: ((logits[:, 0] - labels) ** 2).mean()),
    ):
        model, batch = make_task_model("classification", num_labels=num_labels), make_batch("classification")
        output = model(**batch | {"labels": labels})
        assert_outputs_close(output.loss, loss(output.logits, labels))


def test_a_word_embedding_model_classifies() -> None:
    model = ElmoForSequenceClassification(word_config(text_pairs=True)).eval()
    ids = torch.tensor([[1, 5, 6, 2, 1, 7, 2, 0], [1, 8, 2, 1, 9, 10, 11, 2]])
    logits = model(ids).logits
    assert_outputs_close(model(ids[:1, :7]).logits, logits[:1])
    assert logits.shape == (2, 2)
