"""Answers: attention, logits at words of the context, spans of text."""

import pytest
import torch
from task_models import FIRST, SECOND, TOKENIZER, make_batch, make_task_model
from tiny_inputs import assert_outputs_close
from torch import nn

from elmo_hf import ElmoForQuestionAnswering, ElmoTokenizer
from elmo_hf.tasks.question_answering import QuestionAttention
from elmo_hf.tasks.task_encoder import compare


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
    assert_outputs_close(torch.stack([output.start_logits, output.end_logits], dim=-1), expected, 1e-5)


def test_the_loss_is_the_mean_of_both_cross_entropies_without_questions_that_have_no_answer() -> None:
    model, batch = make_task_model("questions"), make_batch("questions")
    batch["start_positions"][1] = batch["end_positions"][1] = batch["input_ids"].shape[1]
    output, kept = model(**batch), torch.tensor([0, 2])
    expected = nn.functional.cross_entropy(output.start_logits[kept], batch["start_positions"][kept])
    expected = expected + nn.functional.cross_entropy(output.end_logits[kept], batch["end_positions"][kept])
    assert_outputs_close(output.loss, expected / 2)


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


def test_a_context_without_words_has_no_answer() -> None:
    nothing = torch.full((1, 4), torch.finfo(torch.float32).min)
    answer = ElmoForQuestionAnswering.extract_answers(nothing, nothing, [[(0, 0), (0, 3), (0, 0), (0, 0)]], [" "])[0]
    assert answer[:3] == ("", 0, 0)
