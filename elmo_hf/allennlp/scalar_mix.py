"""AllenNLP's `ScalarMix`: gamma times a weighted sum of tensors, the weights a softmax of K parameters of one number.

It differs from `model/scalar_mix.py` in names and in what is given: numbers before the softmax.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..model.scalar_mix import normalise_batch


class ScalarMix(nn.Module):
    """A mix of K tensors, with `scalar_parameters`, K parameters `(1,)`, and `gamma` `(1,)`."""

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
            ValueError: if there are not K numbers.
        """
        super().__init__()
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        numbers = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(numbers) != mixture_size:
            raise ValueError(f"`scalar_mix_parameters` must be {mixture_size} numbers, found {numbers}.")
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(number)]), requires_grad=trainable) for number in numbers
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mixes K tensors of one shape; with layer norm, `(B, T, N)` under `mask` `(B, T)`.

        Raises:
            ValueError: if there are not K tensors, or layer norm lacks a mask.
        """
        if len(tensors) != self.mixture_size:
            raise ValueError(f"the mix takes {self.mixture_size} tensors, found {len(tensors)}.")
        if self.do_layer_norm:
            if mask is None:
                raise ValueError("layer norm needs `mask`, found None.")
            tensors = [normalise_batch(tensor, mask.bool()) for tensor in tensors]
        weights = torch.cat(list(self.scalar_parameters)).softmax(dim=0).to(tensors[0].dtype)
        mixed = sum(weight * tensor for weight, tensor in zip(weights, tensors, strict=True))
        return self.gamma * mixed
