"""A loop over words as one operator of an exported graph, so that one graph serves every length.

    (s_t, y_t) = step(s_{t-1}, x_t)        t = 1 .. T, or from T down to 1

In eager mode it is a Python loop. `torch.export` would unroll that loop and make one graph for each length T; torch's
scan operator holds the step once.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .private_names import scan_operator

State = tuple[Tensor, ...]
# For annotations of nested functions, where torch.compile cannot read `tuple[State, Tensor]`.
Stepped = tuple[State, Tensor]


def is_exporting() -> bool:
    """Whether a graph is being exported. An exported graph must be one; `torch.compile` may make several."""
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def scan_words(step: Callable[[State, State], Stepped], state: State, words: State, reverse: bool = False) -> Stepped:
    """Runs `step` over the T > 0 words, given as tensors `(T, ...)`, from the last word to the first if `reverse`.

    `step` maps the state and one word's tensors to the next state and the word's output. Returns the state after the
    last word read, and the outputs `(T, ...)` in text order.
    """
    if is_exporting():

        def separate_step(state: State, word: State) -> Stepped:
            state, output = step(state, word)
            return state, output.clone()  # the operator refuses an output that is part of the state

        # Two parts of the state must not be one tensor either. A view of one text in a batch can have other strides
        # than the step's result, but the operator requires equal strides.
        state = tuple(part.clone(memory_format=torch.contiguous_format) for part in state)
        return scan_operator()(separate_step, state, words, reverse=reverse)
    outputs: list[Tensor] = []
    places = range(len(words[0]))
    for place in reversed(places) if reverse else places:
        state, output = step(state, tuple(tensor[place] for tensor in words))
        outputs.append(output)
    return state, torch.stack(outputs[::-1] if reverse else outputs)
