"""AllenNLP's `Elmo` and `ElmoTokenEmbedder`, and their `ScalarMix` of a pretrained biLM's layers."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging

from ..model.layers_elmo import normalise_batch
from .bilm import _ElmoBiLm
from .character_encoder import remove_sentence_boundaries
from .pretrained import DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE, copy_requires_grad, pretrained_of

logger = logging.get_logger(__name__)


class FromParams(nn.Module):
    """A module that is made from the parameters of a configuration."""

    @classmethod
    def from_params(cls, params: Any, **extras: Any) -> Self:
        """Makes the module.

        Args:
            params: the constructor's arguments: a dict, or AllenNLP's `Params`, out of which they are popped.
            **extras: further arguments; those that the constructor does not take are ignored, as in AllenNLP.

        Raises:
            ValueError: if `params` has an argument that the constructor does not take.
        """
        if isinstance(params, dict):
            arguments = dict(params)
        else:
            arguments = {name: params.pop(name) for name in list(params.as_dict())}
        names = inspect.signature(cls).parameters
        unknown = [name for name in arguments if name not in names]
        if unknown:
            raise ValueError(f"the parameters of `{cls.__name__}` are {', '.join(names)}, found {', '.join(unknown)}.")
        used = {name: value for name, value in extras.items() if name in names}
        return cls(**(used | arguments))


class ScalarMix(nn.Module):
    """A mix of K tensors: `gamma` times their sum, weighted by the softmax of `scalar_parameters`.

    This class differs from `ScalarMix` of `model/layers_elmo.py` in names, and takes the weights' values before the
    softmax.

    Attributes:
        scalar_parameters: K parameters `(1,)`.
        gamma: `(1,)`.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        """Makes a mix.

        Args:
            mixture_size: K.
            do_layer_norm: whether to normalise each tensor by one mean and variance for the whole batch.
            initial_scalar_parameters: K numbers before the softmax; None for equal weights.
            trainable: whether the parameters train.

        Raises:
            ValueError: if `initial_scalar_parameters` are not K numbers.
        """
        super().__init__()
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        numbers = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(numbers) != mixture_size:
            raise ValueError(f"`initial_scalar_parameters` must be {mixture_size} numbers, found {numbers}.")
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(number)]), requires_grad=trainable) for number in numbers
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mixes K tensors of one shape; with layer norm, `(B, T, N)` under `mask` `(B, T)`.

        Raises:
            ValueError: if layer norm lacks a mask.
        """
        if self.do_layer_norm:
            if mask is None:
                raise ValueError(
                    "with `do_layer_norm`, `mask` must be a tensor `(B, T)`, found None: give one that is True on "
                    "words."
                )
            tensors = [normalise_batch(tensor, mask.bool()) for tensor in tensors]
        weights = torch.cat(list(self.scalar_parameters)).softmax(dim=0).to(tensors[0].dtype)
        return self.gamma * sum(weight * tensor for weight, tensor in zip(weights, tensors, strict=True))


class Elmo(FromParams):
    """Scalar mixes of a pretrained biLM's layers."""

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        """Loads the biLM.

        Args:
            options_file: path or address of `options.json`; None with `module`.
            weight_file: path or address of `weights.hdf5`; None with `module`.
            num_output_representations: the number of mixes.
            requires_grad: whether the biLM trains; the mixes train unless `scalar_mix_parameters` are given.
            do_layer_norm: whether to normalise each layer before mixing, by one mean and variance for the whole batch.
            dropout: rate of the dropout on each mix, in training.
            vocab_to_cache: words whose vectors before the LSTMs are computed once; the first word is padding. If the
                biLM trains, this table trains in place of the character CNN.
            keep_sentence_boundaries: whether to return the vectors of `<S>` and `</S>` too.
            scalar_mix_parameters: L+1 numbers before the softmax; they fix all mixes.
            module: replaces the files: an `ElmoModel`, whose biLM is copied and of which each part trains if it trains
                there, or a module with `num_layers`, `get_output_dim` and a `forward` that returns `activations` and
                `mask`.

        Raises:
            ValueError: if both files and `module` are given, if the mix parameters are not L+1 numbers, or if
                AllenNLP's ELMo lacks a part of the model.
            ConversionError: if a file is missing or has another format.
        """
        super().__init__()
        bilm: Any = module
        if module is None:
            bilm = _ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        elif options_file is not None or weight_file is not None:
            raise ValueError("give either `options_file` and `weight_file`, or `module` with None for both.")
        elif isinstance(module, PreTrainedModel):
            model = module.base_model
            trains = any(parameter.requires_grad for parameter in model.token_encoder.parameters())
            bilm = _ElmoBiLm(None, None, trains, vocab_to_cache, pretrained=pretrained_of(model))
            copy_requires_grad(model, bilm)
            bilm.to(model.device, model.dtype)
        self._elmo_lstm = bilm
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        # As in AllenNLP, the length of the list counts, and the mixes are those of the names.
        self._scalar_mixes: list[ScalarMix] = []
        for index in range(num_output_representations):
            mix = ScalarMix(bilm.num_layers, do_layer_norm, scalar_mix_parameters, scalar_mix_parameters is None)
            self.add_module(f"scalar_mix_{index}", mix)
            self._scalar_mixes.append(mix)

    def get_output_dim(self) -> int:
        """2P."""
        return self._elmo_lstm.get_output_dim()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Embeds a batch.

        Args:
            inputs: `(B, ..., T, C)` character ids of `batch_to_ids`; all axes before T count sentences. If all words
                are cached, the ids are not read, and you may pass `word_inputs` `(B, T)` here too.
            word_inputs: `(B, ..., T)` indices of the words in `vocab_to_cache`.

        Returns:
            `elmo_representations`, a list of tensors `(B, ..., T, 2P)`, and `mask`, `(B, ..., T)`, True on words; with
            `keep_sentence_boundaries`, T is two larger.
        """
        is_word_inputs = inputs.dim() == 2
        outer_shape = inputs.shape[:1] if is_word_inputs else inputs.shape[:-2]
        if inputs.dim() > 3:
            inputs = inputs.flatten(0, -3)
        if word_inputs is not None and not self._has_cached_vocab:
            logger.warning("`word_inputs` are not used, because this Elmo was made without `vocab_to_cache`.")
            word_inputs = None
        if word_inputs is not None and word_inputs.dim() > 2:
            outer_shape = word_inputs.shape[:-1]
            word_inputs = word_inputs.flatten(0, -2)
        output = self._elmo_lstm(inputs, word_inputs)
        mask = output["mask"].bool()
        mixes = [self.get_submodule(f"scalar_mix_{index}") for index in range(len(self._scalar_mixes))]
        representations = [mix(output["activations"], mask) for mix in mixes]
        if self._keep_sentence_boundaries:
            representations = [vectors.masked_fill(~mask.unsqueeze(-1), 0) for vectors in representations]
        else:
            representations = [remove_sentence_boundaries(vectors, mask)[0] for vectors in representations]
            mask = remove_sentence_boundaries(mask.unsqueeze(-1), mask)[1]
        return {
            "elmo_representations": [self._dropout(vectors).unflatten(0, outer_shape) for vectors in representations],
            "mask": mask.unflatten(0, outer_shape),
        }


class ElmoTokenEmbedder(FromParams):
    """One mix of a pretrained biLM's layers, with an optional projection.

    Attributes:
        output_dim: 2P, or the size of the projection.
    """

    def __init__(
        self,
        options_file: str | Path = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
    ) -> None:
        """Loads the biLM; arguments and errors are those of `Elmo`, and `projection_dim` is the size of the output."""
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
        )
        self._projection = nn.Linear(self._elmo.get_output_dim(), projection_dim) if projection_dim else None
        self.output_dim: int = projection_dim or self._elmo.get_output_dim()

    def get_output_dim(self) -> int:
        """The size of a word's vector."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Maps ids `(B, ..., T, C)` of `batch_to_ids` to `(B, ..., T, output_dim)`; arguments as in `Elmo.forward`."""
        vectors = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)
