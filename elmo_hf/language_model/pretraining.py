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
from .windows import OF_WINDOWS, read_window


class ElmoForPreTraining(sentence_model.ElmoForPreTraining):
    """The biLM with one softmax over words on top of all directions (`LanguageModel` in bilm-tf's `training.py`).

    `forward` takes these arguments too:

    Args:
        backward_input_ids, targets and resets: those of a window of streams, see `windows.py`.
        candidates: for the sampled softmax, the words drawn for each direction; None draws them.

    Raises:
        ValueError: if labels or targets do not fit the way of calling, or a shape is wrong.
    """

    def require_package(self, arguments: dict[str, Any]) -> None:
        """Does nothing, because this is the package's class."""

    def read(self, input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, **kwargs: Any) -> Any:
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
        output_log_probs: bool = False,
        distance: int = 1,
        candidates: Sequence[Candidates] | None = None,
        **kwargs: Any,
    ) -> dict[str, Tensor]:
        """Losses and log-probabilities by name; in training with a sampled softmax, losses are sampled ones.

        The targets of a window are words of their own, so its log-probabilities stay in the column of the state.
        """
        if any(kwargs.get(name) is not None for name in OF_WINDOWS):
            distance = 0
        if not self.training or self.config.softmax == "full":
            return super().losses(hidden, targets, output_log_probs, distance)
        output = super().losses(hidden, targets, output_log_probs, distance) if output_log_probs else {}
        output = {name: each for name, each in output.items() if name.endswith("log_probs")}
        softmax, chosen = self.softmax, {}
        for (name, vectors), classes in zip(hidden.items(), targets, strict=False):
            if classes is not None:
                is_predicted = classes != IGNORED
                chosen[name] = vectors[is_predicted], classes[is_predicted].long()
        if len(chosen) < len(hidden):
            return output
        sizes = len(softmax.bias), self.config.num_softmax_samples
        candidates = candidates or [draw_candidates(*sizes, softmax.bias.device) for _ in hidden]
        states, words = ([pair[which] for pair in chosen.values()] for which in (0, 1))
        totals = sampled_losses(softmax, states, words, candidates, self._shared_weight)
        means = [total / max(len(classes), 1) for total, classes in zip(totals, words, strict=True)]
        output |= dict(zip([f"sampled_{name}_loss" for name in chosen], means, strict=True))
        return output | {"loss": torch.stack(means).mean()}

    def score(
        self, sentences: Iterable[Sequence[str]], tokenizer: Any, *, carries_state: bool = False, num_rows: int = 32
    ) -> Any:
        """Log-probabilities, surprisals and perplexities of a text: `scoring.score`."""
        rows = num_rows if carries_state else None
        return import_module("elmo_hf.language_model.scoring").score(self, sentences, tokenizer, rows)

    def predict_words(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The words that fit a gap: `elmo_hf.predict_words(model, tokenizer, words, ...)`."""
        return import_module("elmo_hf.language_model.cloze").predict_words(self, *args, **kwargs)
