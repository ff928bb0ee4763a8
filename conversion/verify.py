"""Compares a folder with the numbers that were published for the official weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .published_cards import CARDS, SIZES
from .witness.reference_outputs import STREAMS, TOLERANCE, Check, Stream


@dataclass(frozen=True)
class Outcome:
    """The result of one check, given by its worst number.

    Attributes:
        stream: the stream of the check.
        check: the check.
        expected: the published number with the largest difference.
        found: the folder's number in its place.
    """

    stream: Stream
    check: Check
    expected: float
    found: float

    @property
    def difference(self) -> float:
        """The absolute difference; NaN if the folder gives NaN."""
        return abs(self.expected - self.found)

    @property
    def agrees(self) -> bool:
        """Whether float32 and the printed digits explain the difference."""
        return self.difference <= TOLERANCE


def candidates(config: Any) -> list[str]:
    """Lists the published models of a config's sizes that have published outputs.

    Raises:
        ValueError: if there are none.
    """
    names = [name for name in dict.fromkeys(stream.model for stream in STREAMS) if _has_sizes(config, name)]
    if not names:
        known = ", ".join(dict.fromkeys(stream.model for stream in STREAMS))
        raise ValueError(
            f"no outputs are published for a model with cell {config.cell_size} and projection "
            f"{config.projection_size}; there are some for {known}."
        )
    return names


def verify(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str) -> Iterator[Outcome]:
    """Compares a model with all numbers published for `name`, a key of `PUBLISHED`."""
    for stream in STREAMS:
        if stream.model == name:
            layers = embed_stream(model, tokenizer, stream.sentences)
            for check in stream.checks:
                expected, found = np.array(check.expected), check.measure(layers)
                worst = int(np.argmax(np.abs(expected - found)))  # finds a NaN too
                yield Outcome(stream, check, float(expected[worst]), float(found[worst]))


@torch.no_grad()
def embed_stream(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]
) -> list[np.ndarray]:
    """Embeds sentences in turn, passing the state on: `(L+1, n, 2P)` each, without boundaries."""
    state, layers = None, []
    for sentence in sentences:
        inputs = tokenizer([sentence.split(" ")], is_split_into_words=True, return_tensors="pt").to(model.device)
        output = model(**inputs, state=state, output_hidden_states=True)
        state = output.state
        layers.append(torch.stack(output.hidden_states)[:, 0, 1:-1].float().cpu().numpy())
    return layers


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Formats one line for each check, with its worst number."""
    rows = [("check", "published", "found", "difference", "")]
    for outcome in outcomes:
        verdict = "agrees" if outcome.agrees else "differs"
        if not outcome.stream.is_decisive:
            verdict += " (another export)"
        numbers = (f"{outcome.expected:.6f}", f"{outcome.found:.6f}", f"{outcome.difference:.1e}")
        rows.append((outcome.check.name, *numbers, verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *numeric, _ = widths
    return [
        "  ".join([name.ljust(first), *(cell.rjust(w) for cell, w in zip(cells, numeric, strict=True)), verdict])
        for name, *cells, verdict in rows
    ]


def _has_sizes(config: Any, name: str) -> bool:
    size = next(card.size for card in CARDS.values() if card.model == name)
    return size is not None and all(getattr(config, field) == value for field, value in SIZES[size].items())
