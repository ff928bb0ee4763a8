# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""Fast scans of one biLM layer over a batch: words only, all directions in step, with a gradient of their own.

The packed scan gives the same numbers as the reference, `LSTMP.forward`, up to the order of float sums. Step t of all
directions, each in its reading order (`ReadingOrder`), is computed together for the texts that have a word there:

    z_t = W_x x_t + b + W_h h_{t-1}     W_x x_t for many t at once; b includes the forget bias
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p m_t,  m_t = o_t tanh(c_t)

Backward, with e_t the gradient of the output at t and 1[.] a clip's gradient (1 inside and at the limits, else 0):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t += dm_t o_t (1 - tanh^2 c_t),  then  dc_t 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

The gradient of each weight is one product after the steps. Where the state is reset, h_{t-1} and c_{t-1} are 0.

Words are rows: z of a step is (b_t, 4H), and W h is a product of a large weight with few vectors (`Products`). In
half precision, products are in half precision, and gates and cells in float32.

Memory for the gradient: 5H + 3P numbers per word, direction and layer (gates, cells, and vectors of width P), and
about 7H + P more during the backward pass. Without gradient only the output grows with the length of the text.

Glossary: D directions, B batch, T positions, b_t texts that have a word at step t, N words, P projection, H cell.

From top to bottom: private names of torch, a loop over words for exported graphs, an LSTMP's parameters, products of
large weights, the reading order of a batch, the operations of a processor, and the packed scan. Everything takes and
returns tensors and imports only torch. The slow reference is `LSTMP.forward` in `layers_elmo.py`.
"""

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# ---- Private names of torch ------------------------------------------------------------------------------------------
#
# The private names of torch that this code uses, with what takes the place of each.
#
# A saved folder is opened for years, and any version of torch may remove a private name or change its arguments. So
# each name is looked up here and nowhere else, when it is needed. Without it, the numbers are the same up to the
# order of float sums, except that bfloat16 is rounded elsewhere:
#
#     torch._C._are_functorch_transforms_active      a function is called that `torch.func` refuses: 25 microseconds more
#     torch._higher_order_ops.scan.scan              nothing can be exported; the error says so
#     torch.utils._pytree._register_namedtuple       `torch.export.save` refuses programs that take or return `BiLMState`
#     torch.cpu._is_amx_tile_supported               the public list of the processor's instructions is read
#     torch.cpu._is_avx512_bf16_supported            as above
#     torch.ops.mkldnn._is_mkldnn_bf16_supported     oneDNN counts as able to use those instructions
#     torch.ops.mkldnn._linear_pointwise             torch multiplies in blocks, for any number of vectors: slower
#     torch.ops.mkldnn._reorder_linear_weight        no copy in oneDNN's layout: bfloat16 is slower
#
# Neither documented nor private are the following names:
#
#     torch.lstm                                     a task's LSTM takes its steps in Python: slower
#     torch.get_autocast_dtype                       the dtype of autocast is that of a product: a few microseconds more
#     torch.jit.is_tracing                           `torch.jit.trace` is gone, so nothing is traced
#     _forward_hooks and others of `nn.Module`       every module counts as hooked, so the reference runs: much slower
#
# Glossary: b vectors; a weight is `(m, n)`.


class _RefusedByTransforms(torch.autograd.Function):
    """A function that `torch.func` refuses, because its `forward` takes the context."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor


def has_transforms() -> bool:
    """Whether a transform of `torch.func` is active."""
    try:
        return torch._C._are_functorch_transforms_active()
    except AttributeError:
        return is_refused_by_transforms()


def is_refused_by_transforms() -> bool:
    """Whether a transform of `torch.func` is active, by what it refuses."""
    try:
        _RefusedByTransforms.apply(torch.empty(0, device="cpu"))
    except RuntimeError:
        return True
    return False


def is_tracing() -> bool:
    """Whether `torch.jit.trace` makes a graph."""
    try:
        return torch.jit.is_tracing()
    except AttributeError:
        return False


