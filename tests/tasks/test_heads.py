"""Answers, pooled texts, pairs, and labels of words: what `logits` and losses are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import DataCollatorForTokenClassification, Trainer, TrainingArguments

from elmo_hf import (
    ElmoConfig,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoTokenizer,
    extract_answers,
)
from elmo_hf.model.heads_elmo import Pooler, QuestionAttention, compare
from tests.helpers.task_models import FIRST, LSTM, SECOND, TOKENIZER, make_batch, make_task_model
from tests.helpers.tiny_inputs import assert_outputs_close, word_config


def test_attention_is_its_equations_and_a_question_without_words_gets_none() -> None:
    attention = QuestionAttention(3)
    context, question = torch.randn(3, 4, 3), torch.randn(3, 4, 3)
    mask = torch.tensor([[True, True, True, False], [True, False, False, False], [False, False, False, False]])
    actual = attention(context, question, mask)
    for row, length in enumerate([3, 1]):
        for word in range(4):
            c = context[row, word]
            scores = torch.stack([attention.question(q) + attention.product(c * q) for q in question[row, :length]])
            expected = (scores.softmax(dim=0) * question[row, :length]).sum(dim=0)
            assert_outputs_close(actual[row, word], expected)
    assert actual[2].abs().sum() == 0


@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_compare_each_word_of_the_context_with_what_of_the_question_concerns_it(side: str) -> None:
    model, batch = make_task_model("questions"), make_batch("questions", side)
    output = model(**batch)
    lowest = torch.finfo(torch.float32).min
    expected = torch.full((*batch["attention_mask"].shape, 2), lowest)
    for row, (first, second) in enumerate(zip(FIRST, SECOND, strict=True)):
        texts = [TOKENIZER(text, return_tensors="pt")["input_ids"] for text in (first, second)]
        q, c = (model.elmo(ids).elmo_representations[0][:, 1:-1] for ids in texts)
        attended = model.attention(c, q, torch.ones(q.shape[:2], dtype=torch.bool))
        begin = int(batch["attention_mask"][row].nonzero()[0]) + texts[0].shape[1] + 1
        expected[row, begin : begin + c.shape[1]] = model.qa_outputs(compare(c, attended))[0]
        expected[row, int(batch["attention_mask"][row].nonzero()[0])] = 0  # no answer, at the first <S>
    assert_outputs_close(torch.stack([output.start_logits, output.end_logits], dim=-1), expected, 1e-5)


def span_loss(output: Any, starts: list[int], ends: list[int], rows: list[int]) -> Tensor:
    """The mean of both cross-entropies over some rows of a batch, by torch."""
    start_loss = nn.functional.cross_entropy(output.start_logits[rows], torch.tensor(starts))
    end_loss = nn.functional.cross_entropy(output.end_logits[rows], torch.tensor(ends))
    return (start_loss + end_loss) / 2


@pytest.mark.parametrize("left_out", [-100, 12, 13, 99], ids=["-100", "after the context", "T", "after the row"])
def test_the_loss_is_the_mean_of_both_cross_entropies_without_questions_that_are_left_out(left_out: int) -> None:
    model, batch = make_task_model("questions"), make_batch("questions")
    starts, ends = batch["start_positions"].tolist(), batch["end_positions"].tolist()
    batch["start_positions"][1] = batch["end_positions"][1] = left_out
    output = model(**batch)
    assert_outputs_close(output.loss, span_loss(output, [starts[0], starts[2]], [ends[0], ends[2]], [0, 2]))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("label", ["position 0", "the first <S>"])
def test_no_answer_is_a_target_with_the_logit_0(side: str, label: str) -> None:
    model, batch = make_task_model("questions"), make_batch("questions", side)
    is_text = batch["attention_mask"] == 1
    first = [row.nonzero()[0].item() for row in is_text]
    assert (max(first) > 0) == (side == "left")
    padded = first.index(max(first))  # a row that begins with padding, if any does
    starts, ends = batch["start_positions"].tolist(), batch["end_positions"].tolist()
    starts[padded] = ends[padded] = first[padded]
    position = 0 if label == "position 0" else first[padded]
    batch["start_positions"][padded] = position
    batch["end_positions"][padded] = position
    output = model(**batch)
    assert [output.start_logits[row, first[row]].item() for row in range(3)] == [0, 0, 0]
    assert [output.end_logits[row, first[row]].item() for row in range(3)] == [0, 0, 0]
    assert_outputs_close(output.loss, span_loss(output, starts, ends, [0, 1, 2]))
    output.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    # More weight on no answer lowers every logit of that context.
    batch["start_positions"] = torch.full((3,), -100).index_fill(0, torch.tensor(padded), 0)
    only = model(**batch).loss
    model.zero_grad()
    only.backward()
    assert model.qa_outputs.bias.grad[0] > 0


@pytest.mark.parametrize(
    ("task", "ignored"),
    [
        ("classification", {"labels": torch.full((3,), -100)}),
        ("pairs", {"labels": torch.full((3,), -100)}),
        ("labelling", {"labels": torch.full((3, 8), -100)}),
        ("labelling", {"labels": torch.full((3, 8), -100), "num_items_in_batch": torch.tensor(0)}),
        ("crf", {"labels": torch.full((3, 8), -100)}),
        ("crf", {"labels": torch.full((3, 8), -100), "num_items_in_batch": 0}),
        ("questions", {"start_positions": torch.full((3,), -100), "end_positions": torch.full((3,), 99)}),
    ],
)
@pytest.mark.parametrize("is_training", [False, True])
def test_a_batch_whose_labels_are_all_left_out_has_loss_and_gradients_of_zero(
    task: str, ignored: dict[str, Any], is_training: bool
) -> None:
    model = make_task_model(task).train(is_training)
    loss = model(**make_batch(task) | ignored).loss
    assert loss.item() == 0
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert_outputs_close(gradients, [torch.zeros_like(gradient) for gradient in gradients], 1e-6)


def test_a_class_that_is_left_out_counts_for_nothing() -> None:
    model, batch = make_task_model("classification"), make_batch("classification")
    batch["labels"][1] = -100
    output = model(**batch)
    assert_outputs_close(output.loss, nn.functional.cross_entropy(output.logits[[0, 2]], batch["labels"][[0, 2]]))


CONTEXT = "It left  at noon."
OFFSETS = ElmoTokenizer()(["Who"], [CONTEXT], return_offsets_mapping=True, return_tensors="pt")["offset_mapping"]


def logits(values: dict[int, float]) -> torch.Tensor:
    """-1 at each of the five words of the context, where no other value is given, and lowest elsewhere."""
    scores = torch.full((10,), torch.finfo(torch.float32).min)
    scores[4:9] = -1.0
    for place, value in values.items():
        scores[place] = value
    return scores


@pytest.mark.parametrize(
    ("starts", "ends", "max_words", "text"),
    [
        ({6: 3.0}, {7: 3.0}, 30, "at noon"),
        ({5: 3.0}, {5: 3.0}, 30, "left"),
        ({7: 3.0}, {5: 2.0}, 30, "noon"),  # the best end stands before the best start
        ({4: 3.0}, {8: 3.0, 5: 2.0}, 4, "It left"),
        ({4: 3.0}, {8: 3.0, 5: 2.0}, 5, CONTEXT),
        ({4: 200.0, 8: 90.0}, {4: 90.0, 8: 200.0}, 1, "It"),  # probabilities that vanish in float32
    ],
    ids=["two words", "one word", "order", "too long", "just short enough", "certain"],
)
def test_an_answer_is_the_best_span_that_is_short_enough(
    starts: dict[int, float], ends: dict[int, float], max_words: int, text: str
) -> None:
    start_logits, end_logits = logits(starts), logits(ends)
    (answer,) = ElmoForQuestionAnswering.extract_answers(
        start_logits[None], end_logits[None], OFFSETS, [CONTEXT], max_words
    )
    assert answer.text == CONTEXT[answer.start : answer.end] == text
    scores = [
        (start_logits.log_softmax(0)[first] + end_logits.log_softmax(0)[last]).item()
        for first in range(4, 9)
        for last in range(first, min(first + max_words, 9))
    ]
    assert answer.score == pytest.approx(torch.tensor(max(scores)).exp().item())


@pytest.mark.parametrize(("null_threshold", "text"), [(None, "left"), (0.0, ""), (0.9, ""), (1.1, "left")])
def test_there_is_no_answer_if_the_null_odds_exceed_the_threshold(null_threshold: float | None, text: str) -> None:
    start_logits, end_logits = logits({0: 0.0, 5: -0.25}), logits({0: 0.0, 5: -0.75})
    options = {"null_threshold": null_threshold}
    (answer,) = extract_answers(start_logits[None], end_logits[None], OFFSETS, [CONTEXT], **options)
    assert answer.text == CONTEXT[answer.start : answer.end] == text
    best = 5 if text else 0
    if null_threshold is None:  # the probabilities are those of words alone
        start_logits[0] = end_logits[0] = -torch.inf
    score = start_logits.log_softmax(0)[best] + end_logits.log_softmax(0)[best]
    assert answer.score == pytest.approx(score.exp().item())


def test_offsets_may_be_none_outside_the_context() -> None:
    offsets = [[None] * 4 + OFFSETS[0, 4:9].tolist() + [None]]
    start_logits, end_logits = logits({0: 0.0, 6: 3.0}), logits({0: 0.0, 7: 3.0})
    (answer,) = extract_answers(start_logits[None], end_logits[None], offsets, [CONTEXT], null_threshold=0.0)
    assert answer.text == "at noon"


@pytest.mark.parametrize(("null_threshold", "score"), [(None, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_models_logits_of_a_context_without_words_say_no_answer(
    null_threshold: float | None, score: float, dtype: torch.dtype
) -> None:
    inputs = TOKENIZER(["Who left"], [" "], return_offsets_mapping=True, return_tensors="pt")
    offsets = inputs.pop("offset_mapping")
    output = make_task_model("questions").to(dtype)(**inputs)
    start_logits, end_logits = output.start_logits.float(), output.end_logits.float()
    (answer,) = extract_answers(start_logits, end_logits, offsets, [" "], null_threshold=null_threshold)
    assert answer == ("", 0, 0, score)


def test_a_context_without_words_has_no_answer() -> None:
    nothing = torch.full((1, 4), torch.finfo(torch.float32).min)
    answer = ElmoForQuestionAnswering.extract_answers(nothing, nothing, [[(0, 0), (0, 3), (0, 0), (0, 0)]], [" "])[0]
    assert answer == ("", 0, 0, 0.0)


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


def test_attention_pools_vectors_of_float32_under_autocast() -> None:
    vectors = torch.tensor([[[1.0, -4], [3, -2], [9, 9]], [[-1, -2], [9, 9], [9, 9]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    with torch.autocast("cpu", torch.bfloat16):
        found = pooled("attention", vectors, mask)
    assert_outputs_close(found.float(), pooled("attention", vectors, mask), 0.02)  # bfloat16 has 8 bits


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


@pytest.mark.parametrize("encoder", [{}, LSTM], ids=["none", "lstm"])
@pytest.mark.parametrize("task", ["labelling", "crf"])
def test_a_batch_without_any_word_or_boundary_has_no_labels_and_no_loss(task: str, encoder: dict[str, Any]) -> None:
    model, batch = make_task_model(task, **encoder), make_batch(task)
    output = model(batch["input_ids"][:, :0], labels=batch["labels"][:, :0])
    assert output.logits.shape == (3, 0, 5)
    assert output.loss == 0
    output.loss.backward()


def test_a_batch_without_any_word_or_boundary_is_classified_as_one_of_empty_texts() -> None:
    model, batch = make_task_model("classification", **LSTM), make_batch("classification")
    empty = model(batch["input_ids"][:, :0]).logits
    assert_outputs_close(empty, model.classifier.bias.expand(3, 3))


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


# Who did what: words, and for each predicate the roles of the words.
FRAMES = {
    "Ada met Bob and thanked him .": {"met": "A V B O O O O", "thanked": "A O O O V B O"},
    "Ada , who sang , left .": {"sang": "A O O V O O O", "left": "A O O O O V O"},
    "Bob slept .": {"slept": "A V O"},
}


def test_words_get_the_roles_of_the_marked_predicate(tmp_path: Path) -> None:
    roles = {0: "O", 1: "V", 2: "A", 3: "B"}
    names, rows = {name: index for index, name in roles.items()}, []
    for text, frames in FRAMES.items():
        for predicate, labels in frames.items():
            marks = [0, *(int(word == predicate) for word in text.split()), 0]
            rows.append({"labels": [-100, *map(names.get, labels.split()), -100], "marks": marks, **TOKENIZER(text)})
    fields = LSTM | {"task_hidden_size": 20, "id2label": roles, "mark_size": 5, "representation_dropout": 0.0}
    model = make_task_model("labelling", **fields)
    options = {"max_steps": 60, "learning_rate": 0.03, "report_to": [], "use_cpu": True, "disable_tqdm": True}
    arguments = TrainingArguments(str(tmp_path), per_device_train_batch_size=5, save_strategy="no", **options)
    collate = DataCollatorForTokenClassification(TOKENIZER)
    trainer = Trainer(model, arguments, data_collator=collate, train_dataset=Dataset.from_list(rows))
    trainer.train()
    trainer.save_model(tmp_path)
    batch = collate(rows)
    logits = ElmoForTokenClassification.from_pretrained(tmp_path)(**batch).logits
    is_word = batch["labels"] != -100
    assert torch.equal(logits.argmax(dim=-1)[is_word], batch["labels"][is_word])
    assert_outputs_close(logits, model.eval()(**batch).logits, 0)
