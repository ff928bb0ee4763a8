"""Finds the answer to a question as a span of words in a context, or that the context has none.

    q_j, c_i    encoded words of the question and the context, which the biLM reads separately
    s_ij        = w_q . q_j + w_qc . (q_j . c_i)                         Seo et al. (2017), equation 1
    a_i         = sum_j softmax_j(s_ij) q_j                              the question, weighted for word i
    g_i         = [c_i; a_i; |c_i - a_i|; c_i . a_i]
    start, end  = W m_i + b,    m = LSTM(g) in both directions with `task_encoder="lstm"`, else g
    start_0     = end_0 = 0                                              no answer, at the first `<S>` of the row
    loss        = (-log softmax(start)[first word] - log softmax(end)[last word]) / 2       mean over questions
    null odds   = start_0 + end_0 - max (start_i + end_j)                over all spans i <= j < i + max_answer_words

The answer is the span with the largest start_i + end_j. Each softmax runs over the words of the context and "no
answer". A softmax does not change if the same number is added to all its logits, so b, minus itself, is the learned
logit of "no answer" that Levy et al. (2017) append to those of BiDAF.

Glossary: B batch, T positions of a row, Q words of the longest question or context, D width of an encoded word.

Deliberate differences from the paper's BiDAF: attention goes from context to question only, without the term for c_i
alone, which would cancel in the softmax; start and end are predicted in the same way. From other models of
transformers: outside the context, only the first `<S>` has a logit, and all others are the lowest number; the loss
refuses a label before the context, and leaves out one after it and -100, which other models read as position 0.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from ..model.configuration_elmo import ElmoConfig
from ..model.inputs import IGNORED, check_shape, may_depend_on_data
from ..model.modeling_elmo import can_return_tuple
from .task_encoder import BiLSTM, compare
from .task_model import ElmoTaskModel

# The lowest number of the narrowest type: a logit that is not above it masks a position.
LOWEST = torch.finfo(torch.float16).min


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
    """A span `context[start:end]`; `score` is the product of the probabilities of its first and last word.

    "No answer" has an empty text, from 0 to 0; its score is the product of its two probabilities.
    """

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
    null_threshold: float | None = None,
) -> list[Answer]:
    """Finds the best answer in each of B contexts; a context without words has no answer, with score 0.

    Args:
        start_logits: `(B, T)`, the model's.
        end_logits: `(B, T)`, the model's.
        offset_mapping: `(B, T, 2)`, the tokenizer's (`return_offsets_mapping=True`).
        contexts: the B contexts.
        max_answer_words: length of the longest answer.
        null_threshold: for a model that was trained with questions without an answer: if the null odds are larger than
            this (0 in SQuAD 2's evaluation), there is no answer; probabilities then include that of no answer. None:
            every context with words has an answer.

    Raises:
        ValueError: if a threshold is given, and a row has no logit for no answer.
    """
    answers: list[Answer] = []
    for start, end, offsets, context in zip(start_logits, end_logits, offset_mapping, contexts, strict=True):
        logits = torch.stack([torch.as_tensor(start), torch.as_tensor(end)]).float()
        is_masked = logits[0] <= LOWEST
        positions = (~is_masked).nonzero().flatten().tolist()
        words = [position for position in positions if _is_word(offsets[position])]
        nulls = [position for position in positions if not _is_word(offsets[position])]
        if null_threshold is None:
            nulls = []
        elif not nulls:
            raise ValueError(
                f"`null_threshold` needs a logit for no answer at the first `<S>`, found none in row {len(answers)}. "
                "The package's `ElmoForQuestionAnswering` gives one; without a threshold every question has an answer."
            )
        if not words:
            answers.append(Answer("", 0, 0, 1.0 if nulls else 0.0))
            continue
        log_probs = logits[:, words + nulls].log_softmax(dim=1)
        first, last = _best_span(log_probs[:, : len(words)], max_answer_words)
        score = log_probs[0, first] + log_probs[1, last]
        if null_threshold is not None:
            null_score = log_probs[:, -1].sum()
            if null_score - score > null_threshold:
                answers.append(Answer("", 0, 0, null_score.exp().item()))
                continue
        begin, stop = int(offsets[words[first]][0]), int(offsets[words[last]][1])
        answers.append(Answer(context[begin:stop], begin, stop, score.exp().item()))
    return answers


def _best_span(log_probs: Tensor, max_words: int) -> tuple[int, int]:
    """The first and last word of the best span, from log-probabilities `(2, W)` of the first and the last word."""
    scores = log_probs[0].unsqueeze(1) + log_probs[1]
    is_span = torch.ones_like(scores, dtype=torch.bool).triu().tril(max_words - 1)
    return divmod(int(scores.masked_fill(~is_span, -torch.inf).argmax()), len(scores))


def _is_word(offset: Any) -> bool:
    """Whether a position is a word; scripts put None in place of the offsets of positions outside the context."""
    return offset is not None and int(offset[0]) < int(offset[1])


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

        `start_positions` and `end_positions` `(B,)` are the positions of the answer's first and last word. 0, or the
        position of the row's first `<S>`, means that the context has no answer. The loss leaves out -100 and positions
        after the last word of the context, which transformers' `run_qa.py` gives to an answer that begins with this
        word; if it leaves out everything, it is 0.

        Raises:
            ValueError: as in `encode_texts`, or if another position is before the context.
        """
        inputs_embeds = kwargs.get("inputs_embeds")
        texts = self.encode_texts(input_ids, attention_mask, bilm_layers, inputs_embeds, word_vector_ids, marks)
        question, context = texts.rows.split(texts.vectors)
        question_mask, context_mask = texts.rows.split(texts.rows.mask)
        vectors = self.dropout(compare(context, self.attention(context, question, question_mask)))
        if self.lstm is not None:
            vectors = self.lstm(vectors, context_mask)
        logits = self.qa_outputs(vectors)
        # Zero outside the context, where only the place of "no answer" keeps its logit.
        logits = texts.rows.put_back(torch.cat([torch.zeros_like(logits), logits]))
        is_context = texts.rows.masks[1]
        has_logit = is_context | texts.is_first
        logits = logits.masked_fill(~has_logit.unsqueeze(-1), torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            starts = _targets("start_positions", start_positions, is_context, texts.is_first)
            ends = _targets("end_positions", end_positions, is_context, texts.is_first)
            loss = (_cross_entropy(start_logits, starts) + _cross_entropy(end_logits, ends)) / 2 + self.mix_penalty()
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=self.layers_wanted(texts.layers, output_hidden_states),
        )


def _targets(name: str, positions: Tensor, is_context: Tensor, is_first: Tensor) -> Tensor:
    """Maps a caller's positions to those of the loss, `(B,)`: the first `<S>` in place of 0, -100 for what is left out.

    `is_context` and `is_first` `(B, T)` are True on the words of the context and on the first `<S>` of each row.
    """
    batch_size, num_positions = is_context.shape
    # Data that was split for several GPUs has one more axis.
    positions = positions.squeeze(-1) if positions.dim() == 2 else positions
    check_shape(name, positions, (batch_size,))
    positions = positions.to(is_context.device).long()
    first = is_first.int().argmax(dim=1)
    places = torch.arange(num_positions, device=is_context.device)
    last_word = torch.where(is_context, places, -1).amax(dim=1)

    is_null = (positions == 0) | (positions == first)
    is_left_out = (positions == IGNORED) | (positions > last_word)
    is_word = is_context.gather(1, positions.clamp(0, num_positions - 1).unsqueeze(1)).squeeze(1)
    _refuse_illegal(name, positions, is_null | is_left_out | is_word)
    return torch.where(is_null, first, positions.masked_fill(is_left_out, IGNORED))


@torch.compiler.disable
def _refuse_illegal(name: str, positions: Tensor, is_legal: Tensor) -> None:
    if not may_depend_on_data():
        return
    for row in (~is_legal).nonzero().flatten()[:1].tolist():
        raise ValueError(
            f"`{name}` must be positions of words of the context, 0 for no answer, or -100 to leave a question out of "
            f"the loss, found {positions[row].item()} in row {row}, before the context, which is the row's second text "
            "(`sequence_index=1` in `char_to_token`)."
        )


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(logits `(B, T)`)[target `(B,)`] in float32 at least; -100 is left out, 0 if all are."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    total = nn.functional.cross_entropy(logits.to(wide), targets, ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum().clamp(min=1)
