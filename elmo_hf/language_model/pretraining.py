"""The language models of the package, which also train on streams (bilm-tf's `training.py`).

They score sentences with the full softmax, like `model/language_model_elmo.py`, and add

    windows of streams, as in bilm-tf's training (`streams.py`)
    full losses with their gradient, in blocks (`full_cross_entropy.py`)
    sampled losses in training, with `softmax="sampled"` (`sampled_softmax.py`)
    the log-probability of each word (`scoring.py`), and gaps (`cloze.py`)

A window goes through the biLM as one batch, in which each direction reads words of its own stream.

Deliberate difference from bilm-tf: a sampled loss has its own name and is never used in evaluation.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..model import language_model_elmo
from ..model.language_model_elmo import DIRECTIONS
from ..model.layers_elmo import check_shape
from .cloze import predict_words
from .full_cross_entropy import cross_entropy
from .sampled_softmax import Candidates, draw_candidates, sampled_losses
from .scoring import score

# Arguments that make a batch a window of streams.
OF_WINDOWS = ("backward_input_ids", *(f"{name}_{what}" for name in DIRECTIONS for what in ("targets", "resets")))


class ElmoForPreTraining(language_model_elmo.ElmoForPreTraining):
    """The biLM with one softmax over words on top of all directions (`LanguageModel` in bilm-tf's `training.py`).

    `forward` takes these arguments too:

    Args:
        backward_input_ids, targets and resets: the arguments of a window of streams, see `streams.py`.
        candidates: for the sampled softmax, the words drawn for each direction; None draws them.

    Raises:
        ValueError: if a window has arguments for sentences, too few or too many arguments, or a wrong shape.
    """

    def require_package(self, *_: Any, **__: Any) -> None:
        """Does nothing, because this is the package's class."""

    def read(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, **kwargs: Any) -> Any:
        """The batch as the biLM reads it: sentences, or a window, with each target in the column that predicts it."""
        given = {"input_ids": input_ids} | {name: kwargs[name] for name in OF_WINDOWS if kwargs.get(name) is not None}
        if len(given) == 1:
            return super().read(input_ids, attention_mask, labels)
        names = DIRECTIONS[: self.config.num_directions]
        streams = ["input_ids", "backward_input_ids"][: len(names)]
        of_sentences = {"attention_mask": attention_mask, "labels": labels}
        wrong = {name for name, value in of_sentences.items() if value is not None} | {*streams} - given.keys()
        wrong |= given.keys() - {*streams, *(f"{name}_{what}" for name in names for what in ("targets", "resets"))}
        if wrong:
            raise ValueError(
                f"a window has `{'` and `'.join(streams)}`, targets and resets of each direction; wrong or missing: "
                f"`{'`, `'.join(sorted(wrong))}`. Sentences have `input_ids`, `attention_mask` and `labels`."
            )
        vectors, mask = self.elmo.embed_words(torch.stack([given.pop(name) for name in streams]).flatten(0, 1))
        vectors, mask = torch.cat(vectors.chunk(len(names)), dim=-1), torch.ones_like(mask.chunk(len(names))[0])
        for name, value in given.items():
            check_shape(name, value, mask.shape)
        resets = [given.get(f"{name}_resets", torch.zeros_like(mask)).bool() for name in names]
        is_reset = any(f"{name}_resets" in given for name in names)
        has_targets = all(f"{name}_targets" in given for name in names)
        targets = [given[f"{name}_targets"] for name in names] if has_targets else None
        return vectors, mask, targets, resets if is_reset else None, 0

    def totals(
        self,
        chosen: dict[str, tuple[Tensor, Tensor]],
        exact: dict[str, Tensor],
        candidates: Sequence[Candidates] | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Sums the folder class's losses in less memory, or in training with `softmax="sampled"` the sampled losses."""
        weight, bias = self.output_table
        if self.training and self.config.softmax == "sampled":
            sizes = len(bias), self.config.num_softmax_samples
            candidates = candidates or [draw_candidates(*sizes, bias.device) for _ in chosen]
            hidden, classes = zip(*chosen.values(), strict=True)
            losses = sampled_losses(weight, bias, hidden, classes, candidates)
            return dict(zip([f"sampled_{name}_loss" for name in chosen], losses, strict=True))
        if exact or torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return super().totals(chosen, exact)
        return {
            f"{name}_loss": cross_entropy(vectors, weight, bias, classes) for name, (vectors, classes) in chosen.items()
        }

    score = score
    predict_words = predict_words
