"""The scalar mix: one vector per word from all layers of the biLM (Peters et al. 2018, equation 1).

    ELMo = scale . sum_k s_k h_k,    s = softmax(logits),    k = 0 .. L

In training, a task may pull s towards equal weights by adding lambda . sum_k (logits_k - mean logit)^2 to its loss, on
the logits and without the scale, as in bilm-tf's `weight_layers` and AllenNLP's configurations (the paper writes
lambda ||w||^2). The linear mix learns a matrix instead of L+1 weights:

    ELMo = W [h_0; ..; h_L] + b,    initially the mean of the layers

Glossary: B batch, T words, P projection, L layers; h_0 is the token vector twice (once with one direction), h_k
the k-th biLM layer.

Deliberate differences from AllenNLP's `ScalarMix`: the paper's gamma is `scale`; users give *true* weights, not logits,
so `[0, 0, 1]` is exactly the top layer, and these weights may learn; outputs are zero on padding in every mode; the L+1
logits are one vector. The penalty measures logits from their mean, because a constant added to all of them cancels in
the softmax; AllenNLP's logits start with a mean of zero.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_elmo import ElmoConfig, check_mix_weights, require

# In place of log(0): its softmax is exactly 0 in every dtype, and unlike -inf it gives no NaN under weight decay.
LOGIT_OF_ZERO = -1e4


class ScalarMix(nn.Module):
    """A weighted sum of the L+1 layers; the softmax of `logits` `(L+1,)` gives the weights, `scale` `()` a factor."""

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `num_hidden_layers` and `scalar_mix_*` of `config`."""
        super().__init__()
        num_layers = config.num_hidden_layers + 1
        self.initial_weights = tuple(config.scalar_mix_weights or [1 / num_layers] * num_layers)
        self.layer_norm = config.scalar_mix_layer_norm
        self.logits = nn.Parameter(torch.zeros(num_layers), requires_grad=config.scalar_mix_trainable)
        self.scale = nn.Parameter(torch.ones(()), requires_grad=config.scalar_mix_trainable)

    def init_parameters(self) -> None:
        """Starts from the weights of the config, or from equal ones."""
        init.copy_(self.logits, logits_of(self.initial_weights))
        init.ones_(self.scale)

    @property
    def weights(self) -> Tensor:
        """`(L+1,)`, the current true weights of the layers; they sum to 1."""
        return self.logits.softmax(dim=0)

    @torch.no_grad()
    def set_weights(self, weights: Sequence[float], scale: float = 1.0) -> None:
        """Sets a finite scale and L+1 true weights that sum to 1; a weight of zero stays zero in training."""
        require(math.isfinite(scale), "scale", "a finite number", scale)
        weights = [float(weight) for weight in weights]
        check_mix_weights("weights", weights, len(self.logits))
        self.logits.copy_(logits_of(weights))
        self.scale.fill_(scale)

    def penalty(self) -> Tensor:
        """`()`, the sum of the logits' squared distances from their mean; weights set to zero do not count."""
        is_pulled = self.logits > LOGIT_OF_ZERO / 2
        mean = self.logits.masked_fill(~is_pulled, 0).sum() / is_pulled.sum()
        return (self.logits - mean).masked_fill(~is_pulled, 0).square().sum()

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Mixes L+1 layers `(B, T, 2P)` under `mask` `(B, T)` to `(B, T, 2P)`, zero where the mask is False."""
        weights = self.weights.to(layers[0].device, layers[0].dtype)
        if self.layer_norm == "batch":
            layers = [normalise_batch(layer, mask) for layer in layers]
        elif self.layer_norm == "word":
            layers = [nn.functional.layer_norm(layer, layer.shape[-1:]) for layer in layers]
        mixed = sum(weight * layer for weight, layer in zip(weights, layers, strict=True))
        return (self.scale.to(mixed.device) * mixed).masked_fill(~mask.unsqueeze(-1), 0)


class LinearMix(nn.Module):
    """A learned linear function of a word's L+1 layers, side by side."""

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `num_hidden_layers`, `bidirectional` and `projection_size` of `config`."""
        super().__init__()
        size = config.num_directions * config.projection_size
        self.linear = nn.Linear((config.num_hidden_layers + 1) * size, size)

    def init_parameters(self) -> None:
        """Starts as the mean of the layers."""
        size, num_inputs = self.linear.weight.shape  # 2P, (L+1) 2P
        num_layers = num_inputs // size
        identities = torch.eye(size, device=self.linear.weight.device).repeat(1, num_layers)
        init.copy_(self.linear.weight, identities / num_layers)
        init.zeros_(self.linear.bias)

    def forward(self, layers: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Mixes as `ScalarMix.forward` does."""
        return self.linear(torch.cat(list(layers), dim=-1)).masked_fill(~mask.unsqueeze(-1), 0)


def normalise_batch(layer: Tensor, mask: Tensor) -> Tensor:
    """Normalises `layer` `(B, T, 2P)` by one mean and deviation over all features of the words in `mask` `(B, T)`.

    A vector then depends on the other texts of its batch; this is only for parity. Outside the mask, ignore the result.
    Source: `_do_layer_norm` of AllenNLP's `ScalarMix`: biased variance, boundaries included, epsilon 1e-13 in the root.
    """
    # In half precision a sum over a batch would overflow, and the epsilon would vanish.
    wide = layer.to(torch.promote_types(layer.dtype, torch.float32))
    mask = mask.unsqueeze(-1)
    count = mask.sum() * layer.shape[-1]
    mean = (wide * mask).sum() / count
    variance = (((wide - mean) * mask) ** 2).sum() / count
    return ((wide - mean) / torch.sqrt(variance + 1e-13)).to(layer.dtype)


def logits_of(weights: Sequence[float]) -> Tensor:
    """`(L+1,)`, logits whose softmax is `weights`; a weight of 0 comes out exactly 0."""
    return torch.tensor([math.log(weight) if weight > 0 else LOGIT_OF_ZERO for weight in weights])