def is_hooked(module: nn.Module) -> bool:
    """Whether more than the module's own `forward` runs when it is called, or may run."""
    try:
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    except AttributeError:
        return True
    return any(hooks) or "forward" in vars(module)  # accelerate sets `forward` on the instance


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype of products under autocast on a kind of device; None without autocast."""
    if not torch.is_autocast_enabled(device):
        return None
    try:
        return torch.get_autocast_dtype(device)
    except AttributeError:
        one = torch.ones(1, 1, device=device)
        return torch.mm(one, one).dtype


def scan_operator() -> Callable[..., Any]:
    """Returns torch's operator for a loop over words.

    Raises:
        ImportError: if this torch does not have it.
    """
    try:
        from torch._higher_order_ops.scan import scan
    except ImportError as error:
        raise ImportError(
            f"a model is exported with torch's scan operator, which torch {torch.__version__} does not have under the "
            "name `torch._higher_order_ops.scan.scan`: export with torch 2.13."
        ) from error
    return scan


def register_namedtuple(cls: type, name: str) -> None:
    """Lets `torch.export.save` write a class of named tuples under a name, if this torch can."""
    try:
        from torch.utils._pytree import _register_namedtuple
    except ImportError:
        return
    _register_namedtuple(cls, serialized_type_name=name)


def lstm(inputs: Tensor, state: list[Tensor], weights: list[Tensor]) -> Tensor | None:
    """Outputs of an LSTM with torch's weights, all texts first; None if this torch cannot be called so."""
    try:
        function = torch.lstm
    except AttributeError:
        return None
    # With a gradient, cuDNN must be told that it trains.
    return function(inputs, state, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)[0]


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16, and oneDNN may use them."""
    return has_bfloat16() and torch.backends.mkldnn.is_available() and may_use_bfloat16()


def has_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    try:
        has_instructions = torch.cpu._is_amx_tile_supported(), torch.cpu._is_avx512_bf16_supported()
    except AttributeError:
        has_instructions = bool(processor().get("amx_tile")), bool(processor().get("avx512_bf16"))
    return any(has_instructions)


def may_use_bfloat16() -> bool:
    """Whether oneDNN may use the processor's instructions for bfloat16, which its environment can forbid."""
    try:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except AttributeError:
        return True


def processor() -> Mapping[str, Any]:
    """The processor's name and instructions; empty in a torch before 2.9."""
    try:
        return torch.cpu.get_capabilities()
    except AttributeError:
        return {}


@functools.cache
def has_onednn() -> bool:
    """Whether `by_onednn` computes products of plain weights in this torch."""
    one = torch.ones(2, 2, device="cpu")
    try:
        sums = by_onednn(one, one, one), by_onednn(one, one, one[0])
    except (AttributeError, RuntimeError, TypeError):
        return False
    return all(torch.equal(each, one + 2) for each in sums)


@functools.cache
def has_onednn_layout() -> bool:
    """Whether `in_onednn_layout` makes copies of weights that `by_onednn` multiplies in this torch."""
    one = torch.ones(2, 2, device="cpu")
    try:
        return torch.equal(by_onednn(one, in_onednn_layout(one, 2), None), one + 1)
    except (AttributeError, RuntimeError, TypeError):
        return False


def by_onednn(rows: Tensor, weight: Tensor, plus: Tensor | None) -> Tensor:
    """Rows `(b, n)` times the transpose of a weight, plain or in the layout, plus `(b, m)`, `(1, m)` or `(m,)`."""
    if plus is not None and plus.dim() == 2 and len(plus) > 1:
        return torch.ops.mkldnn._linear_pointwise.binary(rows, plus, weight, None, "add")
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None if plus is None else plus.flatten(), "none", [], "")


