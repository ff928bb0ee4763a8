"""AllenNLP's `_ElmoCharacterEncoder`: the context-free vectors of words and of the boundaries around them.

    characters (B, T, C)  ->  vectors (B, T+2, P)

The equations are those of the character CNN in `model/layers_elmo.py`; the gate of a highway multiplies the old value:

    t, g = the two halves of W m + b,     m <- sigmoid(g) . m + (1 - sigmoid(g)) . relu(t)

With the parts that it was made with, equal words are computed once, and words of similar lengths together. With hooks,
or with wrapped or replaced parts, the parts get what AllenNLP gives them: all words in their places, and padding.

Glossary: B batch, T words of the longest sentence, C characters a word, E character embedding, F filters, P projection.

Deliberate differences: a row may have gaps between words; vectors are zero on padding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..model.layers_elmo import (
    check_range,
    check_shape,
    embed_distinct,
    embed_in_blocks,
    may_look_at,
)
from ..model.scan_elmo import apply, is_hooked, reads_all_windows
from ..model.tokenization_elmo import BEGIN_SENTENCE, END_SENTENCE, CharacterCodec
from .pretrained import Pretrained, read_pretrained, refuse_former_names

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


def add_sentence_boundaries(values: Tensor, mask: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """Puts `first` and `last` `(N,)` around the words of each row: `(B, T, N)` to `(B, T+2, N)`, and the mask."""
    places = torch.arange(mask.shape[1] + 1, device=mask.device)
    behind = (nn.functional.pad(mask, (1, 0)) * places).amax(dim=1) + 1
    rows = torch.arange(len(mask), device=mask.device)
    values = nn.functional.pad(values, (0, 0, 1, 1))
    values[:, 0] = first.to(values)
    values[rows, behind] = last.to(values)
    mask = nn.functional.pad(mask, (1, 1))
    mask[:, 0] = True
    mask[rows, behind] = True
    return values, mask


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Removes the boundaries: maps `(B, T+2, N)` to `(B, T, N)`, zero on padding, and to the words' mask `(B, T)`."""
    mask = mask.bool()
    places = torch.arange(mask.shape[1], device=mask.device)
    is_last = places == (mask * places).amax(dim=1, keepdim=True)
    is_word = (mask & ~is_last)[:, 1:-1]
    return tensor[:, 1:-1].masked_fill(~is_word.unsqueeze(-1), 0), is_word


