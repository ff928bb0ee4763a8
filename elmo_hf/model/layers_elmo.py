# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""The layers of ELMo (Peters et al. 2018, §3): token encoders, LSTMP, the biLM, mixes of its layers, pooling.

    ids -> token encoder -> v_1 .. v_T -> L biLM layers -> h_0 .. h_L -> mix -> ELMo vectors -> pooling

The equations and the glossary of a part are at the head of its section. From top to bottom: checks of inputs, pooling,
mixes, token encoders, the LSTMP of one direction, the biLM.

Until you read `scan_elmo.py`, take its names for this:

- `apply(m, x)` is `m(x)`;
- `scan_words` is a loop over words;
- `scan_layer` is `LSTMP.forward` of each direction;
- `BatchLayout` is the mask and the resets of a batch;
- `Limits` are the limits of both clips;
- `current_kernels().weight_of(linear)` is `linear.weight`;
- `current_kernels().supports(weight)` is True.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_elmo import ElmoConfig, check_mix_weights, require
from .scan_elmo import (
    BatchLayout,
    Limits,
    Scanned,
    State,
    Stepped,
    Tensors,
    Weights,
    apply,
    autocast_dtype,
    current_kernels,
    has_transforms,
    is_exporting,
    is_hooked,
    is_tracing,
    register_namedtuple,
    scan_layer,
    scan_words,
)

# ---- Checks of inputs ------------------------------------------------------------------------------------------------
#
# Checks of a model's inputs, made once where they enter the model; all other code trusts ids and masks.
#
# Glossary: B batch, T words.

# The label of words that the loss skips, as in torch.
IGNORED = -100


def checked_words(input_ids: Any, attention_mask: Tensor | None, config: ElmoConfig) -> tuple[Tensor, Tensor]:
    """Ids `(B, T, ...)` as int64, and the mask `(B, T)` of words: the given one, or else positions with an id above 0.

    Raises:
        TypeError: if the ids are not integers.
        ValueError: if ids or mask have a wrong shape, if the ids' type is too small for the model's largest id, or if
            the model has no entry for an id where the mask is True.
    """
    check_ids_of_word(input_ids, config)
    check_shape("input_ids", input_ids, ("batch", "words", *config.id_shape))
    dtype = input_ids.dtype
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        raise TypeError(f"`input_ids` must be integers, found numbers of {dtype}.")
    most = config.vocab_size - 1
    require(torch.iinfo(dtype).max >= most, "input_ids", f"integers, of a type that holds ids up to {most}", dtype)
    input_ids = input_ids.long()
    mask = checked_mask(attention_mask, any_of_word(input_ids > 0))
    if may_look_at(input_ids):
        words = input_ids[mask]
        check_range("input_ids", words, most)
        if config.num_input_words > 0:
            check_range("input_ids", words[:, :-1], config.num_characters)
    return input_ids, mask


def check_ids_of_word(input_ids: Any, config: ElmoConfig) -> None:
    """Raises ValueError if each word has another number of ids than the model reads, as from another tokenizer."""
    shape: tuple[int, ...] = tuple(getattr(input_ids, "shape", ()))
    if len(shape) != 3 or len(config.id_shape) != 1:
        return
    legal = (
        f"the ids of a tokenizer with the model's `max_word_length`, {config.max_word_length} (in "
        f"tokenizer_config.json and config.json), so {config.id_shape[0]} ids a word"
    )
    require(shape[2] == config.id_shape[0], "input_ids", legal, shape[2])


def checked_mask(attention_mask: Tensor | None, default: Tensor) -> Tensor:
    """`(B, T)`, True on words: the given mask, or else `default`; raises ValueError for other shapes or numbers."""
    if attention_mask is None:
        return default
    check_shape("attention_mask", attention_mask, default.shape)
    if may_look_at(attention_mask):
        illegal_numbers = attention_mask[(attention_mask != 0) & (attention_mask != 1)]
        refuse_numbers("attention_mask", "1 on words and 0 on padding", illegal_numbers)
    return attention_mask.to(default.device).bool()


def any_of_word(is_found: Tensor) -> Tensor:
    """Reduces `is_found`, of the shape of the ids, to `(B, T)`: True if it is True for any id of the word."""
    return is_found.any(dim=-1) if is_found.dim() == 3 else is_found


def check_shape(name: str, value: object, shape: Sequence[int | str]) -> None:
    """Raises ValueError if a value is not a tensor of this shape; a string in `shape` is an axis of any length."""
    actual = tuple(getattr(value, "shape", ()))
    is_legal = len(actual) == len(shape)
    if is_legal:
        is_legal = all(isinstance(size, str) or size == length for size, length in zip(shape, actual, strict=True))
    if not is_legal:  # only then, because a graph that is being made has no text of a length
        require(False, name, f"a tensor of shape ({', '.join(map(str, shape))})", actual or value)


