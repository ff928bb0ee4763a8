"""What every module starts from: bilm-tf's random weights (its `training.py`; the LSTM by TensorFlow's Glorot default).

Glossary: P projection, H cell.
"""

import math

from torch import nn
from transformers import initialization as init

from ..language_model.softmax import AdaptiveSoftmax, WordSoftmax
from .configuration_elmo import ElmoConfig
from .lstmp import LSTMP
from .scalar_mix import LinearMix, ScalarMix, logits_of
from .token_encoder import CharacterCNN, Highway, WordEmbedding


def initialise(module: nn.Module, config: ElmoConfig) -> bool:
    """Sets the parameters of a module, and of its children that are no modules of ours, but for loaded ones.

    Returns:
        whether it is a module of ours.
    """
    if isinstance(module, CharacterCNN):
        init.uniform_(module.embedding.weight, -1, 1)
        _init_padding_row(module.embedding)
        for convolution in module.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if config.char_activation == "relu":
                init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                fan_in = convolution.in_channels * convolution.kernel_size[0]
                init.normal_(convolution.weight, std=1 / math.sqrt(fan_in))
            init.zeros_(convolution.bias)
        if module.word_embedding is not None:
            init.xavier_uniform_(module.word_embedding.weight)
            _init_padding_row(module.word_embedding)
        _init_projection(module.projection)
    elif isinstance(module, Highway):
        for linear, bias in ((module.transform, 0.0), (module.gate, -2.0)):
            init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
            init.constant_(linear.bias, bias)
    elif isinstance(module, WordEmbedding):
        init.xavier_uniform_(module.embedding.weight)
        _init_padding_row(module.embedding)
        _init_projection(module.projection)
    elif isinstance(module, LSTMP):
        # TensorFlow holds both products in one kernel of [P + P, 4H].
        linear = module.input_linear
        limit = math.sqrt(6 / (2 * linear.in_features + linear.out_features))
        init.uniform_(linear.weight, -limit, limit)
        init.zeros_(linear.bias)
        init.uniform_(module.recurrent_linear.weight, -limit, limit)
        if module.projection is not None:
            init.xavier_uniform_(module.projection.weight)
    elif isinstance(module, ScalarMix):
        init.copy_(module.logits, logits_of(module.initial_weights))
        init.ones_(module.scale)
    elif isinstance(module, LinearMix):
        init.copy_(module.linear.weight, module.initial_weight)
        init.zeros_(module.linear.bias)
    elif isinstance(module, WordSoftmax):
        if module.weight is not None:
            init.normal_(module.weight, std=1 / math.sqrt(module.weight.shape[1]))
        init.zeros_(module.bias)
    elif isinstance(module, AdaptiveSoftmax):
        for linear in (part for part in module.modules() if isinstance(part, nn.Linear)):
            init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
            if linear.bias is not None:
                init.zeros_(linear.bias)
    else:
        return False
    return True


def _init_padding_row(embedding: nn.Embedding) -> None:
    if not getattr(embedding.weight, "_is_hf_initialized", False):
        init.zeros_(embedding.weight[embedding.padding_idx])


def _init_projection(projection: nn.Linear | None) -> None:
    if projection is not None:
        init.normal_(projection.weight, std=1 / math.sqrt(projection.in_features))
        init.zeros_(projection.bias)
