"""The words that fit a gap: cloze tests and substitutes.

Neither language model reads the word that it predicts. So one pass gives both distributions over the V words of the
softmax at place t of a sentence w_1 .. w_n, whatever word is there:

    forward(w)  = p(w | w_0 .. w_{t-1})              from the forward state after w_{t-1}
    backward(w) = p(w | w_{t+1} .. w_{n+1})          from the backward state after w_{t+1}
    both(w)     = forward(w) backward(w) / sum_v forward(v) backward(v)

The product ranks words well, but its probabilities are too sharp, because each factor contains the frequency of the
word, so that the frequency counts twice. (If both sides were independent given w, Bayes' rule would divide the product
by p(w), but no model folder has p(w).)

A gap is a word of three or more underscores. Several gaps are predicted one by one, each with the others read as
underscores. `<S>`, `</S>` and `<UNK>` keep their probability, but are answers only if they are candidates.

The pipeline `fill-mask` takes raw texts, in the form of transformers' `FillMaskPipeline`; its answers have the keys

    score       the probability, by default of the product of both directions
    token       the class of the word, its line in the vocabulary of the softmax, from 0
    token_str   the word
    sequence    the text with the word in the gap

Deliberate differences from the stock pipeline: `direction` chooses the language models; a target that is not a word of
the softmax is refused, where the stock one replaces it by another word.

Glossary: N gaps, T words with boundaries, V words of the softmax, D directions: 2, or 1 for a forward model alone.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Pipeline

from ..model.language_model_elmo import DIRECTIONS, ElmoForPreTraining
from ..model.tokenization_elmo import SPECIAL_WORDS, UNKNOWN_WORD, ElmoTokenizer
from .corpus import word_list
from .scoring import check_vocabulary, evaluating

GAP = re.compile("_{3,}")
BOTH = "both"


class PredictedWord(NamedTuple):
    """A word for a gap.

    Attributes:
        word: the word.
        probability: in the chosen direction, among all V words.
        word_class: its class, the line of the vocabulary, from 0.
        forward: its probability given the words before the gap.
        backward: its probability given the words after the gap; None if the model has only the forward direction.
    """

    word: str
    probability: float
    word_class: int
    forward: float
    backward: float | None


def gaps(words: Sequence[str]) -> list[int]:
    """The places of the gaps, such as `___`, from 0; raises ValueError if there is none."""
    places = [place for place, word in enumerate(word_list(words)) if GAP.fullmatch(word)]
    if not places:
        raise ValueError(f"there is no gap in {' '.join(words)[:80]!r}: write ___ in place of the word to predict.")
    return places


@torch.no_grad()
def gap_log_probs(
    model: ElmoForPreTraining, tokenizer: ElmoTokenizer, words: Sequence[str], places: Sequence[int]
) -> Tensor:
    """Log-probabilities `(D, N, V)` of every word at N places of a sentence, without dropout, from the zero state."""
    check_vocabulary(model, tokenizer)
    begin, end = tokenizer.boundaries
    text = [begin, *word_list(words), end]
    inputs = tokenizer([text], is_split_into_words=True, add_special_tokens=False, return_tensors="pt")
    with evaluating(model):
        output = model(**inputs.to(model.device), output_hidden_states=True, output_logits=False)
    halves = output.hidden_states[-1][0].split(model.config.projection_size, dim=-1)
    # With `<S>` in front, the word t is in column t + 1. The forward half predicts it from the column before, the
    # backward half, if there is one, from the column after.
    columns = torch.arange(1, len(words) + 1, device=model.device)[places]
    hidden = torch.stack([half[columns + step] for half, step in zip(halves, (-1, 1), strict=False)])
    weight, bias = model.output_table
    return nn.functional.linear(hidden, weight, bias).float().log_softmax(dim=-1)


def rank_words(
    log_probs: Tensor, tokenizer: ElmoTokenizer, top_k: int, candidates: Sequence[str] | None, direction: str
) -> list[list[PredictedWord]]:
    """The best words of each of N gaps, from the output `(D, N, V)` of `gap_log_probs`, as in `predict_words`."""
    scores = _normalised(log_probs, direction)
    classes = torch.from_numpy(_candidate_classes(tokenizer, candidates, scores.shape[-1])).to(scores.device)
    best = classes[scores[:, classes].topk(min(top_k, len(classes))).indices]  # (N, top_k)
    log_probs_of_best = torch.stack([table.gather(1, best) for table in (scores, *log_probs)])  # (1 + D, N, top_k)
    # The product of two small probabilities may be below what 32 bits can hold; not all devices have 64.
    probabilities = log_probs_of_best.cpu().double().exp()
    answers = []
    for gap, word_classes in enumerate(best.tolist()):
        words = tokenizer.class_words(word_classes)
        probability, forward, *others = probabilities[:, gap].tolist()
        backward = others[0] if others else [None] * len(words)
        fields = zip(words, probability, word_classes, forward, backward, strict=True)
        answers.append([PredictedWord(*values) for values in fields])
    return answers


def _normalised(log_probs: Tensor, direction: str) -> Tensor:
    """Log-probabilities `(N, V)` of one direction, or of the normalised product of all, out of `(D, N, V)`."""
    directions = {BOTH: log_probs.sum(dim=0)}
    for name, table in zip(DIRECTIONS, log_probs, strict=False):
        directions[name] = table
    if direction not in directions:
        raise ValueError(f"the direction must be one of {', '.join(directions)}, found {direction!r}.")
    return directions[direction].log_softmax(dim=-1)


def _candidate_classes(tokenizer: ElmoTokenizer, candidates: Sequence[str] | None, num_words: int) -> np.ndarray:
    """The classes `(C,)` of the candidates; without any, of all `num_words` words but `<S>`, `</S>` and `<UNK>`."""
    words = list(dict.fromkeys(word_list(candidates or ())))
    if not words:
        return np.setdiff1d(np.arange(num_words), tokenizer.word_classes(SPECIAL_WORDS))
    classes = tokenizer.word_classes(words)
    (unknown_class,) = tokenizer.word_classes([UNKNOWN_WORD])
    is_unknown = classes == unknown_class
    unknown = [word for word, flag in zip(words, is_unknown, strict=True) if flag and word != UNKNOWN_WORD]
    if unknown:
        raise ValueError(
            f"the softmax cannot predict {', '.join(map(repr, unknown[:5]))}: {len(unknown)} of {len(words)} "
            f"candidates are not among its {tokenizer.num_word_classes:,} words."
        )
    return classes


def predict_words(
    model: ElmoForPreTraining,
    tokenizer: ElmoTokenizer,
    words: Sequence[str],
    position: int | None = None,
    *,
    top_k: int = 5,
    candidates: Sequence[str] | None = None,
    direction: str = BOTH,
) -> list[PredictedWord]:
    """The words that fit one place of a sentence, by falling probability.

    Args:
        model: language models with their softmax.
        tokenizer: their tokenizer, with the words of the softmax.
        words: the sentence without boundaries.
        position: the place, from 0; the word there is not read. None means the first gap, `___`.
        top_k: how many words to return.
        candidates: the words to choose from; without any, all but `<S>`, `</S>` and `<UNK>`.
        direction: `"both"` (the product of both distributions, normalised), `"forward"` or `"backward"`; with a model
            of one direction `"both"` is the forward one.

    Raises:
        ValueError: if the words are a string, or have no gap and no `position` is given; if the words of tokenizer and
            softmax differ, or a candidate is not a word of the softmax; if the model lacks the direction.
    """
    if position is None:
        position = gaps(words)[0]
    log_probs = gap_log_probs(model, tokenizer, words, [position])
    return rank_words(log_probs, tokenizer, top_k, candidates, direction)[0]


class ElmoFillMaskPipeline(Pipeline):
    """Fills the gaps of texts with words."""

    _load_tokenizer = True
    _load_processor = _load_image_processor = _load_feature_extractor = False

    def __call__(self, inputs: str | list[str], **kwargs: Any) -> Any:
        """Returns a list of answers for a text with one gap, or a list of such lists for several gaps.

        Args:
            inputs: a text, or a list of texts; the result for several texts is a list with an entry for each.
            **kwargs: `top_k` (default 5), how many words; `targets`, the words to choose from; `direction`, `"both"`
                (default), `"forward"` or `"backward"`.

        Raises:
            ValueError: if a text has no gap, or a target is not a word of the softmax.
        """
        if isinstance(inputs, str):
            return super().__call__(inputs, **kwargs)
        answers = [super(ElmoFillMaskPipeline, self).__call__(text, **kwargs) for text in inputs]
        return answers[0] if len(answers) == 1 else answers

    def _sanitize_parameters(
        self, top_k: int | None = None, targets: str | list[str] | None = None, direction: str | None = None
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if isinstance(targets, str):
            targets = [targets]
        options = {"top_k": top_k, "candidates": targets, "direction": direction}
        return {}, {}, {name: value for name, value in options.items() if value is not None}

    def preprocess(self, text: str) -> dict[str, Any]:
        """The words of a text, and their places in it."""
        offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return {"text": text, "offsets": offsets, "words": [text[start:end] for start, end in offsets]}

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        places = gaps(model_inputs["words"])
        log_probs = gap_log_probs(self.model, self.tokenizer, model_inputs["words"], places)
        return model_inputs | {"places": places, "log_probs": log_probs}

    def postprocess(
        self, outputs: dict[str, Any], top_k: int = 5, candidates: list[str] | None = None, direction: str = BOTH
    ) -> list[Any]:
        """The answers for each gap."""
        answers = []
        ranked = rank_words(outputs["log_probs"], self.tokenizer, top_k, candidates, direction)
        for place, words in zip(outputs["places"], ranked, strict=True):
            start, end = outputs["offsets"][place]
            before, behind = outputs["text"][:start], outputs["text"][end:]
            answers.append(
                [
                    {
                        "score": word.probability,
                        "token": word.word_class,
                        "token_str": word.word,
                        "sequence": before + word.word + behind,
                    }
                    for word in words
                ]
            )
        return answers[0] if len(answers) == 1 else answers
