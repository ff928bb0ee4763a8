"""Finds the answer to a question as a span of words in a context.

    q_j, c_i    encoded words of the question and the context, which the biLM reads separately
    s_ij        = w_q . q_j + w_qc . (q_j . c_i)                         Seo et al. (2017), equation 1
    a_i         = sum_j softmax_j(s_ij) q_j                              the question, weighted for word i
    g_i         = [c_i; a_i; |c_i - a_i|; c_i . a_i]
    start, end  = W m_i + b,    m = LSTM(g) in both directions with `task_encoder="lstm"`, else g

The answer is the span i <= j < i + max_answer_words with the largest start_i + end_j.

Glossary: B batch, T positions of a row, Q words of the longest question or context, D width of an encoded word.

Deliberate differences from the paper's BiDAF: attention goes from context to question only, without the term for c_i
alone, which would cancel in the softmax; start and end are predicted in the same way. Unlike in other models of
transformers, logits outside the context are the lowest number, and the loss ignores questions without an answer.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from ..model.configuration_elmo import ElmoConfig
from ..model.modeling_elmo import can_return_tuple
from .task_encoder import BiLSTM, compare
from .task_model import ElmoTaskModel


class QuestionAttention(nn.Module):
    """Attends from each word of the context to the question."""

    def __init__(self, size: int) -> None:
        """Takes the vectors' size D."""
        super().__init__()
        self.question = nn.Linear(size, 1, bias=False)
        self.product = nn.Linear(size, 1, bias=False)

    def forward(self, context: Tensor, question: Tensor, question_mask: Tensor) -> Tensor:
        """Maps contexts and questions `(B, Q, D)` with mask `(B, Q)` to a_i `(B, Q, D)`, zero for an empty question."""
        product = (context * self.product.weight) @ question.transpose(1, 2)  # (B, Q, Q): context by question
        similarity = product + self.question(question).transpose(1, 2)
        weights = similarity.masked_fill(~question_mask.unsqueeze(1), torch.finfo(similarity.dtype).min).softmax(dim=-1)
        return weights @ question.masked_fill(~question_mask.unsqueeze(-1), 0)


class Answer(NamedTuple):
    """A span `context[start:end]`; `score` is the product of the probabilities of its first and last word."""

    text: str
    start: int
    end: int
    score: float


def extract_answers(
    start_logits: Tensor,
    end_logits: Tensor,
    offset_mapping: Tensor | Sequence[Any],
    contexts: Sequence[str],
    max_answer_words: int = 30,
) -> list[Answer]:
    """Finds the best answer in each of B contexts; an answer's text is empty if the context has no words.

    The logits `(B, T)` are the model's, `offset_mapping` `(B, T, 2)` the tokenizer's (`return_offsets_mapping=True`).
    """
    answers = []
    for start, end, offsets, context in zip(start_logits, end_logits, offset_mapping, contexts, strict=True):
        starts, ends = (torch.as_tensor(logits).float().log_softmax(dim=0) for logits in (start, end))
        scores = starts.unsqueeze(1) + ends
        is_span = torch.ones_like(scores, dtype=torch.bool).triu().tril(max_answer_words - 1)
        first, last = divmod(int(scores.masked_fill(~is_span, -torch.inf).argmax()), len(ends))
        begin, stop = int(offsets[first][0]), int(offsets[last][1])
        answers.append(Answer(context[begin:stop], begin, stop, scores[first, last].exp().item()))
    return answers


class ElmoForQuestionAnswering(ElmoTaskModel):
    """Finds answers to questions; each row is `tokenizer(question, context)`."""

    num_texts = 2
    extract_answers = staticmethod(extract_answers)

    def __init__(self, config: ElmoConfig) -> None:
        """Initialises random weights."""
        super().__init__(config)
        size = self.task_encoder.output_size
        self.attention = QuestionAttention(size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.lstm = BiLSTM(4 * size, config.task_hidden_size) if config.task_encoder == "lstm" else None
        self.qa_outputs = nn.Linear(4 * size if self.lstm is None else 2 * config.task_hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        bilm_layers: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        word_vector_ids: Tensor | None = None,
        marks: Tensor | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Returns `start_logits` and `end_logits` `(B, T)`; other arguments are those of `ElmoTaskModel.forward`.

        `start_positions` and `end_positions` `(B,)` are the positions of the answer's first and last word; T or more
        means that there is no answer.
        """
        inputs_embeds = kwargs.get("inputs_embeds")
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, inputs_embeds, word_vector_ids, marks)
        question, context = texts.rows.split(texts.vectors)
        question_mask, context_mask = texts.rows.split(texts.rows.mask)
        vectors = self.dropout(compare(context, self.attention(context, question, question_mask)))
        if self.lstm is not None:
            vectors = self.lstm(vectors, context_mask)
        logits = self.qa_outputs(vectors)
        # Questions have no logits.
        logits = texts.rows.put_back(torch.cat([torch.zeros_like(logits), logits]))
        logits = logits.masked_fill(~texts.rows.masks[1].unsqueeze(-1), torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(start_logits, end_logits, start_positions, end_positions) + self.mix_penalty()
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=self.layers_wanted(texts.layers, output_hidden_states),
        )
