"""The language models in training, as the package has them (bilm-tf's `training.py`).

They read sentences by the full softmax, as `sentence_model.py` does, and besides

    windows     of streams (`windows.py`), which is bilm-tf's training
    sampled     losses in training, with `softmax="sampled"` (`sampled_softmax.py`)
    scores      the log-probability of each word (`scoring.py`), and gaps (`cloze.py`)

Deliberate difference from bilm-tf: a sampled loss has a name of its own and never occurs in evaluation.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ..model.inputs import IGNORED
from . import sentence_model
from .sampled_softmax import Candidates, draw_candidates, sampled_losses
from .sentence_model import Read
from .windows import OF_WINDOWS, read_window


class ElmoForPreTraining(sentence_model.ElmoForPreTraining):
    """The biLM with one softmax over words on top of all directions (`LanguageModel` in bilm-tf's `training.py`).

    `forward` takes these arguments too:

    Args:
        backward_input_ids, targets and resets: those of a window of streams, see `windows.py`.
        candidates: for the sampled softmax, the words drawn for each direction; None draws them.
        output_log_probs: whether to return log-probabilities, from the exact softmax.

    Raises:
        ValueError: if labels or targets do not fit the way of calling, or a shape is wrong.
    """

    def read(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, **kwargs: Any) -> Read:
        """The batch as the biLM reads it: sentences, or a window."""
        window = {name: kwargs[name] for name in OF_WINDOWS if kwargs.get(name) is not None}
        if not window:
            return super().read(input_ids, attention_mask, labels)
        window |= {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}
        return read_window(self, {name: value for name, value in window.items() if value is not None})

    def losses(
        self,
        hidden: dict[str, Tensor],
        targets: list[Tensor | None],
        candidates: Sequence[Candidates] | None = None,
        output_log_probs: bool = False,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Losses, if all directions have targets, and log-probabilities `(B, T)` of the targets, by name."""
        is_sampled = self.training and self.config.softmax == "sampled"
        if not (is_sampled or output_log_probs):
            return super().losses(hidden, targets)
        softmax, weight = self.softmax, self._shared_weight
        output: dict[str, Tensor] = {}
        chosen: dict[str, tuple[Tensor, Tensor]] = {}
        totals: list[Tensor] = []
        # A sentence's log-probabilities move from the state to the word predicted.
        distance = 0 if any(kwargs.get(name) is not None for name in OF_WINDOWS) else 1
        for (name, vectors), classes in zip(hidden.items(), targets, strict=False):
            if classes is None:
                continue
            is_predicted = classes != IGNORED
            chosen[name] = vectors[is_predicted], classes[is_predicted].long()
            if output_log_probs:
                log_probs = softmax.log_probs(*chosen[name], weight)
                totals.append(-log_probs.sum())
                log_probs = log_probs.new_zeros(classes.shape).masked_scatter(is_predicted, log_probs)
                output[f"{name}_log_probs"] = log_probs.roll(distance if name == "forward" else -distance, dims=1)
        if len(chosen) == len(hidden):
            if is_sampled:
                sizes = len(softmax.bias), self.config.num_softmax_samples
                candidates = candidates or [draw_candidates(*sizes, softmax.bias.device) for _ in hidden]
                states, words = ([pair[which] for pair in chosen.values()] for which in (0, 1))
                totals = sampled_losses(softmax, states, words, candidates, weight)
            means = [total / max(len(classes), 1) for total, (_, classes) in zip(totals, chosen.values(), strict=True)]
            names = [f"{'sampled_' if is_sampled else ''}{name}_loss" for name in chosen]
            output |= dict(zip(names, means, strict=True)) | {"loss": torch.stack(means).mean()}
        return output

    def score(
        self, sentences: Iterable[Sequence[str]], tokenizer: Any, *, carries_state: bool = False, num_rows: int = 32
    ) -> Any:
        """Log-probabilities, surprisals and perplexities of a text: `scoring.score`."""
        rows = num_rows if carries_state else None
        return import_module("elmo_hf.language_model.scoring").score(self, sentences, tokenizer, rows)

    def predict_words(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The words that fit a gap: `elmo_hf.predict_words(model, tokenizer, words, ...)`."""
        return import_module("elmo_hf.language_model.cloze").predict_words(self, *args, **kwargs)
