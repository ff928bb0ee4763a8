"""Windows of streams as batches of the biLM (bilm-tf's `training.py`).

A window is T words of each of B endless rows of sentences without padding, see `streams.py`. In training each direction
reads rows of its own text. The biLM reads a forward and a backward half anyway, so the windows of both directions are
one batch, whose halves come from different words.

A model takes a window by these names, all in text order, so the last column of the backward ones is read first:

    input_ids, backward_input_ids       `(B, T, C)` or `(B, T)`; a model of one direction has no backward ones
    forward_targets                     `(B, T)`, the class of the word after each of `input_ids`; -100 for none
    backward_targets                    `(B, T)`, the class of the word before each of `backward_input_ids`
    forward_resets, backward_resets     `(B, T)`, True on words before which the direction's state is set to zero

Glossary: D directions, B rows, T words of a window, C characters per word, P projection.
"""

import torch
from torch import Tensor

from ..model.inputs import check_shape
from .corpus import Corpus
from .sentence_model import DIRECTIONS, ElmoForPreTraining
from .streams import Window

# Arguments that make a batch a window of streams.
OF_WINDOWS = ("backward_input_ids", *(f"{name}_{what}" for name in DIRECTIONS for what in ("targets", "resets")))


def window_arguments(corpus: Corpus, *windows: Window, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Turns the windows of all directions, forward first, into arguments of `ElmoForPreTraining`."""
    arrays = {}
    for name, ids, window in zip(DIRECTIONS, ("input_ids", "backward_input_ids"), windows, strict=False):
        arrays[ids] = corpus.ids[window.inputs]
        arrays[f"{name}_targets"] = corpus.classes[window.targets]
        if window.resets.any():
            arrays[f"{name}_resets"] = window.resets
    return {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}


def read_window(
    model: ElmoForPreTraining, given: dict[str, Tensor]
) -> tuple[Tensor, Tensor, list[Tensor | None], list[Tensor] | None]:
    """What `ElmoForPreTraining.read` returns, of a window; `given` are the arguments by name that are not None.

    Raises:
        ValueError: if an argument is of sentences or of a direction that is missing, or a shape is wrong.
    """
    names = DIRECTIONS[: model.config.num_directions]
    streams = ["input_ids", "backward_input_ids"][: len(names)]
    expected = {*streams, *(f"{name}_{what}" for name in names for what in ("targets", "resets"))}
    wrong = sorted(given.keys() - expected | {*streams} - given.keys())
    if wrong:
        raise ValueError(
            f"a window has `{'` and `'.join(streams)}`, maybe targets and resets of each direction, and nothing else; "
            f"wrong or missing: `{'`, `'.join(wrong)}`. Sentences have `input_ids`, `attention_mask` and `labels`."
        )
    shapes = [tuple(given[name].shape) for name in streams]
    if len(set(shapes)) > 1:
        raise ValueError(f"`{'` and `'.join(streams)}` must have one shape, found {shapes[0]} and {shapes[1]}.")
    vectors, mask = model.elmo.embed_words(torch.cat([given[name] for name in streams]))
    vectors, mask = torch.cat(vectors.chunk(len(streams)), dim=-1), torch.ones_like(mask[: len(given["input_ids"])])
    for name in given.keys() - {*streams}:
        check_shape(name, given[name], mask.shape)
    resets = [given.get(f"{name}_resets", torch.zeros_like(mask)).bool() for name in names]
    is_reset = any(f"{name}_resets" in given for name in names)
    return vectors, mask, [given.get(f"{name}_targets") for name in names], resets if is_reset else None
