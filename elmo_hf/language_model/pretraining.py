"""What the package adds to `ElmoForPreTraining`, so that it also trains on streams (bilm-tf's `training.py`).

    windows of streams, as in bilm-tf's training (`streams.py`)
    full losses with their gradient, in blocks (`full_cross_entropy.py`)
    sampled losses in training, with `softmax="sampled"` (`sampled_softmax.py`)
    the log-probability of each word (`scoring.py`), and gaps (`cloze.py`)

A window goes through the biLM as one batch, in which each direction reads words of its own stream.

Deliberate difference from bilm-tf: a sampled loss has its own name and is never used in evaluation.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..model.language_model_elmo import ElmoForPreTraining, LanguageModelBatch, PackageParts
from ..model.layers_elmo import check_shape
from .cloze import PredictedWord, predict_words
from .full_cross_entropy import cross_entropy
from .sampled_softmax import Candidates, draw_candidates, sampled_losses
from .scoring import Scores, score
from .streams import IDS_OF


class PretrainingParts(PackageParts):
    """Streams, losses and scores; `public.py` gives them to `ElmoForPreTraining`."""

    def read_window(
        self, model: ElmoForPreTraining, sentences: Mapping[str, Tensor | None], window: Mapping[str, Tensor]
    ) -> LanguageModelBatch:
        """A window as the biLM reads it, with each target in the column that predicts it.

        Args:
            model: the language models.
            sentences: `attention_mask` and `labels`, which a window does not have.
            window: the arguments that are given of those in `streams.py`.

        Raises:
            ValueError: if there are arguments for sentences, too few or too many arguments, or a wrong shape.
        """
        names = model.direction_names
        _check_arguments(names, sentences, window)
        ids = torch.stack([window[IDS_OF[name]] for name in names])
        vectors, mask = model.elmo.embed_words(ids.flatten(0, 1))
        vectors = torch.cat(vectors.chunk(len(names)), dim=-1)
        mask = torch.ones_like(mask.chunk(len(names))[0])
        for name in names:
            for argument in (f"{name}_targets", f"{name}_resets"):
                if argument in window:
                    check_shape(argument, window[argument], mask.shape)
        targets = None
        if all(f"{name}_targets" in window for name in names):
            targets = [window[f"{name}_targets"] for name in names]
        resets = None
        if any(f"{name}_resets" in window for name in names):
            none = torch.zeros_like(mask)
            resets = [window.get(f"{name}_resets", none).bool() for name in names]
        return LanguageModelBatch(vectors, mask, targets, resets, columns_to_word=0)

    def full_loss(self, model: ElmoForPreTraining, hidden: Tensor, classes: Tensor) -> Tensor:
        """The summed cross-entropy `()` of outputs `(N, P)` and classes `(N,)`, in blocks."""
        weight, bias = model.output_table
        return cross_entropy(hidden, weight, bias, classes)

    def sampled_losses(
        self,
        model: ElmoForPreTraining,
        predictions: Sequence[tuple[Tensor, Tensor]],
        candidates: Sequence[Candidates] | None,
    ) -> list[Tensor]:
        """Each direction's sum of sampled losses; its words are drawn here if `candidates` is None."""
        weight, bias = model.output_table
        if candidates is None:
            num_samples = model.config.num_softmax_samples
            candidates = [draw_candidates(len(bias), num_samples, bias.device) for _ in predictions]
        hidden = [vectors for vectors, _ in predictions]
        classes = [classes for _, classes in predictions]
        return sampled_losses(weight, bias, hidden, classes, candidates)

    def score(
        self, model: ElmoForPreTraining, sentences: Iterable[Sequence[str]], tokenizer: Any, **options: Any
    ) -> Scores:
        """See `scoring.py`."""
        return score(model, sentences, tokenizer, **options)

    def predict_words(
        self, model: ElmoForPreTraining, tokenizer: Any, words: Sequence[str], *args: Any, **options: Any
    ) -> list[PredictedWord]:
        """See `cloze.py`."""
        return predict_words(model, tokenizer, words, *args, **options)


def _check_arguments(
    names: Sequence[str], sentences: Mapping[str, Tensor | None], window: Mapping[str, Tensor]
) -> None:
    """Raises ValueError unless the arguments are those of a window of the directions with these names."""
    ids = [IDS_OF[name] for name in names]
    allowed = {*ids, *(f"{name}_targets" for name in names), *(f"{name}_resets" for name in names)}
    of_sentences = {name for name, value in sentences.items() if value is not None}
    missing = {*ids} - window.keys()
    illegal = window.keys() - allowed
    wrong = sorted(of_sentences | missing | illegal)
    if wrong:
        raise ValueError(
            f"a window has `{'` and `'.join(ids)}`, targets and resets of each direction; wrong or missing: "
            f"`{'`, `'.join(wrong)}`. Sentences have `input_ids`, `attention_mask` and `labels`."
        )