def may_look_at(tensor: Tensor) -> bool:
    """Whether Python may read the numbers to check them: not on a GPU, because Python would have to wait for it."""
    return tensor.device.type == "cpu" and may_depend_on(tensor)


def may_depend_on(tensor: Tensor) -> bool:
    """Whether shapes may depend on the numbers of a tensor.

    Not on the device `meta`, where it has none, not while a graph is made, and not under `torch.func`.
    """
    return not (tensor.is_meta or torch.compiler.is_compiling() or is_tracing() or has_transforms())


def check_range(name: str, ids: Tensor, most: int) -> None:
    """Raises ValueError if ids are not from 0 to `most`."""
    refuse_numbers(name, f"from 0 to {most}", ids[(ids < 0) | (ids > most)])


def refuse_numbers(name: str, legal: str, illegal_numbers: Tensor) -> None:
    """Raises ValueError with the first of some illegal numbers `(n,)` of an argument, if there are any."""
    if len(illegal_numbers) > 0:
        require(False, name, legal, illegal_numbers[0].item())


# ---- Pooling ---------------------------------------------------------------------------------------------------------
#
# One vector for a text, from the vectors of its words.
#
#     mean    sum_t e_t / W
#     max     max_t e_t, for each feature
#
# over the W words of a text, without boundaries and padding; zero for a text without words.
#
# Glossary: B texts, T positions, D width of a word's vector.


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """Mean of `vectors` `(B, T, D)` where `mask` `(B, T)` is True: `(B, D)`, zero if `mask` is all False."""
    # In half precision a sum over a long text would overflow.
    wide = torch.promote_types(vectors.dtype, torch.float32)
    total = vectors.masked_fill(~mask.unsqueeze(-1), 0).sum(dim=1, dtype=wide)
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).to(vectors.dtype)


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum of each feature; arguments and result are as in `masked_mean`."""
    mask = mask.unsqueeze(-1)
    lowest = torch.finfo(vectors.dtype).min
    # One more position, because the maximum over no positions is an error.
    filled = nn.functional.pad(vectors.masked_fill(~mask, lowest), (0, 0, 0, 1), value=lowest)
    return filled.amax(dim=1).masked_fill(~mask.any(dim=1), 0)


# The poolings without parameters, by their names in the config.
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": masked_mean, "max": masked_max}


def pooling_of(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The pooling of a config outside classifiers; there the mean replaces "attention", which has parameters.

    Raises:
        ValueError: if there is no such pooling.
    """
    if name == "attention":
        return masked_mean
    require(name in POOLINGS, "pooling", f"one of {', '.join([*POOLINGS, 'attention'])}", name)
    return POOLINGS[name]


# ---- Mixes of layers -------------------------------------------------------------------------------------------------
#
# The scalar mix: one vector per word from all layers of the biLM (Peters et al. 2018, equation 1).
#
#     ELMo = scale . sum_k s_k h_k,    s = softmax(logits),    k = 0 .. L
#
# In training, a task may pull s towards equal weights by adding lambda . sum_k (logits_k - mean logit)^2 to its loss,
# on the logits and without the scale, as in bilm-tf's `weight_layers` and AllenNLP's configurations (the paper writes
# lambda ||w||^2). The linear mix learns a matrix instead of L+1 weights:
#
#     ELMo = W [h_0; ..; h_L] + b,    initially the mean of the layers
#
# Glossary: B batch, T words, P projection, L layers; h_0 is the token vector twice (once with one direction), h_k
# the k-th biLM layer.
#
# Deliberate differences from AllenNLP's `ScalarMix`: the paper's gamma is `scale`; users give *true* weights, not
# logits, so `[0, 0, 1]` is exactly the top layer, and these weights may learn; outputs are zero on padding in every
# mode; the L+1 logits are one vector. The penalty measures logits from their mean, because a constant added to all of
# them cancels in the softmax; AllenNLP's logits start with a mean of zero.

# In place of log(0): its softmax is exactly 0 in every dtype, and unlike -inf it gives no NaN under weight decay.
LOGIT_OF_ZERO = -1e4


class ScalarMix(nn.Module):
    """A weighted sum of the L+1 layers; the softmax of `logits` `(L+1,)` gives the weights, `scale` `(1,)` a factor.

    The scale has one axis because torch's FSDP refuses parameters without axes; a state dict may have it as `()`.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `num_hidden_layers` and `scalar_mix_*` of `config`."""
        super().__init__()
        num_layers = config.num_hidden_layers + 1
        self.initial_weights = tuple(config.scalar_mix_weights or [1 / num_layers] * num_layers)
        self.layer_norm = config.scalar_mix_layer_norm
        self.logits = nn.Parameter(torch.zeros(num_layers), requires_grad=config.scalar_mix_trainable)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=config.scalar_mix_trainable)
        self.register_load_state_dict_pre_hook(give_scale_an_axis)

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
        scale = self.scale.to(mixed.device).reshape(())  # a tensor with axes would widen the type of half precision
        return (scale * mixed).masked_fill(~mask.unsqueeze(-1), 0)