class Highway(nn.Module):
    """Highway layers; the first half of a layer's outputs is t, the second g."""

    def __init__(
        self, input_dim: int, num_layers: int = 1, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        """Makes layers for vectors of width `input_dim` that start nearly open."""
        super().__init__()
        self._input_dim = input_dim
        self._layers = nn.ModuleList(nn.Linear(input_dim, 2 * input_dim) for _ in range(num_layers))
        self._activation = activation
        for layer in self._layers:
            assert isinstance(layer, nn.Linear)
            nn.init.ones_(layer.bias[input_dim:])

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(..., input_dim)` to the same shape."""
        for layer in self._layers:
            transform, gate = apply(layer, inputs).chunk(2, dim=-1)
            inputs = torch.lerp(self._activation(transform), inputs, gate.sigmoid())
        return inputs


# The classes of the parts of an encoder that nobody changed.
PLAIN = (nn.Conv1d, nn.Linear, nn.ModuleList, Highway)


class _ElmoCharacterEncoder(nn.Module):
    """The character CNN.

    Attributes:
        output_dim: P.
        requires_grad: whether the encoder was made to be trained.
        _options: the parsed options file.
        _weight_file: the path of the weights on this machine; None if they are of an `ElmoModel`.
        _char_embedding_weights: the table of characters, a parameter; its first row is padding.
        char_conv_0: the convolution of the first width; the next are `char_conv_1`, ...
        _highways: the `Highway`.
        _projection: the linear layer from F to P.
    """

    _beginning_of_sentence_characters: Tensor
    _end_of_sentence_characters: Tensor

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        requires_grad: bool = False,
        *,
        pretrained: Pretrained | None = None,
    ) -> None:
        """Loads the two files, or takes `pretrained`; arguments and errors are those of `Elmo`."""
        super().__init__()
        if pretrained is None:
            pretrained = read_pretrained(options_file, weight_file)
        config = pretrained.config
        self._options = pretrained.options
        self._weight_file = pretrained.weight_file
        self.requires_grad = requires_grad
        self.output_dim: int = config.projection_size
        self._max_word_length: int = config.max_word_length
        self._char_embedding_weights = nn.Parameter(torch.empty(config.vocab_size, config.char_embedding_size))
        for index, (width, count) in enumerate(config.char_filters):
            self.add_module(f"char_conv_{index}", nn.Conv1d(config.char_embedding_size, count, width))
        self._num_convolutions = len(config.char_filters)
        self._highways = Highway(config.num_filters, config.num_highway_layers)
        self._projection = nn.Linear(config.num_filters, config.projection_size)
        self.load_state_dict(pretrained.part("_token_embedder"))
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        self.register_load_state_dict_pre_hook(refuse_former_names)
        boundaries = CharacterCodec(config.max_word_length).encode([BEGIN_SENTENCE, END_SENTENCE])
        first, last = torch.from_numpy(boundaries).long()
        self.register_buffer("_beginning_of_sentence_characters", first, persistent=False)
        self.register_buffer("_end_of_sentence_characters", last, persistent=False)

    @property
    def _convolutions(self) -> list[Any]:
        """The convolutions, or what took their places."""
        return [self.get_submodule(f"char_conv_{index}") for index in range(self._num_convolutions)]

    def get_output_dim(self) -> int:
        """P."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Maps ids `(B, T, C)` to `token_embedding`, `(B, T+2, P)`, zero on padding, and `mask`, `(B, T+2)`.

        Raises:
            TypeError: if the ids are not integers.
            ValueError: if the ids have a wrong shape or are out of range.
        """
        self._check(inputs)
        ids, mask = add_sentence_boundaries(
            inputs.long(),
            (inputs > 0).any(dim=-1),
            self._beginning_of_sentence_characters,
            self._end_of_sentence_characters,
        )
        if self._is_plain():
            return {"mask": mask, "token_embedding": embed_distinct(self._embed_distinct_words, ids, mask)}
        vectors = self._embed(ids.flatten(0, 1), self._max_word_length).unflatten(0, mask.shape)
        return {"mask": mask, "token_embedding": vectors.masked_fill(~mask.unsqueeze(-1), 0)}

    def _check(self, ids: Any) -> None:
        check_shape("inputs", ids, ("batch", "words", self._max_word_length))
        if ids.is_floating_point() or ids.dtype == torch.bool:
            raise TypeError(f"`inputs` must be the integers of `batch_to_ids`, found {ids.dtype}.")
        if may_look_at(ids):
            check_range("inputs", ids, len(self._char_embedding_weights) - 1)

    def _is_plain(self) -> bool:
        """Whether nothing shows which words the parts get."""
        parts = [module for module in self.modules() if module is not self]
        if any(type(part) not in PLAIN or is_hooked(part) for part in parts):
            return False
        return all(reads_all_windows(convolution) for convolution in self._convolutions)

    def _embed_distinct_words(self, ids: Tensor) -> Tensor:
        """Maps ids `(N, C)` to `(N, P)`."""
        widest_filter = max(convolution.kernel_size[0] for convolution in self._convolutions)
        return embed_in_blocks(self._embed, ids, self._max_word_length, widest_filter)

    def _embed(self, ids: Tensor, num_positions: int) -> Tensor:
        """Maps the first positions of ids `(N, C)` to `(N, P)`."""
        characters = nn.functional.embedding(ids[:, :num_positions], self._char_embedding_weights).transpose(1, 2)
        activation = ACTIVATIONS[self._options["char_cnn"]["activation"]]
        features = [activation(apply(part, characters).amax(dim=-1)) for part in self._convolutions]
        return apply(self._projection, self._highways(torch.cat(features, dim=-1)))
