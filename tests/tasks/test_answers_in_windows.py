"""Windows of long contexts and questions without an answer, labelled as scripts for SQuAD label them."""

import torch
from torch import Tensor
from transformers import BatchEncoding

from elmo_hf import extract_answers
from tests.helpers.task_models import LSTM, TOKENIZER, make_task_model

CONTEXT = "The ferry waited at the quay all night . At noon it left for the island , and nobody sang on the way home ."
QUESTIONS = ["When did it leave ?", "Where did it wait ?", "Who paid for it ?"]
ANSWERS = ["At noon", "the quay", None]


def windows(length: int, stride: int) -> tuple[BatchEncoding, Tensor, Tensor]:
    """Rows of at most `length` positions, the question of each, and first and last positions `(2, rows)` of answers.

    Both positions are 0 where a window does not have the whole answer.
    """
    rows = TOKENIZER(
        QUESTIONS,
        [CONTEXT] * len(QUESTIONS),
        truncation="only_second",
        max_length=length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=True,
        return_tensors="pt",
    )
    questions = rows.pop("overflow_to_sample_mapping")
    positions = torch.zeros(2, len(questions), dtype=torch.long)
    for row, question in enumerate(questions.tolist()):
        answer = ANSWERS[question]
        if answer is None:
            continue
        start = CONTEXT.index(answer)
        first = rows.char_to_token(row, start, sequence_index=1)
        last = rows.char_to_token(row, start + len(answer) - 1, sequence_index=1)
        if first is not None and last is not None:
            positions[:, row] = torch.tensor([first, last])
    return rows, questions, positions


def test_windows_and_questions_without_an_answer_are_learned_from_position_0() -> None:
    rows, questions, (starts, ends) = windows(length=20, stride=4)
    has_answer = starts > 0
    assert len(questions) > len(QUESTIONS)
    assert {*questions[has_answer].tolist()} == {0, 1}
    assert {*questions[~has_answer].tolist()} == {0, 1, 2}
    offsets = rows.pop("offset_mapping")
    model = make_task_model("questions", representation_dropout=0.0, **LSTM)
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], lr=0.05)
    layers = model.compute_bilm_layers(**rows)
    for _ in range(60):
        output = model(**rows, bilm_layers=layers, start_positions=starts, end_positions=ends)
        assert output.loss.isfinite()
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()

    with torch.no_grad():
        output = model(**rows)
    null_scores = output.start_logits[:, 0] + output.end_logits[:, 0]
    assert null_scores.tolist() == [0] * len(questions)
    contexts = [CONTEXT] * len(questions)
    answers = extract_answers(output.start_logits, output.end_logits, offsets, contexts, null_threshold=0.0)
    expected = [
        ANSWERS[question] if answered else ""
        for question, answered in zip(questions.tolist(), has_answer.tolist(), strict=True)
    ]
    assert [answer.text for answer in answers] == expected
    # Without a threshold every window has an answer.
    spans = extract_answers(output.start_logits, output.end_logits, offsets, contexts)
    assert all(span.text for span in spans)