def in_onednn_layout(weight: Tensor, rows: int) -> Tensor:
    """A copy of a weight in oneDNN's own layout, which is best for a number of rows."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


# ---- A loop over words -----------------------------------------------------------------------------------------------
#
# A loop over words as one operator of an exported graph, so that one graph serves every length.
#
#     (s_t, y_t) = step(s_{t-1}, x_t)        t = 1 .. T, or from T down to 1
#
# In eager mode it is a Python loop. `torch.export` would unroll that loop and make one graph for each length T; torch's
# scan operator holds the step once.

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


# ---- The parameters of a scan ----------------------------------------------------------------------------------------
#
# The parameters of an LSTM with projection, as the scans take them. Glossary: D directions, P projection, H cell.

Scanned = tuple[Tensor, Tensor, Tensor]  # outputs, then hidden and cell after the last word


class Weights(NamedTuple):
    """The parameters of one direction, or of D directions with D as the first axis of each shape."""

    inputs: Tensor  # (4H, P), W_x
    bias: Tensor  # (4H,), b, with the forget bias added
    recurrent: Tensor  # (4H, P), W_h
    projection: Tensor | None  # (P, H), W_p, or None if P = H and nothing is projected

    def to(self, dtype: torch.dtype) -> "Weights":
        """The same in another dtype."""
        tensors: list[Any] = [None if tensor is None else tensor.to(dtype) for tensor in self]
        return Weights(*tensors)


class Limits(NamedTuple):
    """Clipping limits; None means unlimited."""

    cell: float | None
    projection: float | None  # None where nothing is projected


def stack(weights: list[Weights]) -> Weights:
    """Joins the parameters of several directions; does not copy the parameters of a single direction."""

    def join(parts: tuple[Any, ...]) -> Any:
        if not isinstance(parts[0], Tensor):
            return parts[0]  # None, or products of one direction
        return parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)

    return Weights(*map(join, zip(*weights, strict=True)))


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Whether autograd is on and any of the tensors requires a gradient."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


# ---- Products --------------------------------------------------------------------------------------------------------
#
# Products of a large weight with few vectors, at the speed of memory.
#
#     y = W v + c      W (m, n); b vectors v, the rows of (b, n), give the rows of (b, m): a step of an LSTM for b texts
#
# With b in the tens, each weight that is read from memory is used for only a few multiplications. So the order in
# which W lies in memory decides the speed (docs/speed.md):
#
#     8 vectors or more    oneDNN; up to 64 vectors are its second factor, which it copies before it multiplies
#     else                 a batched product of blocks of W's rows; each block fits a core's cache
#     always               oneDNN, with a copy of W in its own layout, if such a copy is kept
#
# In bfloat16, oneDNN multiplies any number of vectors, and 8 steps repay the copy. On a processor without
# instructions for bfloat16, W is a float32 copy, and products are rounded to bfloat16. On AMD's processors MKL,
# torch's library, multiplies blocks fastest as W v^T where W has more rows than columns, and blocks spread a single
# vector over the cores.
#
# Large weights are multiplied one direction at a time, D = 1; small weights of D directions are one batched product.

IS_AMD = str(processor().get("cpu_name")).startswith("AMD")
# The numbers of vectors from which on oneDNN is faster, and the weight its second factor; the layout serves any number.
ONEDNN_ROWS, MANY_ROWS = 8, 64
# By dtype, how many steps repay the copy.
REPAYS = {torch.bfloat16: 8}


class Products(Protocol):
    """A weight that multiplies vectors."""

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """W times each of the rows `(D, b, n)`, as `(D, b, m)`, plus a tensor of that shape or `(D, 1, m)`."""


class PlainProducts:
    """A weight `(D, m, n)` as it is."""

    def __init__(self, weight: Tensor, block_bytes: int, is_amd: bool = IS_AMD) -> None:
        """Takes the bytes of a block."""
        self.weight, self.columns, self.block_bytes, self.is_amd = weight, weight.mT, block_bytes, is_amd

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        weight, (directions, count, _) = self.weight, rows.shape
        of_onednn = directions == 1 and (count >= ONEDNN_ROWS or weight.dtype == torch.bfloat16)
        if of_onednn and can_take_onednn(weight[0]):
            if count >= MANY_ROWS or weight.dtype == torch.bfloat16:
                return by_onednn(rows[0], weight[0], None if plus is None else plus[0])[None]
            product, sums = by_onednn(weight[0], rows[0], None).t(), rows.new_empty(1, count, weight.shape[1])
            return sums.copy_(product) if plus is None else torch.add(plus, product, out=sums)
        blocks = self.num_blocks(count)
        if blocks == 1:
            return torch.bmm(rows, self.columns) if plus is None else torch.baddbmm(plus, rows, self.columns)
        in_blocks = weight.view(blocks, -1, weight.shape[2])
        if self.is_amd and weight.shape[1] > weight.shape[2]:
            products = torch.bmm(in_blocks, rows.mT.expand(blocks, -1, -1)).permute(2, 0, 1)
        else:
            products = torch.bmm(rows.expand(blocks, -1, -1), in_blocks.mT).transpose(0, 1)
        products = products[None]  # (1, b, blocks, m / blocks)
        return (products if plus is None else plus.unflatten(2, (blocks, -1)) + products).flatten(2).contiguous()

    def num_blocks(self, count: int) -> int:
        """The number of blocks for `count` vectors: a power of two, so that a block has at least as many rows."""
        directions, height, _ = self.weight.shape
        if directions > 1 or self.weight.device.type != "cpu" or (count == 1 and not self.is_amd):
            return 1
        most = min(height // count, self.weight.nbytes // self.block_bytes)
        return math.gcd(height, 1 << max(most.bit_length() - 1, 0))


class PackedProducts:
    """A weight `(m, n)` in oneDNN's layout."""

    def __init__(self, weight: Tensor) -> None:
        """Copies the weight into the layout."""
        self.packed = in_onednn_layout(weight.detach(), ONEDNN_ROWS)

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        return by_onednn(rows[0], self.packed, None if plus is None else plus[0])[None]


class WideProducts(NamedTuple):
    """A weight in bfloat16 that multiplies as a copy in float32 does."""

    products: Products  # of the copy

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        return self.products.times(rows.float(), None if plus is None else plus.float()).to(rows.dtype)


class WeightProducts(NamedTuple):
    """`Weights` of D directions whose matrices multiply vectors; the bias is `(D, 1, 4H)`."""

    inputs: Products
    bias: Tensor
    recurrent: Products
    projection: Products | None


def can_take_onednn(weight: Any, multiplies_bfloat16: bool = True) -> bool:
    """Whether oneDNN multiplies a weight: it must be a plain tensor on a CPU, in float32, or in bfloat16 if told so."""
    if type(getattr(weight, "data", None)) is not Tensor or is_tracing():  # no tracing through oneDNN
        return False
    dtypes = (torch.float32, torch.bfloat16)[: 1 + multiplies_bfloat16]
    is_possible = weight.dtype in dtypes and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    return is_possible and has_onednn()


def can_pack(weight: Any, multiplies_bfloat16: bool = True) -> bool:
    """Whether oneDNN multiplies a weight, and a copy of it in its own layout."""
    return can_take_onednn(weight, multiplies_bfloat16) and has_onednn_layout()