def give_scale_an_axis(mix: nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Makes the scale of a mix `(1,)` in a state dict of an earlier version, whose scale is `()`."""
    name = f"{prefix}scale"
    if name in state_dict:
        state_dict[name] = state_dict[name].reshape(1)


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


# ---- Token encoders --------------------------------------------------------------------------------------------------
#
# The context-free token encoders: a word's characters, or its id, to one vector (Peters et al. 2018, §3.4).
#
# The character CNN of Kim et al. (2016) embeds the C character ids of a word, convolves them with filters of several
# widths and keeps each filter's maximum over positions; highway layers (Srivastava et al. 2015) and a projection
# follow.
#
#     m_f = act(max_t (W_f * x)_t + b_f)                        one value per filter, concatenated to m in R^F
#     g   = sigmoid(W_g m + b_g)
#     m  <- g . relu(W_t m + b_t) + (1 - g) . m                 `num_highway_layers` times
#     v   = W_p m + b_p                                         in R^P
#
# With word vectors beside the characters (ELMoForManyLangs), v = W_p [u, m] + b_p, where u in R^W is the word's entry
# in a second table. The word embedding alone is a table u with v = u, or v = W_p u + b_p.
#
# A word's ids end in repetitions of one id, the filler. A filter has the same value at all positions where it sees
# only filler, so the maximum needs only one of these positions. Words of similar length are therefore computed in
# blocks, each cut to the length that its longest word needs; the result is exact.
#
# A word's vector depends only on its ids, so equal words of a batch are computed once. A hash of the ids, h(w) = sum_c
# w_c m^c mod 2^64 with m odd, finds equal words, which are then compared id by id, so a collision cannot change the
# result.
#
# Glossary: N words, U distinct words, C characters per word, E character embedding, F filters in total, W word
# embedding, P projection.
#
# Deliberate differences from the original code: the highway `gate` multiplies the *new* value, as in bilm-tf's files
# (which call it `W_carry`); the `Highway` of AllenNLP and ELMoForManyLangs gates the old value, so its W_g and b_g have
# the opposite sign. Entry 0 of every table is the zero vector of padding, which bilm-tf adds when it reads a file.

# Positions (words times characters) convolved at once: 21 MB in float32 for the widest filters of the original model.
BLOCK_CHARACTERS = 5120
# On a GPU 134 MB, because there each block costs some forty launches.
GPU_BLOCK_CHARACTERS = 32768
# m of h(w): Knuth's multiplier of a linear congruential generator modulo 2^64.
MULTIPLIER = 6364136223846793005


class Highway(nn.Module):
    """One highway layer: always relu, even if the CNN uses tanh (`high` in bilm-tf's `_build_word_char_embeddings`)."""

    def __init__(self, size: int) -> None:
        """Makes a layer for vectors of width `size`."""
        super().__init__()
        self.transform = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights; the gate starts nearly closed."""
        _init_linear(self.transform)
        _init_linear(self.gate, bias=-2.0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps `(N, F)` to `(N, F)`."""
        return torch.lerp(inputs, apply(self.transform, inputs).relu(), apply(self.gate, inputs).sigmoid())


class CharacterCNN(nn.Module):
    """Maps the character ids of each word to a word vector, independently of other words.

    Source: `_build_word_char_embeddings` in bilm-tf, `_ElmoCharacterEncoder` in AllenNLP; with word vectors,
    `ConvTokenEmbedder` in ELMoForManyLangs.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size`, `num_input_words`, `char_*`, `word_*`, `num_highway_layers`, `projection_size`."""
        super().__init__()
        self.max_word_length = config.max_word_length
        self.num_characters = config.num_characters
        self.widest_filter = max(width for width, _ in config.char_filters)
        self.embedding = nn.Embedding(config.num_characters + 1, config.char_embedding_size, padding_idx=0)
        self.word_embedding = None
        if config.word_embedding_size is not None:
            self.word_embedding = nn.Embedding(config.num_input_words + 1, config.word_embedding_size, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.char_embedding_size, count, kernel_size=width) for width, count in config.char_filters
        )
        self.activation = torch.relu if config.char_activation == "relu" else torch.tanh
        self.highways = nn.ModuleList(Highway(config.num_filters) for _ in range(config.num_highway_layers))
        num_features = config.num_filters + (config.word_embedding_size or 0)
        self.projection = nn.Linear(num_features, config.projection_size) if config.char_projection else None

    def init_parameters(self) -> None:
        """Draws bilm-tf's random weights; the convolutions' weights depend on the activation."""
        init.uniform_(self.embedding.weight, -1, 1)
        _init_padding(self.embedding)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation is torch.relu:
                init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                init.normal_(convolution.weight, std=1 / math.sqrt(convolution.weight[0].numel()))
            init.zeros_(convolution.bias)
        if self.word_embedding is not None:
            init.xavier_uniform_(self.word_embedding.weight)
            _init_padding(self.word_embedding)
        if self.projection is not None:
            _init_linear(self.projection)

    def forward(self, ids: Tensor, block_characters: int | None = None) -> Tensor:
        """Maps character ids `(N, C)`, or `(N, C + 1)` with the word's id last, to word vectors `(N, P)`."""
        return embed_in_blocks(self._embed, ids, self.max_word_length, self.widest_filter, block_characters)

    def _embed(self, ids: Tensor, num_positions: int) -> Tensor:
        word_vectors = None
        if self.word_embedding is not None:
            # Word ids follow the character ids; padding, id 0, stays entry 0.
            word_vectors = self.word_embedding((ids[:, -1] - self.num_characters).clamp(min=0))
        return self.encode(self.embedding(ids[:, :num_positions]), word_vectors)

    def encode(self, characters: Tensor, word_vectors: Tensor | None = None) -> Tensor:
        """Maps `(N, C, E)` character embeddings, and `(N, W)` word vectors if the model has them, to `(N, P)`."""
        characters = characters.transpose(1, 2)  # (N, E, C)
        features = [self.activation(apply(convolution, characters).amax(dim=-1)) for convolution in self.convolutions]
        words = torch.cat(features, dim=-1)  # (N, F)
        for highway in self.highways:
            words = highway(words)
        if word_vectors is not None:
            words = torch.cat([word_vectors, words], dim=-1)  # (N, W + F)
        return words if self.projection is None else apply(self.projection, words)


class WordEmbedding(nn.Module):
    """Word ids to word vectors, for biLMs trained without characters.

    Source: `_build_word_embeddings` in bilm-tf; with the linear layer, `ConvTokenEmbedder` in ELMoForManyLangs.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `vocab_size`, `word_embedding_size` and `projection_size` of `config`."""
        super().__init__()
        width = config.word_embedding_size
        self.embedding = nn.Embedding(config.vocab_size, width or config.projection_size, padding_idx=0)
        self.projection = None if width is None else nn.Linear(width, config.projection_size)

    def init_parameters(self) -> None:
        """Draws Glorot's uniform weights, TensorFlow's default, for the table."""
        init.xavier_uniform_(self.embedding.weight)
        _init_padding(self.embedding)
        if self.projection is not None:
            _init_linear(self.projection)

    def forward(self, word_ids: Tensor) -> Tensor:
        """Maps `(N,)` word ids to `(N, P)` word vectors."""
        words = self.embedding(word_ids)
        return words if self.projection is None else self.projection(words)


def embed_distinct(embed: Callable[[Tensor], Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """Maps ids `(B, T, C)` or `(B, T)` to vectors `(B, T, P)`, zero where `mask` `(B, T)` is False.

    `embed` maps the ids of N words to their vectors `(N, P)`, and gets equal words once.
    """
    if not may_depend_on(ids):
        vectors = embed(ids.flatten(0, 1)).unflatten(0, mask.shape)
        return vectors.masked_fill(~mask.unsqueeze(-1), 0)
    distinct, which = distinct_rows(ids[mask])
    distinct_vectors = embed(distinct)
    vectors = distinct_vectors.new_zeros(*mask.shape, distinct_vectors.shape[-1])
    return vectors.masked_scatter(mask.unsqueeze(-1), distinct_vectors[which])


def embed_in_blocks(
    embed: Callable[[Tensor, int], Tensor],
    ids: Tensor,
    max_word_length: int,
    widest_filter: int,
    block_characters: int | None = None,
) -> Tensor:
    """Maps character ids `(N, C)`, or `(N, C + 1)` with the word's id last, to word vectors `(N, P)`.

    `embed` maps a block of words of similar lengths, and the number of their positions to read, to their vectors.
    """
    if not may_depend_on(ids) or len(ids) == 0:
        return embed(ids, max_word_length)
    lengths, order = _lengths(ids[:, :max_word_length]).sort(descending=True, stable=True)
    num_positions = (lengths + widest_filter).clamp(max=max_word_length).tolist()
    vectors = []
    start = 0
    limit = block_characters or (BLOCK_CHARACTERS if ids.device.type == "cpu" else GPU_BLOCK_CHARACTERS)
    while start < len(ids):
        block = order[start : start + max(1, limit // num_positions[start])]
        vectors.append(embed(ids[block], num_positions[start]))
        start += len(block)
    return torch.cat(vectors)[order.argsort()]


def distinct_rows(ids: Tensor, multiplier: int = MULTIPLIER) -> tuple[Tensor, Tensor]:
    """The distinct words `(U, C)` or `(U,)` of `ids` `(N, C)` or `(N,)`, and each word's index among them, `(N,)`."""
    words = ids.unsqueeze(1) if ids.dim() == 1 else ids
    powers = torch.full((words.shape[1],), multiplier, device=ids.device).cumprod(dim=0)
    hashes, which = (words * powers).sum(dim=1).unique(return_inverse=True)
    indices = torch.arange(len(ids), device=ids.device)
    first_places = torch.full_like(hashes, len(ids)).scatter_reduce_(0, which, indices, "amin")
    distinct = ids[first_places]
    if not torch.equal(distinct[which], ids):
        # Two words share a hash: compare the ids themselves, which takes longer.
        return torch.unique(ids, dim=0, return_inverse=True)
    return distinct, which


def _init_padding(embedding: nn.Embedding) -> None:
    if not getattr(embedding.weight, "_is_hf_initialized", False):
        init.zeros_(embedding.weight[embedding.padding_idx])


def _init_linear(linear: nn.Linear, bias: float = 0.0) -> None:
    init.normal_(linear.weight, std=1 / math.sqrt(linear.in_features))
    init.constant_(linear.bias, bias)


def _lengths(ids: Tensor) -> Tensor:
    """`(N,)`, how many of the ids `(N, C)` precede the final run of one id."""
    differs = ids != ids[:, -1:]
    return (differs * torch.arange(1, ids.shape[1] + 1, device=ids.device)).amax(dim=1)


# ---- LSTMP -----------------------------------------------------------------------------------------------------------
#
# One direction of one biLM layer: an LSTM whose output is projected and clipped (LSTMP; Sak et al. 2014).
#
#     z_t = W_x x_t + b + W_h h_{t-1}                                split into z_i, z_f, z_g, z_o
#     c_t = clip(sigmoid(z_f + forget_bias) . c_{t-1} + sigmoid(z_i) . tanh(z_g), +-cell_clip)
#     h_t = clip(W_p (sigmoid(z_o) . tanh(c_t)), +-projection_clip)  recurrent state and output
#           or, if there is no W_p, sigmoid(z_o) . tanh(c_t), without a clip
#
# This scan, word by word, is the reference for the fast scans in `scan_elmo.py`.
#
# Glossary: B batch, T words, P projection, H cell. The order of gates in every tensor, and of the parts of z before
# their activation: input i, forget f, candidate g, output o.
#
# Deliberate differences from bilm-tf and AllenNLP: the state is a value passed in and returned, never an attribute;
# the mask acts at each step: where it is False, the state does not change and the output is zero. So padding may be
# on either side; bilm-tf and AllenNLP sort and reverse texts.


class LSTMP(nn.Module):
    """One direction of one layer.

    The gates are two `nn.Linear`, `input_linear` (P to 4H, with the bias) and `recurrent_linear` (P to 4H). So
    adapters, quantisation and compilation treat them like the layers of any model.

    Source: `tf.nn.rnn_cell.LSTMCell(num_proj, cell_clip, proj_clip)`; `LstmCellWithProjection` in AllenNLP.
    """

    def __init__(self, config: ElmoConfig) -> None:
        """Reads `projection_size`, `cell_*`, `projection_clip` and `forget_bias` of `config`."""
        super().__init__()
        self.cell_clip = config.cell_clip
        self.projection_clip = config.projection_clip
        self.forget_bias = config.forget_bias
        self.input_linear = nn.Linear(config.projection_size, 4 * config.cell_size)
        self.recurrent_linear = nn.Linear(config.projection_size, 4 * config.cell_size, bias=False)
        self.projection = (
            nn.Linear(config.cell_size, config.projection_size, bias=False) if config.cell_projection else None
        )

    @torch.no_grad()
    def init_parameters(self) -> None:
        """Draws random weights as bilm-tf does (TensorFlow's Glorot default); loaded parameters do not change."""
        # TensorFlow holds both products in one kernel of [P + P, 4H].
        linear = self.input_linear
        limit = math.sqrt(6 / (2 * linear.in_features + linear.out_features))
        init.uniform_(linear.weight, -limit, limit)
        init.zeros_(linear.bias)
        init.uniform_(self.recurrent_linear.weight, -limit, limit)
        if self.projection is not None:
            init.xavier_uniform_(self.projection.weight)

    def forward(
        self, inputs: Tensor, mask: Tensor, hidden: Tensor, cell: Tensor, reverse: bool, resets: Tensor | None = None
    ) -> Scanned:
        """Scans the words one by one, from the last to the first if `reverse`.

        Takes inputs `(B, T, P)`, and hidden `(B, P)` and cell `(B, H)` before the first word read. Returns outputs in
        text order, zero where the mask is False, and the last hidden and cell. `mask` `(B, T)` is True on words,
        `resets` `(B, T)` on words before which the state is set to zero; None means never.
        """
        if inputs.numel() == 0 and not is_exporting():
            return inputs, hidden, cell
        keeps = torch.ones_like(mask) if resets is None else ~resets

        def step(state: State, word: Tensors) -> Stepped:
            hidden, cell = self.masked_step(*word, *state)
            return (hidden, cell), hidden

        # (T, B, 4H), (T, B, 1), (T, B, 1)
        words = (self.input_linear(inputs).transpose(0, 1), mask.t().unsqueeze(-1), keeps.t().unsqueeze(-1))
        (hidden, cell), outputs = scan_words(step, (hidden, cell), words, reverse)
        return outputs.transpose(0, 1).masked_fill(~mask.unsqueeze(-1), 0), hidden, cell

    def masked_step(
        self, gate_input: Tensor, is_word: Tensor, keeps: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Computes one position from `gate_input` `(B, 4H)` and two flags `(B, 1)`.

        Where `keeps` is False, the state is first set to zero. Where `is_word` is False, no word is read.
        """
        hidden = hidden * keeps
        cell = cell * keeps
        next_hidden, next_cell = self.step(gate_input + self.recurrent_linear(hidden), cell)
        return torch.where(is_word, next_hidden, hidden), torch.where(is_word, next_cell, cell)

    def step(self, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Maps z `(B, 4H)` of one word and `cell` `(B, H)` to the next hidden and cell."""
        return lstmp_step(gates, cell, self.forget_bias, self.projection, Limits(self.cell_clip, self.projection_clip))

    def weights(self) -> Weights:
        """The parameters for the fast scans; their bias includes the forget bias."""
        linear = self.input_linear
        weight_of = current_kernels().weight_of
        quarter = linear.out_features // 4
        forget_bias = nn.functional.pad(linear.bias.new_full((quarter,), self.forget_bias), (quarter, 2 * quarter))
        return Weights(
            weight_of(linear),
            forget_bias + linear.bias,
            weight_of(self.recurrent_linear),
            None if self.projection is None else weight_of(self.projection),
        )


def lstmp_step(
    gates: Tensor, cell: Tensor, forget_bias: float, projection: nn.Module | None, limits: Limits
) -> tuple[Tensor, Tensor]:
    """Maps z `(B, 4H)` of one word, without the forget bias, and `cell` `(B, H)` to the next hidden and cell."""
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
    remembered = (forget_gate + forget_bias).sigmoid() * cell
    cell = clip(remembered + input_gate.sigmoid() * candidate.tanh(), limits.cell)
    hidden = output_gate.sigmoid() * cell.tanh()
    if projection is not None:
        hidden = clip(projection(hidden), limits.projection)
    return hidden, cell


def clip(tensor: Tensor, limit: float | None) -> Tensor:
    """Limits absolute values, as `torch.clamp`; the gradient is 1 inside the limits and at them, 0 outside.

    `torch.clamp` alone has gradient 0 at its limits from torch 2.14 on.
    """
    if limit is None:
        return tensor
    return torch.where(tensor.abs() <= limit, tensor, tensor.clamp(-limit, limit))


# ---- The biLM --------------------------------------------------------------------------------------------------------
#
# The biLM: stacks of LSTMPs, forward and backward, that never see each other (Peters et al. 2018, §3.1).
#
#     y_t = h_t + x_t    in layers 2 to L, with skip connections; h_t is the LSTMP's output (`LSTMP`), x_t its input
#     y_t = h_t          otherwise
#
# The output of an aligned layer k (`aligned_layers` in the config) is A_k y_t, where y_t is of both directions and
# the matrix A_k maps it into the space of another language's model (Schuster et al. 2019). The layer above reads y_t
# itself, and no matrix learns.
#
# The two directions never mix, and each passes its state from word to word. So a long text of T words can be read in
# pieces of S words. The forward direction starts at the front of the text, the backward one at its end, and each piece
# starts from the state after the piece before:
#
#     step        1                  2                      ...
#     forward     x_1 ... x_S        x_{S+1} ... x_2S
#     backward    x_{T-S+1} ... x_T  x_{T-2S+1} ... x_{T-S}
#
# After T / S steps each direction of each layer has been computed once. Memory holds the layers that are kept, and
# two pieces. The results are the same as for reading the whole text at once, up to the order of float sums and, in
# bfloat16, one rounding of the cell state between two pieces. A model with aligned layers reads every text at once,
# because their matrices mix the two directions.
#
# Glossary: D directions (2, or 1 without `bidirectional`; along the last axis the forward one comes first), B batch, T
# words, S words of a piece, P projection, H cell, L layers.
#
# As in bilm-tf and AllenNLP, the residual is not part of the state; the section "LSTMP" lists how the state differs.

try:
    from transformers.modeling_layers import GradientCheckpointingLayer
except ImportError:  # not documented; without it, gradient checkpointing is refused
    GradientCheckpointingLayer = nn.Module


class BiLMState(NamedTuple):
    """The biLM's memory after a batch: forward state after the last word, backward state after the first.

    Attributes:
        hidden: `(L, B, DP)`, projected and clipped.
        cell: `(L, B, DH)`, clipped.
    """

    hidden: Tensor
    cell: Tensor

    def resize(self, batch_size: int) -> "BiLMState":
        """Keeps the first `batch_size` rows and adds rows of zeros for missing ones.

        Source: how AllenNLP's `_EncoderBase._get_initial_states` treats batches that shrink and grow.
        """
        padding = (0, 0, 0, max(batch_size - self.hidden.shape[1], 0))
        return BiLMState(*(nn.functional.pad(tensor[:, :batch_size], padding) for tensor in self))

    def update(self, newer: "BiLMState") -> "BiLMState":
        """Replaces the first rows by the rows of `newer`, the state of a smaller batch; the other rows stay.

        Source: AllenNLP's `_EncoderBase._update_states`.
        """
        pairs = zip(newer, self, strict=True)
        return BiLMState(*(torch.cat([new, old[:, new.shape[1] :]], dim=1) for new, old in pairs))


# `torch.export.save` writes this name into `.pt2` files, so it must never change. It is registered on import, because a
# process that opens such a file needs it too.
register_namedtuple(BiLMState, "elmo_hf.lstmp.BiLMState")


class BiLMLayer(GradientCheckpointingLayer):
    """All directions of one layer; each direction reads its own part of the output of the layer below."""

    def __init__(self, config: ElmoConfig, has_skip_connection: bool) -> None:
        """Makes an `LSTMP` per direction; with `has_skip_connection` the input is added to the output."""
        super().__init__()
        self.has_skip_connection = has_skip_connection
        self.forward_lstm = LSTMP(config)
        if config.bidirectional:
            self.backward_lstm = LSTMP(config)

    @property
    def lstms(self) -> list[LSTMP]:
        """The D directions."""
        return cast(list[LSTMP], list(self.children()))

    def forward(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        """Maps inputs `(B, T, DP)`, hidden `(B, DP)` and cell `(B, DH)` to outputs and last state in these shapes."""
        layout = layout.on(inputs.device)
        if is_exporting():
            outputs, hidden, cell = self._scan_by_modules(inputs, layout, hidden, cell)
        else:
            outputs, hidden, cell = self._scan(inputs, layout, hidden, cell)
        if self.has_skip_connection:
            outputs = outputs + inputs
        return outputs, hidden, cell

    @torch.compiler.disable  # a compiled graph breaks here: the fast scan depends on the lengths of the texts
    def _scan(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        has_words = inputs.numel() > 0 and not inputs.is_meta
        if has_words and self.can_scan_fast():
            return self._scan_fast(inputs, layout, hidden, cell)
        return self._scan_by_modules(inputs, layout, hidden, cell)

    def can_scan_fast(self) -> bool:
        """Whether the fast scans give the same result as the layer's modules.

        The reference runs with adapters, hooks, offloading, `torch.func`, or weights that the kernels cannot read.
        """
        modules = [module for lstm in self.lstms for module in lstm.modules()]
        return (
            not has_transforms()
            and all(type(module) in (LSTMP, nn.Linear) and not is_hooked(module) for module in modules)
            and all(map(current_kernels().supports, self.parameters()))
        )

    def _scan_fast(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        first = self.forward_lstm  # both have the same limits
        dtype = autocast_dtype(inputs.device.type) or inputs.dtype
        weights = [lstm.weights() for lstm in self.lstms]
        limits = Limits(first.cell_clip, None if first.projection is None else first.projection_clip)
        return scan_layer(inputs, layout, hidden.to(dtype), cell, weights, limits)

    def _scan_by_modules(self, inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor) -> Scanned:
        """Scans each direction by itself with `LSTMP.forward`."""
        lstms = self.lstms
        input_parts = inputs.chunk(len(lstms), dim=-1)
        hidden_parts = hidden.chunk(len(lstms), dim=-1)
        cell_parts = cell.chunk(len(lstms), dim=-1)
        outputs = []
        last_hidden = []
        last_cell = []
        for index, lstm in enumerate(lstms):
            resets = None
            if layout.resets is not None:
                resets = layout.resets[index]
            is_backward = index == 1
            scanned = lstm(input_parts[index], layout.mask, hidden_parts[index], cell_parts[index], is_backward, resets)
            outputs.append(scanned[0])
            last_hidden.append(scanned[1])
            last_cell.append(scanned[2])
        return torch.cat(outputs, dim=-1), torch.cat(last_hidden, dim=-1), torch.cat(last_cell, dim=-1)


class BiLM(nn.Module):
    """The stack of layers over the token vectors.

    Source: `_build_ops` of `BidirectionalLanguageModelGraph` in bilm-tf, `ElmoLstm` in AllenNLP.
    """

    piece_words = 2048  # S
    alignment: Tensor

    def __init__(self, config: ElmoConfig) -> None:
        """Makes `num_hidden_layers` layers; skip connections, if any, start at the second layer.

        The buffer `alignment` `(K, DP, DP)` has the matrices of the K `aligned_layers`.
        """
        super().__init__()
        self.projection_size = config.projection_size
        self.cell_size = config.cell_size
        self.num_directions = config.num_directions
        self.layers = nn.ModuleList(
            BiLMLayer(config, has_skip_connection=config.use_skip_connections and index > 0)
            for index in range(config.num_hidden_layers)
        )
        self.aligned_layers = [*(config.aligned_layers or ())]
        if self.aligned_layers:
            width = self.num_directions * self.projection_size
            self.register_buffer("alignment", torch.empty(len(self.aligned_layers), width, width))

    def init_parameters(self) -> None:
        """Starts with identities as matrices of aligned layers."""
        if self.aligned_layers:
            init.copy_(self.alignment, torch.eye(self.alignment.shape[-1]).expand_as(self.alignment))

    def forward(
        self,
        token_vectors: Tensor,
        mask: Tensor,
        state: BiLMState | None = None,
        resets: Sequence[Tensor] | None = None,
        dropout: float = 0.0,
    ) -> tuple[list[Tensor], BiLMState]:
        """Runs all layers.

        Args:
            token_vectors: `(B, T, P)`, zero where the mask is False; or `(B, T, DP)` if each direction reads its own
                text. The words are in text order for the backward direction too.
            mask: `(B, T)`, True on words.
            state: from the previous batch, or None for zeros.
            resets: for each direction `(B, T)`, True on words before which its state is set to zero; None means never.
            dropout: probability of dropping an element of each layer's input; a skip connection adds the input after
                dropout, as in bilm-tf.

        Returns:
            L+1 tensors `(B, T, DP)`, and the state after this batch, detached. The first tensor is `token_vectors`, one
            copy per direction if they are `(B, T, P)`. Aligned layers are multiplied by their matrices.

        Raises:
            ValueError: if the state has the wrong shape for this batch.
        """
        hidden, cell = self._initial_state(token_vectors, state)
        is_shared = token_vectors.shape[-1] == self.projection_size
        outputs = [torch.cat([token_vectors] * self.num_directions, dim=-1) if is_shared else token_vectors]
        layout = BatchLayout(mask, resets, self.num_directions)
        last_hidden = []
        last_cell = []
        for layer, layer_hidden, layer_cell in zip(self.layers, hidden, cell, strict=True):
            inputs = outputs[-1]
            if dropout > 0:
                inputs = nn.functional.dropout(inputs, dropout)
            output, next_hidden, next_cell = layer(inputs, layout, layer_hidden, layer_cell)
            outputs.append(output)
            last_hidden.append(next_hidden)
            last_cell.append(next_cell)
        for index, number in enumerate(self.aligned_layers):
            outputs[number] = outputs[number] @ self.alignment[index].T
        return outputs, BiLMState(torch.stack(last_hidden).detach(), torch.stack(last_cell).detach())

    def read_in_pieces(
        self,
        token_vectors: Callable[[slice], Tensor],
        length: int,
        keep: Callable[[list[Tensor]], Tensor],
        state: BiLMState | None = None,
    ) -> tuple[Tensor, BiLMState]:
        """Reads texts of equal length T in pieces, in evaluation mode and without gradient.

        Args:
            token_vectors: returns the vectors `(B, n, P)` of a part of the texts, boundaries included.
            length: T, at least 1.
            keep: maps the L+1 layers `(B, n, DP)` of a piece to the tensors to keep, `(K, B, n, DP)`. It must work
                element by element, because in a piece the forward and the backward half of a vector belong to
                different words.
            state: from the previous batch, or None for zeros.

        Returns:
            the kept tensors, `(K, B, T, DP)`, and the state after these texts.
        """
        whole: Tensor | None = None
        piece_words = length if self.aligned_layers else self.piece_words
        for start in range(0, length, piece_words):
            stop = min(start + piece_words, length)
            parts = [slice(start, stop)]
            if self.num_directions == 2:
                parts.append(slice(length - stop, length - start))
            vectors = torch.cat([token_vectors(part) for part in parts], dim=-1)
            layers, state = self(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool), state)
            piece = keep(layers)
            if whole is None:
                whole = piece.new_empty(*piece.shape[:2], length, piece.shape[-1])
            targets = whole.chunk(len(parts), -1)
            sources = piece.chunk(len(parts), -1)
            for part, target, source in zip(parts, targets, sources, strict=True):
                target[:, :, part] = source
        return cast(Tensor, whole), cast(BiLMState, state)

    def _initial_state(self, token_vectors: Tensor, state: BiLMState | None) -> BiLMState:
        num_layers = len(self.layers)
        batch_size = token_vectors.shape[0]
        shapes = [
            (num_layers, batch_size, self.num_directions * self.projection_size),
            (num_layers, batch_size, self.num_directions * self.cell_size),
        ]
        if state is None:
            return BiLMState(*(token_vectors.new_zeros(shape) for shape in shapes))
        for name, tensor, shape in zip(BiLMState._fields, state, shapes, strict=True):
            check_shape(f"state.{name}", tensor, shape)  # `state.resize` changes the batch size
        return BiLMState(*(tensor.to(token_vectors.device, token_vectors.dtype) for tensor in state))