# ---- The reading order -----------------------------------------------------------------------------------------------
#
# The order in which each direction reads the words of a batch, without the padding.
#
# Texts are sorted by falling word count. At step t the forward direction reads word t of each text, the backward
# direction word t from the end. Only texts with more than t words take part, and they come first. So the N words of a
# batch are arranged step by step, each step in the order of the texts:
#
#     step 0: words of all texts | step 1: words of texts with two words or more | ...      b_0 >= b_1 >= ... words
#
# Positions where the mask is False are not read, wherever they are, and do not change the state.
#
# Glossary: D directions, B batch, T positions, N words, b_t texts that take part in step t.


class ReadingOrder(NamedTuple):
    """How the words of a batch are read."""

    texts: Tensor  # (B,), the batch row of each text, by falling word count
    ranks: Tensor  # (B,), the inverse: the index in `texts` of each batch row
    places: Tensor  # (D, N), for each word that a direction reads: its index among the B T positions
    columns: list[int]  # b_t of every step
    keeps: Tensor | None  # (D, N), False on words before which the state is reset; None means no resets
    keeps_at_end: Tensor | None  # (D, B), in the order of `texts`, False on those reset after the last word


def reading_order(mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> ReadingOrder:
    """Computes the reading order from `mask` and `resets` of a `BatchLayout`; waits for the GPU if they are on one.

    A reset at a position without a word applies to the next word read.
    """
    lengths = mask.sum(dim=1)
    texts = lengths.argsort(descending=True, stable=True)
    ranks = texts.argsort()
    words = mask.flatten().nonzero().squeeze(1)
    rows = words.div(mask.shape[1], rounding_mode="floor")
    before = mask.cumsum(dim=1) - mask.long()  # (B, T), words of the text before each position
    after = lengths.unsqueeze(1) - mask.cumsum(dim=1)
    counts = (before, after)[:num_directions]
    steps = [count.flatten()[words] for count in counts]
    places = torch.stack([words[(step * len(texts) + ranks[rows]).argsort()] for step in steps])
    keeps, keeps_at_end = [], []
    for reset, step, place in zip(resets or (), counts, places, strict=False):
        resets_before = mask.new_zeros(mask.shape[0], mask.shape[1] + 1, dtype=torch.long)
        resets_before.scatter_add_(1, step, reset.long())  # column n: before the word read after n others
        keeps.append(resets_before.gather(1, step).flatten()[place] == 0)
        keeps_at_end.append(resets_before.gather(1, lengths.unsqueeze(1)).squeeze(1)[texts] == 0)
    stacked = [torch.stack(flags) if flags else None for flags in (keeps, keeps_at_end)]
    return ReadingOrder(texts, ranks, places, torch.bincount(steps[0]).tolist(), *stacked)


class BatchLayout:
    """The positions of words and of resets of the state in a batch, for all layers."""

    def __init__(self, mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes the reading order on first use.

        `resets` is `(B, T)` for each direction, True on words before which its state is set to zero; None means never.
        """
        self.mask, self.resets, self.num_directions = mask, resets, num_directions

    def on(self, device: torch.device) -> "BatchLayout":
        """The same layout on another device."""
        if device == self.mask.device:
            return self
        resets = None if self.resets is None else [reset.to(device) for reset in self.resets]
        return BatchLayout(self.mask.to(device), resets, self.num_directions)

    @functools.cached_property
    def order(self) -> ReadingOrder:
        """The reading order; waits for the GPU if the mask is on one."""
        return reading_order(self.mask, self.resets, self.num_directions)


# ---- The operations of a processor -----------------------------------------------------------------------------------
#
# The operations of a scan that may be computed differently on each processor.
#
# The class here needs only torch, and its code is saved with a model. The package `elmo_hf` uses a subclass by default,
# with Triton's kernels, weights in eight bits and kept copies of weights (its `kernels/processor_kernels.py`). Both classes compute
# the same numbers up to the order of float sums, except that weights in eight bits are rounded.
#
# Glossary: D directions, b vectors.


@dataclass(eq=False)
class Kernels:
    """The operations by torch alone. Other sizes than those below change the speed, and the rounding of results."""

    default: ClassVar["Kernels"]

    # If W_h has at most this many bytes, both directions take each step together, which saves calls. Larger weights run
    # one direction after the other, so that its weights stay in the cache from step to step.
    joint_bytes: int = 1 << 22
    # Bytes of weights in one block of a product: half of the smallest second-level cache of today's servers.
    block_bytes: int = 1 << 19
    # Words whose W_x x_t is computed in one product: enough to be fast; 8 MiB for each direction at H = 4096.
    block_words: int = 128
    # Smaller weights stay in the cache in any layout.
    large_bytes: int = 1 << 21
    # By dtype, the fewest steps for which a scan packs its weights.
    repays: dict[torch.dtype, int] = field(default_factory=lambda: REPAYS)
    is_amd: bool = IS_AMD
    multiplies_bfloat16: bool = field(default_factory=multiplies_bfloat16)

    def serves(self, weight: Tensor) -> bool:
        """Whether the scans can use a module's weight, which quantisation may have replaced."""
        return type(weight.data) is Tensor

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan."""
        return linear.weight

    def apply(self, module: Any, inputs: Tensor) -> Tensor:
        """`module(inputs)`: on a CPU a large linear without gradient as in a scan; a convolution as a product."""
        device, dtype = inputs.device.type, inputs.dtype
        is_plain, cast_dtype = not is_hooked(module), autocast_dtype(device)
        if is_plain and type(module) is nn.Linear and not torch.is_grad_enabled() and self.serves(module.weight):
            weight = self.weight_of(module)
            is_large = isinstance(weight, Tensor) and weight.is_cpu and weight.nbytes >= self.large_bytes
            if not isinstance(weight, Tensor) or (is_large and cast_dtype is None):
                return self.products([weight]).times(inputs[None], module.bias[None, None])[0]
        if self.must_widen(cast_dtype or dtype, device):
            with torch.autocast(device, enabled=False):
                parameters = {name: parameter.float() for name, parameter in module.named_parameters()}
                return torch.func.functional_call(module, parameters, inputs.float()).to(dtype)
        if is_plain and type(module) is nn.Conv1d:  # oneDNN takes twice the time, cuDNN 1 ms for each new shape
            windows = inputs.unfold(2, module.weight.shape[2], 1).transpose(1, 2).flatten(2)  # (N, positions, E width)
            return nn.functional.linear(windows, module.weight.flatten(1), module.bias).transpose(1, 2)
        return module(inputs)

    def run_steps(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps of a scan at once, as `run_packed` does; None if these kernels cannot."""
        return None

    def run_steps_back(self, *arguments: Any) -> tuple[Tensor, Tensor] | None:
        """Runs all steps backward at once, as `run_packed_back` does; None if these kernels cannot."""
        return None

    def at_once(self, weights: list[Weights]) -> int:
        """How many directions take each step together."""
        return 1 if weights[0].recurrent.nbytes > self.joint_bytes else len(weights)

    def join(self, weights: list[Weights], steps: int) -> WeightProducts:
        """Makes products from the weights of directions that step together."""
        inputs, biases, recurrents, projections = zip(*weights, strict=True)
        recurrent = self.products(recurrents, steps)
        projection = None if projections[0] is None else self.products(projections, steps)
        return WeightProducts(self.products(inputs), torch.stack(biases).unsqueeze(1), recurrent, projection)

    def products(self, parts: Sequence[Tensor], steps: int = 0) -> Products:
        """Makes products from a weight `(m, n)` for each direction, for a number of steps."""
        weight = parts[0]
        if self.must_widen(weight.dtype, weight.device.type):
            return WideProducts(self.products([part.float() for part in parts]))
        if len(parts) > 1:
            return PlainProducts(torch.stack(list(parts)), self.block_bytes, self.is_amd)
        is_repaid = weight.nbytes >= self.large_bytes and steps >= self.repays.get(weight.dtype, math.inf)
        if is_repaid and can_pack(weight, self.multiplies_bfloat16):
            return PackedProducts(weight)
        return PlainProducts(weight[None], self.block_bytes, self.is_amd)

    def multiply(self, first: Tensor, second: Tensor) -> Tensor:
        """`first` `(D, k, m)` times `second` `(D, m, n)`; in bfloat16 only where the processor multiplies it."""
        if self.must_widen(first.dtype, first.device.type):
            return self.multiply(first.float(), second.float()).to(first.dtype)
        return torch.bmm(first, second) if len(first) > 1 else torch.mm(first[0], second[0])[None]

    def must_widen(self, dtype: torch.dtype, device: str) -> bool:
        """Whether products in a dtype are computed in float32: in bfloat16 where the processor does not multiply it."""
        return dtype == torch.bfloat16 and device == "cpu" and not self.multiplies_bfloat16


Kernels.default = Kernels()
_requested_kernels: ContextVar[Kernels | None] = ContextVar("kernels", default=None)


def kernels() -> Kernels:
    """The kernels that layers use now."""
    return _requested_kernels.get() or Kernels.default


@contextmanager
def using(requested: Kernels) -> Iterator[None]:
    """Requests kernels for the `with` block, in this thread."""
    token = _requested_kernels.set(requested)
    try:
        yield
    finally:
        _requested_kernels.reset(token)


def apply(module: nn.Module, inputs: Tensor) -> Tensor:
    """`module(inputs)`, a linear or a convolution, by these kernels unless a graph is being built."""
    return module(inputs) if torch.compiler.is_compiling() else kernels().apply(module, inputs)


# ---- The steps forward -----------------------------------------------------------------------------------------------

_ACTIVATIONS = torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid  # of i, f, g, o


class Trace(NamedTuple):
    """The tensors that a scan keeps for its gradient, each for all words in reading order."""

    gates: Tensor  # (D, N, 4H), i, f, g, o; at least float32
    cells: Tensor  # (D, N, H), a_t, before clipping; at least float32
    projected: Tensor  # (D, N, P), p_t, before clipping

    def part(self, directions: slice) -> "Trace":
        """The part of some directions."""
        return Trace(*(tensor[directions] for tensor in self))


def run_packed(
    inputs: Tensor,
    outputs: Tensor,
    order: ReadingOrder,
    hidden: Tensor,
    cell: Tensor,
    weights: WeightProducts,
    limits: Limits,
    block_words: int,
    trace: Trace | None,
) -> tuple[Tensor, Tensor]:
    """Runs all steps over inputs `(D, N, P)`, each direction in its reading order.

    Writes h_t after each word to outputs `(D, N, P)` and fills `trace`, if given. Takes hidden `(D, B, P)` and cell
    `(D, B, H)` before the first step, and returns them after each text's last word, in the same shapes. The texts are
    in the order of `order.texts`; the cell may have another dtype than the rest.
    """
    state_dtype = cell.dtype
    hidden, cell = last_hidden, last_cell = hidden.clone(), cell.to(wide(cell.dtype), copy=True)
    tensors = outputs, order.keeps, *(trace or (None, None, None))
    by_step = [[None] * len(order.columns) if each is None else each.split(order.columns, dim=1) for each in tensors]
    steps = zip(order.columns, _gate_inputs(weights, inputs, order, block_words), *by_step, strict=True)
    for count, gate_inputs, output, keeps, gates, cells, projected in steps:
        if count < hidden.shape[1]:  # the last rows' texts have ended; these rows stay as they are
            hidden, cell = hidden[:, :count], cell[:, :count]
        if keeps is not None:
            hidden.mul_(keeps.unsqueeze(2)), cell.mul_(keeps.unsqueeze(2))
        products = weights.recurrent.times(hidden, gate_inputs).to(cell.dtype).chunk(4, dim=2)
        parts = products if gates is None else gates.chunk(4, dim=2)
        for function, product, part in zip(_ACTIVATIONS, products, parts, strict=True):
            function(product, out=part)
        input_gate, forget_gate, candidate, output_gate = parts
        unlimited = torch.mul(forget_gate, cell, out=cell if cells is None else cells)
        _clip(unlimited.addcmul_(input_gate, candidate), limits.cell, out=cell)
        memory = cell.tanh().mul_(output_gate).to(hidden.dtype)
        unlimited = memory if weights.projection is None else weights.projection.times(memory)
        if projected is not None:
            projected.copy_(unlimited)
        output.copy_(_clip(unlimited, limits.projection, out=hidden))
    return last_hidden, last_cell.to(state_dtype)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and cells, at least float32."""
    return torch.promote_types(dtype, torch.float32)


def _gate_inputs(weights: WeightProducts, inputs: Tensor, order: ReadingOrder, block_words: int) -> Iterator[Tensor]:
    """W_x x_t + b `(D, b_t, 4H)` of each step; one product computes all words of several steps."""
    ends, start, step = list(accumulate(order.columns)), 0, 0
    while step < len(ends):
        next_step = max(step + 1, bisect_right(ends, start + block_words))
        products = weights.inputs.times(inputs[:, start : ends[next_step - 1]], weights.bias)
        yield from products.split(order.columns[step:next_step], dim=1)
        start, step = ends[next_step - 1], next_step


def _clip(tensor: Tensor, limit: float | None, out: Tensor) -> Tensor:
    return out.copy_(tensor) if limit is None else torch.clamp(tensor, -limit, limit, out=out)


# ---- The steps backward ----------------------------------------------------------------------------------------------


def run_packed_back(
    trace: Trace,
    order: ReadingOrder,
    previous_cells: Tensor,
    d_outputs: Tensor,
    d_hidden: Tensor,
    d_cell: Tensor,
    weights: Weights,
    limits: Limits,
    chosen: Kernels,
) -> tuple[Tensor, Tensor]:
    """Runs all steps, the last one first; returns dz `(D, N, 4H)` and m `(D, N, H)` of all words.

    The weights have D as the first axis. previous_cells `(D, N, H)` has c_{t-1}, zero where the state is reset.
    d_outputs `(D, N, P)` becomes dp; d_hidden `(D, B, P)` and d_cell `(D, B, H)`, the gradients of the last states,
    become those of the first states.
    """
    stop, width = trace.cells.shape[1:]
    forget_gates = trace.gates[..., width : 2 * width]
    d_gates, to_cell, memories = _factors(trace, previous_cells, limits)
    for count in reversed(order.columns):
        here, stop = slice(stop - count, stop), stop - count
        d_projected = d_outputs[:, here].add_(d_hidden[:, :count])
        if limits.projection is not None:
            d_projected *= trace.projected[:, here].abs() <= limits.projection
        d_memory = d_projected if weights.projection is None else chosen.multiply(d_projected, weights.projection)
        d_memory = d_memory.to(d_cell.dtype)
        d_here = torch.addcmul(d_cell[:, :count], d_memory, to_cell[:, here])
        if limits.cell is not None:
            d_here *= trace.cells[:, here].abs() <= limits.cell
        d_gates[:, here, : 3 * width].unflatten(2, (3, width)).mul_(d_here.unsqueeze(2))
        d_gates[:, here, 3 * width :] *= d_memory
        torch.mul(d_here, forget_gates[:, here], out=d_cell[:, :count])
        d_hidden[:, :count] = chosen.multiply(d_gates[:, here].to(d_hidden.dtype), weights.recurrent)
        if order.keeps is not None:
            d_hidden[:, :count] *= order.keeps[:, here, None]
            d_cell[:, :count] *= order.keeps[:, here, None]
    return d_gates, memories


def _factors(trace: Trace, previous_cells: Tensor, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of dz `(D, N, 4H)`, which each step multiplies in place; o (1 - tanh^2 c) and m `(D, N, H)`."""
    input_gate, forget_gate, candidate, output_gate = trace.gates.chunk(4, dim=2)
    tanh_cells = trace.cells.tanh() if limits.cell is None else trace.cells.clamp(-limits.cell, limits.cell).tanh_()
    to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
    factors = torch.empty_like(trace.gates)
    of_input, of_forget, of_candidate, of_output = factors.chunk(4, dim=2)
    torch.addcmul(input_gate, input_gate, input_gate, value=-1, out=of_input).mul_(candidate)
    torch.addcmul(forget_gate, forget_gate, forget_gate, value=-1, out=of_forget).mul_(previous_cells)
    torch.addcmul(input_gate, input_gate, candidate.square(), value=-1, out=of_candidate)
    torch.addcmul(output_gate, output_gate, output_gate, value=-1, out=of_output).mul_(tanh_cells)
    return factors, to_cell, tanh_cells.mul_(output_gate)


# ---- The packed scan -------------------------------------------------------------------------------------------------


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer by the fastest scan that can run; the products have the dtype of `hidden`.

    Takes inputs `(B, T, DP)`, not empty, and hidden `(B, DP)` and cell `(B, DH)` before the first word. Returns outputs
    in text order, zero where the mask is False, and the last hidden and cell. `weights` has one item for each
    direction.
    """
    layout, tensors, chosen = layout.on(inputs.device), [tensor for parts in weights for tensor in parts], kernels()
    with torch.autocast(inputs.device.type, enabled=False):
        if needs_gradient(inputs, hidden, cell, *tensors):
            return _PackedScan.apply(layout.order, limits, chosen, inputs, hidden, cell, *tensors)
        return _scan_words(inputs, layout.order, hidden, cell, weights, limits, chosen, None)[0]


def _scan_words(
    inputs: Tensor,
    order: ReadingOrder,
    hidden: Tensor,
    cell: Tensor,
    weights: list[Weights],
    limits: Limits,
    chosen: Kernels,
    trace: Trace | None,
) -> tuple[Scanned, Tensor]:
    """Scans as `scan_layer` does, outside autograd, and fills `trace`; also returns x_t and h_t, `(2, D, N, P)`."""
    dtype, input_dtype, last = hidden.dtype, inputs.dtype, []
    weights = [parts.to(dtype) for parts in weights]
    shape = 2, len(weights), order.places.shape[1], inputs.shape[-1] // len(weights)
    words, outputs = vectors = inputs.new_empty(shape, dtype=dtype)
    _pack(inputs, order, words)
    hidden, cell = _pack_state(hidden, order), _pack_state(cell, order)
    for part, part_order in _parts(weights, order, chosen):
        tensors = (words[part], outputs[part], part_order, hidden[part], cell[part])
        part_trace = None if trace is None else trace.part(part)
        ran = chosen.run_steps(*tensors, weights[part], limits, part_trace)
        joint = weights[part], len(order.columns)
        last.append(ran or run_packed(*tensors, chosen.join(*joint), limits, chosen.block_words, part_trace))
    states = [_keep_at_end(torch.cat(parts), order) for parts in zip(*last, strict=True)]
    hidden, cell = (_unpack_state(state, order).to(input_dtype) for state in states)
    return (_unpack(outputs, order, inputs), hidden, cell), vectors


class _PackedScan(torch.autograd.Function):
    """A layer with its gradient, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, order: ReadingOrder, limits: Limits, chosen: Kernels, *tensors: Any) -> Scanned:
        inputs, hidden, cell, *parameters = tensors
        weights = [parts.to(hidden.dtype) for parts in _by_direction(parameters)]
        (height, size), shape = weights[0].recurrent.shape, order.places.shape
        gates, cells = (cell.new_empty(*shape, each, dtype=wide(cell.dtype)) for each in (height, height // 4))
        trace = Trace(gates, cells, hidden.new_empty(*shape, size))
        scanned, vectors = _scan_words(inputs, order, hidden, cell, weights, limits, chosen, trace)
        ctx.save_for_backward(*trace, vectors, hidden, cell, *(tensor for parts in weights for tensor in parts))
        ctx.order, ctx.limits, ctx.chosen, ctx.dtype = order, limits, chosen, parameters[0].dtype
        return scanned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, projected, (words, outputs), hidden, cell, *parameters = ctx.saved_tensors
        order, limits, chosen, needs_inputs = ctx.order, ctx.limits, ctx.chosen, ctx.needs_input_grad[3]
        trace, weights = Trace(gates, cells, projected), _by_direction(parameters)
        d_words = _pack(d_outputs, order, torch.empty_like(words))
        # Rows of texts that ended before a step hold the gradient of their last state.
        d_states = [_keep_at_end(_pack_state(state, order), order) for state in (d_hidden, d_cell)]
        d_packed_hidden, d_packed_cell = d_states[0].to(words.dtype), d_states[1].to(wide(d_cell.dtype))
        clipped_cells = cells if limits.cell is None else cells.clamp(-limits.cell, limits.cell)
        previous = _previous(outputs, _pack_state(hidden, order), order)
        previous_cells = _previous(clipped_cells, _pack_state(cell, order).to(cells.dtype), order)
        d_inputs: list[Tensor] = []
        d_weights: list[Tensor | None] = []
        for part, part_order in _parts(weights, order, chosen):
            own, d_projected, of_part = stack(weights[part]), d_words[part], (trace.part(part), part_order)
            of_states = previous_cells[part], d_projected, d_packed_hidden[part], d_packed_cell[part]
            ran = chosen.run_steps_back(*of_part, *of_states, own, limits)
            d_gates, memories = ran or run_packed_back(*of_part, *of_states, own, limits, chosen)
            d_products = d_gates.to(words.dtype)
            joint = Weights(
                chosen.multiply(d_products.mT, words[part]),
                d_gates.sum(dim=1),
                chosen.multiply(d_products.mT, previous[part]),
                None if own.projection is None else chosen.multiply(d_projected.mT, memories.to(words.dtype)),
            )
            for direction in range(len(d_gates)):
                d_weights += [None if each is None else each[direction].to(ctx.dtype) for each in joint]
            if needs_inputs:
                d_inputs += chosen.multiply(d_products, own.inputs)
        return (
            *(None, None, None),
            _unpack(d_inputs, order, d_outputs) if needs_inputs else None,
            _unpack_state(d_packed_hidden, order).to(d_hidden.dtype),
            _unpack_state(d_packed_cell, order).to(d_cell.dtype),
            *d_weights,
        )


def _by_direction(tensors: Sequence[Any]) -> list[Weights]:
    """The weights of each direction, one after the other."""
    return [Weights(*tensors[start : start + 4]) for start in range(0, len(tensors), 4)]


def _parts(weights: list[Weights], order: ReadingOrder, chosen: Kernels) -> Iterator[tuple[slice, ReadingOrder]]:
    """The directions that take each step together, and their reading order."""
    at_once = chosen.at_once(weights)
    for start in range(0, len(weights), at_once):
        part = slice(start, start + at_once)
        yield part, order if order.keeps is None else order._replace(keeps=order.keeps[part])


def _pack(vectors: Tensor, order: ReadingOrder, words: Tensor) -> Tensor:
    """Fills `words` `(D, N, P)`, each direction in its reading order, from `vectors` `(B, T, DP)`."""
    for part, places, target in zip(_split(vectors, order), order.places, words, strict=True):
        target.copy_(part.index_select(0, places))
    return words


def _unpack(words: Iterable[Tensor], order: ReadingOrder, like: Tensor) -> Tensor:
    """The inverse: each direction's words `(N, P)` to a tensor like `like` `(B, T, DP)`, zero on padding."""
    vectors = torch.zeros_like(like, memory_format=torch.contiguous_format)
    for part, places, source in zip(_split(vectors, order), order.places, words, strict=True):
        part.index_copy_(0, places, source.to(like.dtype))
    return vectors


def _split(vectors: Tensor, order: ReadingOrder) -> Sequence[Tensor]:
    """Each direction's part `(B T, P)` of `(B, T, DP)`, as views."""
    return vectors.flatten(0, 1).chunk(len(order.places), dim=-1)


def _pack_state(state: Tensor, order: ReadingOrder) -> Tensor:
    """Maps `(B, DP)` to `(D, B, P)`, in the order of `order.texts`."""
    return state[order.texts].unflatten(1, (len(order.places), -1)).transpose(0, 1).contiguous()


def _keep_at_end(state: Tensor, order: ReadingOrder) -> Tensor:
    """Sets the state `(D, B, .)` to zero for texts that are reset after their last word."""
    return state if order.keeps_at_end is None else state * order.keeps_at_end.unsqueeze(2)


def _unpack_state(state: Tensor, order: ReadingOrder) -> Tensor:
    """The inverse of `_pack_state`."""
    return state.transpose(0, 1).flatten(1)[order.ranks]


def _previous(states: Tensor, first: Tensor, order: ReadingOrder) -> Tensor:
    """`(D, N, .)`, the state used at each word: `first` at the first step, then `states` after the step before."""
    ends = [0, *accumulate(order.columns)]
    before = [states[:, start : start + count] for start, count in zip(ends, order.columns[1:], strict=False)]
    previous = torch.cat([first[:, : max(order.columns, default=0)], *before], dim=1)
    return previous if order.keeps is None else previous * order.keeps.unsqueeze(2)
