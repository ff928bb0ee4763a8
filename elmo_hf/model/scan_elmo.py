# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""Fast scans of one biLM layer over a batch: words only, with a gradient of their own.

The packed scan gives the same numbers as the reference, `LSTMP.forward`, up to the order of float sums and, in half
precision, up to where it rounds. Step t is computed together for the texts that have a word there, in the reading order
of each direction (`ReadingOrder`). If W_h is small (`Kernels.joint_bytes`), both directions take step t together; in a
model of the original's size one direction runs after the other.

    z_t = W_x x_t + b + W_h h_{t-1}     W_x x_t for many t at once; b includes the forget bias
    c_t = clip(a_t),  a_t = f_t c_{t-1} + i_t g_t        i, f, o = sigmoid, g = tanh of z's four parts
    h_t = clip(p_t),  p_t = W_p m_t,  m_t = o_t tanh(c_t)        or h_t = p_t = m_t, without a clip, if there is no W_p

Here i, f, g, o are the gates after their activation. In `layers_elmo.py` z_i, z_f, z_g, z_o are the parts of z.

Backward, with e_t the gradient of the output at t and 1[.] a clip's gradient (1 inside and at the limits, else 0):

    dp_t = (e_t + dh_t) 1[p_t]        dm_t = W_p^T dp_t         dc_t <- (dc_t + dm_t o_t (1 - tanh^2 c_t)) 1[a_t]
    dz_t = (dc_t g_t i_t (1 - i_t), dc_t c_{t-1} f_t (1 - f_t), dc_t i_t (1 - g_t^2), dm_t tanh(c_t) o_t (1 - o_t))
    dh_{t-1} = W_h^T dz_t             dc_{t-1} = dc_t f_t

The gradient of each weight is one product after the steps. Where the state is reset, h_{t-1} and c_{t-1} are 0.

Words are rows: z of a step is (b_t, 4H), and W h is a product of a large weight with few vectors (`Products`). In
half precision, products are in half precision, and gates and cells in float32.

Memory for the gradient: 5H + 3P numbers per word, direction and layer (gates, cells, and vectors of width P), and
about 7H + P more during the backward pass. Without gradient only the output grows with the length of the text.

Glossary: D directions, B batch, T positions, b_t texts that have a word at step t, N words, P projection, H cell.

From top to bottom: private names of torch, a loop over words for exported graphs, an LSTMP's parameters, products of
large weights, the reading order of a batch, what the steps of a scan read and write, the operations of a processor, and
the packed scan. Everything takes and returns tensors, and the file imports only torch and the standard library. The
slow reference is `LSTMP.forward` in `layers_elmo.py`.
"""

import functools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# ---- Private names of torch ------------------------------------------------------------------------------------------
#
# The private names of torch that this code uses, with what takes the place of each.
#
# A saved folder is opened for years, and any version of torch may remove a private name or change its arguments. So
# each name is looked up here and nowhere else, when it is needed. Without it, the numbers are the same up to the
# order of float sums, except that bfloat16 is rounded elsewhere. If it is missing:
#
#     torch._C._are_functorch_transforms_active      a function is called that `torch.func` refuses: 25 us more
#     torch._higher_order_ops.scan.scan              nothing can be exported; the error says so
#     torch.utils._pytree._register_namedtuple       `torch.export.save` refuses programs that have a `BiLMState`
#     torch.cpu._is_amx_tile_supported               the public list of the processor's instructions is read
#     torch.cpu._is_avx512_bf16_supported            as above
#     torch.ops.mkldnn._is_mkldnn_bf16_supported     we assume that oneDNN may use those instructions
#     torch.ops.mkldnn._linear_pointwise             torch multiplies in blocks, for any number of vectors: slower
#     torch.ops.mkldnn._reorder_linear_weight        no copy in oneDNN's layout: bfloat16 is slower
#
# The following names are not documented either. If one is missing:
#
#     torch.lstm                                     a task's LSTM takes its steps in Python: slower
#     torch.get_autocast_dtype                       we look at the dtype of a product: a few microseconds more
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
    if device == "meta":  # of which torch's autocast does not know
        return None
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
    outputs, _, _ = function(
        inputs,
        state,
        weights,
        True,  # has_biases
        1,  # num_layers
        0.0,  # dropout
        torch.is_grad_enabled(),  # train: with a gradient, cuDNN must be told so
        False,  # bidirectional
        True,  # batch_first
    )
    return outputs


def processor_multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16, and oneDNN may use them."""
    return has_bfloat16() and torch.backends.mkldnn.is_available() and may_use_bfloat16()


def has_bfloat16() -> bool:
    """Whether this processor has instructions for products of bfloat16."""
    try:
        has_amx = torch.cpu._is_amx_tile_supported()
        has_avx512 = torch.cpu._is_avx512_bf16_supported()
    except AttributeError:
        has_amx = bool(processor().get("amx_tile"))
        has_avx512 = bool(processor().get("avx512_bf16"))
    return has_amx or has_avx512


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
        sum_of_rows = by_onednn(one, one, one)
        sum_with_bias = by_onednn(one, one, one[0])
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.equal(sum_of_rows, one + 2) and torch.equal(sum_with_bias, one + 2)


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

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Tensors = tuple[Tensor, ...]
State = Tensors  # what a step passes to the next step
# For annotations of nested functions, where torch.compile cannot read `tuple[State, Tensor]`.
Stepped = tuple[State, Tensor]


def is_exporting() -> bool:
    """Whether a graph is being exported. An exported graph must be one; `torch.compile` may make several.

    A torch without `torch.compiler.is_exporting` does not tell an export with `strict=True` from `torch.compile`. This
    is then False for such an export, so the code breaks the graph, which that export refuses.
    """
    if hasattr(torch.compiler, "is_exporting"):
        return torch.compiler.is_exporting()
    return torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling()


def breaks_compiled_graphs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Leaves a function to Python where `torch.compile` makes a graph; an exported graph holds it."""
    in_python = torch.compiler.disable(function)

    @functools.wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if is_exporting():
            return function(*args, **kwargs)
        return in_python(*args, **kwargs)

    return run


def scan_words(
    step: Callable[[State, Tensors], Stepped], state: State, words: Tensors, reverse: bool = False
) -> Stepped:
    """Runs `step` over the T > 0 words, given as tensors `(T, ...)`, from the last word to the first if `reverse`.

    `step` maps the state and one word's tensors to the next state and the word's output. Returns the state after the
    last word read, and the outputs `(T, ...)` in text order.
    """
    if is_exporting():

        def separate_step(state: State, word: Tensors) -> Stepped:
            state, output = step(state, word)
            return state, output.clone()  # the operator refuses an output that is part of the state

        # Two parts of the state must not be one tensor either. A view of one text in a batch can have other strides
        # than the step's result, but the operator requires equal strides.
        state = tuple(part.clone(memory_format=torch.contiguous_format) for part in state)
        return scan_operator()(separate_step, state, words, reverse=reverse)
    outputs: list[Tensor] = []
    places = list(range(len(words[0])))
    if reverse:
        places.reverse()
    for place in places:
        state, output = step(state, tuple(tensor[place] for tensor in words))
        outputs.append(output)
    if reverse:
        outputs.reverse()
    return state, torch.stack(outputs)


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
            return parts[0]  # None, or one of the package's weights that is no tensor (`Kernels.weight_of`)
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
# which W lies in memory decides the speed (docs/speed.md in the package's repository). On a CPU the first row that
# applies says what is done; rows with oneDNN apply where torch has it:
#
#     bfloat16 that the processor cannot multiply    W is copied to float32, and products are rounded to bfloat16.
#     several directions, whose weights are small    Their products are one batched product.
#     a large W in bfloat16, and 8 steps or more     oneDNN multiplies a copy of W in its own layout.
#     another W in bfloat16, or 64 vectors or more   oneDNN multiplies W as its second factor.
#     8 vectors or more, or 6 on AMD's processors    oneDNN takes the vectors as its second factor, which it copies.
#     one vector, on a processor not of AMD          torch multiplies W whole.
#     else                                           Blocks of W's rows, each for a core's cache, are a batched product.
#
# On AMD's processors, where W has more rows than columns, MKL, torch's library, is fastest at W V^T, V the rows (b, n).
# Blocks also pay for a single vector there: they spread it over the cores.

IS_AMD = str(processor().get("cpu_name")).startswith("AMD")
# The number of vectors from which on oneDNN is faster; a copy in its layout serves any number.
ONEDNN_ROWS = 8
ONEDNN_ROWS_ON_AMD = 6
# The number of vectors from which on the weight is oneDNN's second factor.
MANY_ROWS = 64
# By dtype, how many steps repay the copy.
STEPS_TO_REPAY = {torch.bfloat16: 8}


class Products(Protocol):
    """A weight that multiplies vectors."""

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """W times each of the rows `(D, b, n)`, as `(D, b, m)`, plus a tensor of that shape or `(D, 1, m)`."""


class PlainProducts:
    """A weight `(D, m, n)` as it is."""

    def __init__(self, weight: Tensor, block_bytes: int, is_amd: bool = IS_AMD) -> None:
        """Takes the bytes of a block."""
        self.weight = weight
        self.transposed = weight.mT
        self.block_bytes = block_bytes
        self.is_amd = is_amd
        self.onednn_rows = ONEDNN_ROWS_ON_AMD if is_amd else ONEDNN_ROWS

    def times(self, rows: Tensor, plus: Tensor | None = None) -> Tensor:
        """As in `Products`."""
        directions, count, _ = rows.shape
        is_bfloat16 = self.weight.dtype == torch.bfloat16
        is_for_onednn = directions == 1 and (count >= self.onednn_rows or is_bfloat16)
        if is_for_onednn and can_take_onednn(self.weight[0]):
            if count >= MANY_ROWS or is_bfloat16:
                return by_onednn(rows[0], self.weight[0], None if plus is None else plus[0])[None]
            return self._vectors_second(rows, plus)
        blocks = self.num_blocks(count)
        if blocks > 1:
            return self._in_blocks(rows, plus, blocks)
        if plus is None:
            return torch.bmm(rows, self.transposed)
        return torch.baddbmm(plus, rows, self.transposed)

    def _vectors_second(self, rows: Tensor, plus: Tensor | None) -> Tensor:
        """The same for one direction by oneDNN, with the vectors as its second factor."""
        product = by_onednn(self.weight[0], rows[0], None).t()
        sums = rows.new_empty(1, rows.shape[1], self.weight.shape[1])
        if plus is None:
            return sums.copy_(product)
        return torch.add(plus, product, out=sums)

    def _in_blocks(self, rows: Tensor, plus: Tensor | None, blocks: int) -> Tensor:
        """The same for one direction by blocks of the weight's rows."""
        _, height, width = self.weight.shape
        weight = self.weight.view(blocks, -1, width)
        if self.is_amd and height > width:
            products = torch.bmm(weight, rows.mT.expand(blocks, -1, -1)).permute(2, 0, 1)
        else:
            products = torch.bmm(rows.expand(blocks, -1, -1), weight.mT).transpose(0, 1)
        products = products[None]  # (1, b, blocks, m / blocks)
        if plus is not None:
            products = plus.unflatten(2, (blocks, -1)) + products
        return products.flatten(2).contiguous()

    def num_blocks(self, count: int) -> int:
        """The number of blocks for `count` vectors: a power of two, each with at least `count` rows of W."""
        directions, height, _ = self.weight.shape
        if count == 0 or directions > 1 or self.weight.device.type != "cpu":
            return 1
        if count == 1 and not self.is_amd:
            return 1
        most = min(height // count, self.weight.nbytes // self.block_bytes)
        power_of_two = 1 << max(most.bit_length() - 1, 0)  # the largest that is not above `most`, or 1
        return math.gcd(height, power_of_two)  # the largest number of equal blocks among the powers of two up to it


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
    has_dtype = weight.dtype == torch.float32 or (weight.dtype == torch.bfloat16 and multiplies_bfloat16)
    is_on_cpu = weight.device.type == "cpu"
    return has_dtype and is_on_cpu and torch.backends.mkldnn.is_available() and has_onednn()


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
    words_read = [before]  # of each direction (B, T), the words of the text that it reads before each position
    if num_directions == 2:
        words_read.append(after)
    places_by_direction = []
    for num_read in words_read:
        step_of_word = num_read.flatten()[words]
        order = (step_of_word * len(texts) + ranks[rows]).argsort()
        places_by_direction.append(words[order])
    places = torch.stack(places_by_direction)
    columns = torch.bincount(before.flatten()[words]).tolist()
    if resets is None:
        return ReadingOrder(texts, ranks, places, columns, None, None)
    keeps = []
    keeps_at_end = []
    for direction, num_read in enumerate(words_read):
        # Column n counts the resets between the n-th and the next word that is read (n = 0: before the first).
        num_resets = mask.new_zeros(mask.shape[0], mask.shape[1] + 1, dtype=torch.long)
        num_resets.scatter_add_(1, num_read, resets[direction].long())
        resets_before = num_resets.gather(1, num_read).flatten()
        resets_at_end = num_resets.gather(1, lengths.unsqueeze(1)).squeeze(1)
        keeps.append(resets_before[places[direction]] == 0)
        keeps_at_end.append(resets_at_end[texts] == 0)
    return ReadingOrder(texts, ranks, places, columns, torch.stack(keeps), torch.stack(keeps_at_end))


class BatchLayout:
    """The positions of words and of resets of the state in a batch, for all layers."""

    def __init__(self, mask: Tensor, resets: Sequence[Tensor] | None = None, num_directions: int = 2) -> None:
        """Keeps `mask` `(B, T)`, True on words, and `resets`; computes the reading order on first use.

        `resets` is `(B, T)` for each direction, True on words before which its state is set to zero; None means never.
        """
        self.mask = mask
        self.resets = resets
        self.num_directions = num_directions
        self._order: ReadingOrder | None = None  # not computed yet

    def on(self, device: torch.device) -> "BatchLayout":
        """The same layout on another device."""
        if device == self.mask.device:
            return self
        resets = None if self.resets is None else [reset.to(device) for reset in self.resets]
        return BatchLayout(self.mask.to(device), resets, self.num_directions)

    @property
    def order(self) -> ReadingOrder:
        """The reading order; waits for the GPU if the mask is on one."""
        if self._order is None:
            self._order = reading_order(self.mask, self.resets, self.num_directions)
        return self._order


# ---- The steps of a scan ---------------------------------------------------------------------------------------------
#
# What the steps of a scan read and write, as one value for each pass, and the interface of everything that computes
# them. Texts are in the order of `ReadingOrder.texts`, words in reading order.


class Trace(NamedTuple):
    """The tensors that a scan keeps for its gradient, each for all words in reading order."""

    gates: Tensor  # (D, N, 4H), i, f, g, o; at least float32
    cells: Tensor  # (D, N, H), a_t, before clipping; at least float32
    projected: Tensor  # (D, N, P), p_t, before clipping

    def part(self, directions: slice) -> "Trace":
        """The part of some directions."""
        return Trace(*(tensor[directions] for tensor in self))

    def by_step(self, columns: list[int]) -> list["Trace"]:
        """The part of each step."""
        parts = [tensor.split(columns, dim=1) for tensor in self]
        return [Trace(*tensors) for tensors in zip(*parts, strict=True)]


class Steps(NamedTuple):
    """The steps forward of D directions that step together."""

    words: Tensor  # (D, N, P), x_t
    outputs: Tensor  # (D, N, P), which the steps fill with h_t
    order: ReadingOrder
    hidden: Tensor  # (D, B, P), before the first step
    cell: Tensor  # (D, B, H), before the first step; may have another dtype than the rest
    weights: list[Weights]  # of each direction
    limits: Limits
    trace: Trace | None  # which the steps fill, if a gradient may follow


class BackwardSteps(NamedTuple):
    """The steps backward of D directions that step together."""

    trace: Trace
    order: ReadingOrder
    previous_cells: Tensor  # (D, N, H), c_{t-1}, zero where the state is reset
    d_outputs: Tensor  # (D, N, P), e_t, which the steps change to dp_t
    d_hidden: Tensor  # (D, B, P), of the last state, which the steps change to that of the first
    d_cell: Tensor  # (D, B, H), likewise
    weights: Weights  # with D as the first axis
    limits: Limits


class Scan(Protocol):
    """A way to compute all steps."""

    def supports(self, weights: Weights) -> bool:
        """Whether it can compute steps with the weights of a direction."""

    def directions_per_step(self, weights: list[Weights]) -> int:
        """How many of the directions take each step together."""

    def run(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """Runs all steps; returns hidden and cell after each text's last word, in shape and dtype as at first."""

    def run_back(self, steps: BackwardSteps) -> tuple[Tensor, Tensor]:
        """Runs all steps, the last one first; returns dz `(D, N, 4H)` and m `(D, N, H)` of all words."""


# ---- The operations of a processor -----------------------------------------------------------------------------------
#
# The operations that may be computed differently on each processor, and the choice of a scan.
#
# The class here needs only torch. The package's subclass adds Triton's scan, weights in eight bits and kept copies of
# weights (`kernels/processor_kernels.py` there). Both compute the same numbers up to the order of float sums, except
# that weights in eight bits are rounded.
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
    repays: dict[torch.dtype, int] = field(default_factory=lambda: STEPS_TO_REPAY)
    is_amd: bool = IS_AMD
    multiplies_bfloat16: bool = field(default_factory=processor_multiplies_bfloat16)
    # The scans that are used in place of the packed scan where they support the weights; the first one wins.
    faster_scans: tuple[Scan, ...] = ()

    def scan_for(self, weights: Weights) -> Scan:
        """The scan for a layer with a direction of these weights."""
        for scan in self.faster_scans:
            if scan.supports(weights):
                return scan
        return PackedScan(self)

    def supports(self, weight: Tensor) -> bool:
        """Whether the scans can use a module's weight, which quantisation may have replaced."""
        return type(weight.data) is Tensor

    def weight_of(self, linear: Any) -> Any:
        """A linear's weight for a scan."""
        return linear.weight

    def apply(self, module: Any, inputs: Tensor) -> Tensor:
        """`module(inputs)`.

        Without a gradient, a large linear on a CPU multiplies as in a scan; a plain convolution is one product. Where
        the processor does not multiply bfloat16, a module without modules inside it runs in float32.
        """
        device = inputs.device.type
        cast_dtype = autocast_dtype(device)
        is_plain = not is_hooked(module)
        is_linear = is_plain and type(module) is nn.Linear and inputs.dim() == 2
        if is_linear and not torch.is_grad_enabled() and self.supports(module.weight):
            weight = self.weight_of(module)
            if self._multiplies_as_in_a_scan(weight, cast_dtype):
                bias = None if module.bias is None else module.bias[None, None]
                return self.products([weight]).times(inputs[None], bias)[0]
        # PEFT's layers change their weights as they run, when an adapter is merged, so they must not run with copies.
        has_modules = next(module.children(), None) is not None
        if not has_modules and self.must_widen(cast_dtype or inputs.dtype, device):
            with torch.autocast(device, enabled=False):
                parameters = {name: parameter.float() for name, parameter in module.named_parameters()}
                return torch.func.functional_call(module, parameters, inputs.float()).to(inputs.dtype)
        if is_plain and reads_all_windows(module):  # oneDNN takes twice the time, cuDNN 1 ms for each new shape
            windows = inputs.unfold(2, module.weight.shape[2], 1).transpose(1, 2).flatten(2)  # (N, positions, E width)
            return nn.functional.linear(windows, module.weight.flatten(1), module.bias).transpose(1, 2)
        return module(inputs)

    def _multiplies_as_in_a_scan(self, weight: Any, cast_dtype: torch.dtype | None) -> bool:
        """Whether a linear multiplies as in a scan: True for a weight that is no tensor, or large and on a CPU."""
        if not isinstance(weight, Tensor):
            return True
        return weight.is_cpu and weight.nbytes >= self.large_bytes and cast_dtype is None

    def directions_per_step(self, weights: list[Weights]) -> int:
        """How many directions take each step of the packed scan together."""
        if weights[0].recurrent.nbytes > self.joint_bytes:
            return 1
        return len(weights)

    def join(self, weights: list[Weights], steps: int) -> WeightProducts:
        """Makes products from the weights of directions that step together."""
        inputs, biases, recurrents, projections = zip(*weights, strict=True)
        recurrent = self.products(recurrents, steps)
        projection = None
        if projections[0] is not None:
            projection = self.products(projections, steps)
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
        if len(first) > 1:
            return torch.bmm(first, second)
        return torch.mm(first[0], second[0])[None]

    def recurrent_multiplier(self, weight: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
        """The function that multiplies dz `(D, b, 4H)` by W_h `(D, 4H, P)` in each of a number of backward steps."""
        return functools.partial(self.multiply, second=weight)

    def must_widen(self, dtype: torch.dtype, device: str) -> bool:
        """Whether products in a dtype are computed in float32: in bfloat16 where the processor does not multiply it."""
        return dtype == torch.bfloat16 and device == "cpu" and not self.multiplies_bfloat16


Kernels.default = Kernels()
_requested_kernels: ContextVar[Kernels | None] = ContextVar("kernels", default=None)


def current_kernels() -> Kernels:
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


def reads_all_windows(module: Any) -> bool:
    """Whether a module is a convolution of every window of its inputs, and of nothing else."""
    if type(module) is not nn.Conv1d:
        return False
    steps = [*module.stride, *module.dilation, module.groups]
    return module.padding == (0,) and all(step == 1 for step in steps)


def apply(module: nn.Module, inputs: Tensor) -> Tensor:
    """`module(inputs)`, a linear or a convolution, by these kernels unless a graph is being built."""
    if torch.compiler.is_compiling():
        return module(inputs)
    return current_kernels().apply(module, inputs)


# ---- The packed scan: its steps --------------------------------------------------------------------------------------


class PackedScan(NamedTuple):
    """The scan of every device, by torch's own operations."""

    kernels: Kernels

    def supports(self, weights: Weights) -> bool:
        """True."""
        return True

    def directions_per_step(self, weights: list[Weights]) -> int:
        """As the kernels say."""
        return self.kernels.directions_per_step(weights)

    def run(self, steps: Steps) -> tuple[Tensor, Tensor]:
        """As in `Scan`."""
        order, limits = steps.order, steps.limits
        weights = self.kernels.join(steps.weights, len(order.columns))
        last_hidden = steps.hidden.clone()
        last_cell = steps.cell.to(wide(steps.cell.dtype), copy=True)
        hidden = last_hidden
        cell = last_cell
        outputs = steps.outputs.split(order.columns, dim=1)
        keeps = None if order.keeps is None else order.keeps.unsqueeze(2).split(order.columns, dim=1)
        traces = None if steps.trace is None else steps.trace.by_step(order.columns)
        gate_inputs = _gate_inputs(weights, steps.words, order, self.kernels.block_words)
        for step, (count, gate_input) in enumerate(zip(order.columns, gate_inputs, strict=True)):
            if count < hidden.shape[1]:  # the last rows' texts have ended; these rows stay as they are
                hidden = hidden[:, :count]
                cell = cell[:, :count]
            if keeps is not None:
                hidden.mul_(keeps[step])
                cell.mul_(keeps[step])
            # Without a trace, gates are written over z, and cells over the state. With one, gates and unclipped cells
            # go into the trace, and only clipped cells into the state.
            trace = None if traces is None else traces[step]
            gate_sums = weights.recurrent.times(hidden, gate_input).to(cell.dtype)  # z
            gates = gate_sums if trace is None else trace.gates
            input_gate, forget_gate, candidate, output_gate = _activate(gate_sums, gates)
            unlimited_cell = torch.mul(forget_gate, cell, out=cell if trace is None else trace.cells)
            unlimited_cell.addcmul_(input_gate, candidate)
            _clip(unlimited_cell, limits.cell, out=cell)
            projected = cell.tanh().mul_(output_gate).to(hidden.dtype)
            if weights.projection is not None:
                projected = weights.projection.times(projected)
            if trace is not None:
                trace.projected.copy_(projected)
            _clip(projected, limits.projection, out=hidden)
            outputs[step].copy_(hidden)
        return last_hidden, last_cell.to(steps.cell.dtype)

    def run_back(self, steps: BackwardSteps) -> tuple[Tensor, Tensor]:
        """As in `Scan`."""
        trace, order, weights, limits = steps.trace, steps.order, steps.weights, steps.limits
        d_cell, d_hidden = steps.d_cell, steps.d_hidden
        num_words, cell_size = trace.cells.shape[1:]
        stop = num_words
        forget_gates = trace.gates[..., cell_size : 2 * cell_size]
        d_gates, to_cell, memories = _factors(trace, steps.previous_cells, limits)
        by_recurrent = self.kernels.recurrent_multiplier(weights.recurrent, len(order.columns))
        for count in reversed(order.columns):
            here = slice(stop - count, stop)
            stop = stop - count
            d_projected = steps.d_outputs[:, here]
            d_projected.add_(d_hidden[:, :count])
            if limits.projection is not None:
                d_projected *= trace.projected[:, here].abs() <= limits.projection
            d_memory = d_projected
            if weights.projection is not None:
                d_memory = self.kernels.multiply(d_projected, weights.projection)
            d_memory = d_memory.to(d_cell.dtype)
            d_here = torch.addcmul(d_cell[:, :count], d_memory, to_cell[:, here])
            if limits.cell is not None:
                d_here *= trace.cells[:, here].abs() <= limits.cell
            # `d_gates` holds factors up to here; the step's products make them the gradient.
            of_cell = d_gates[:, here, : 3 * cell_size].unflatten(2, (3, cell_size))  # i, f and g
            of_cell.mul_(d_here.unsqueeze(2))
            d_gates[:, here, 3 * cell_size :] *= d_memory
            torch.mul(d_here, forget_gates[:, here], out=d_cell[:, :count])
            d_hidden[:, :count] = by_recurrent(d_gates[:, here].to(d_hidden.dtype))
            if order.keeps is not None:
                d_hidden[:, :count] *= order.keeps[:, here, None]
                d_cell[:, :count] *= order.keeps[:, here, None]
        return d_gates, memories


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of gates and cells, at least float32."""
    return torch.promote_types(dtype, torch.float32)


def _gate_inputs(weights: WeightProducts, words: Tensor, order: ReadingOrder, block_words: int) -> Iterator[Tensor]:
    """W_x x_t + b `(D, b_t, 4H)` of each step; one product computes all words of several steps."""
    ends = list(accumulate(order.columns))
    start = 0
    step = 0
    while step < len(ends):
        next_step = max(step + 1, bisect_right(ends, start + block_words))
        stop = ends[next_step - 1]
        products = weights.inputs.times(words[:, start:stop], weights.bias)
        yield from products.split(order.columns[step:next_step], dim=1)
        start = stop
        step = next_step


def _activate(gate_sums: Tensor, gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Writes i, f, g, o of z `(D, b_t, 4H)` into gates of that shape, which may be z itself; returns the four."""
    input_sum, forget_sum, candidate_sum, output_sum = gate_sums.chunk(4, dim=2)
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=2)
    torch.sigmoid(input_sum, out=input_gate)
    torch.sigmoid(forget_sum, out=forget_gate)
    torch.tanh(candidate_sum, out=candidate)
    torch.sigmoid(output_sum, out=output_gate)
    return input_gate, forget_gate, candidate, output_gate


def _clip(tensor: Tensor, limit: float | None, out: Tensor) -> Tensor:
    if limit is None:
        return out.copy_(tensor)
    return torch.clamp(tensor, -limit, limit, out=out)


def _clipped(tensor: Tensor, limit: float | None) -> Tensor:
    """The same tensor, or a clipped copy."""
    if limit is None:
        return tensor
    return tensor.clamp(-limit, limit)


def _factors(trace: Trace, previous_cells: Tensor, limits: Limits) -> tuple[Tensor, Tensor, Tensor]:
    """The factors of dz `(D, N, 4H)`, which each step multiplies in place; o (1 - tanh^2 c) and m `(D, N, H)`."""
    input_gate, forget_gate, candidate, output_gate = trace.gates.chunk(4, dim=2)
    # A clipped copy may be overwritten; the trace may not.
    clipped = _clipped(trace.cells, limits.cell)
    tanh_cells = clipped.tanh() if clipped is trace.cells else clipped.tanh_()
    to_cell = tanh_cells.square().neg_().add_(1).mul_(output_gate)
    factors = torch.empty_like(trace.gates)
    for_input, for_forget, for_candidate, for_output = factors.chunk(4, dim=2)
    torch.addcmul(input_gate, input_gate, input_gate, value=-1, out=for_input)
    for_input.mul_(candidate)  # i (1 - i) g
    torch.addcmul(forget_gate, forget_gate, forget_gate, value=-1, out=for_forget)
    for_forget.mul_(previous_cells)  # f (1 - f) c_{t-1}
    torch.addcmul(input_gate, input_gate, candidate.square(), value=-1, out=for_candidate)  # i (1 - g^2)
    torch.addcmul(output_gate, output_gate, output_gate, value=-1, out=for_output)
    for_output.mul_(tanh_cells)  # o (1 - o) tanh c
    memories = tanh_cells.mul_(output_gate)
    return factors, to_cell, memories


# ---- The packed scan: a layer and its gradient -----------------------------------------------------------------------


class LayerInputs(NamedTuple):
    """What a scan of one layer reads."""

    inputs: Tensor  # (B, T, DP), in text order
    order: ReadingOrder
    hidden: Tensor  # (B, DP), before the first word
    cell: Tensor  # (B, DH), before the first word
    weights: list[Weights]  # of each direction
    limits: Limits


def scan_layer(
    inputs: Tensor, layout: BatchLayout, hidden: Tensor, cell: Tensor, weights: list[Weights], limits: Limits
) -> Scanned:
    """Scans one layer by the fastest scan that can run; the products have the dtype of `hidden`.

    Takes inputs `(B, T, DP)`, not empty, and hidden `(B, DP)` and cell `(B, DH)` before the first word. Returns outputs
    in text order, zero where the mask is False, and the last hidden and cell. `weights` has one item for each
    direction.
    """
    order = layout.on(inputs.device).order
    parameters = [tensor for direction in weights for tensor in direction]
    kernels = current_kernels()
    with torch.autocast(inputs.device.type, enabled=False):
        if needs_gradient(inputs, hidden, cell, *parameters):
            return _LayerScan.apply(order, limits, kernels, inputs, hidden, cell, *parameters)
        layer = LayerInputs(inputs, order, hidden, cell, weights, limits)
        return _scan_packed(layer, kernels, None)[0]


def _scan_packed(layer: LayerInputs, kernels: Kernels, trace: Trace | None) -> tuple[Scanned, Tensor]:
    """Scans as `scan_layer` does, outside autograd, and fills `trace`; also returns x_t and h_t, `(2, D, N, P)`."""
    inputs, order = layer.inputs, layer.order
    dtype = layer.hidden.dtype
    weights = [direction.to(dtype) for direction in layer.weights]
    shape = (2, len(weights), order.places.shape[1], inputs.shape[-1] // len(weights))
    vectors = inputs.new_empty(shape, dtype=dtype)
    words, outputs = vectors
    _pack(inputs, order, words)
    hidden = _pack_state(layer.hidden, order)
    cell = _pack_state(layer.cell, order)
    scan = kernels.scan_for(weights[0])
    last_hidden = []
    last_cell = []
    for part, part_order in _parts(order, len(weights), scan.directions_per_step(weights)):
        steps = Steps(
            words=words[part],
            outputs=outputs[part],
            order=part_order,
            hidden=hidden[part],
            cell=cell[part],
            weights=weights[part],
            limits=layer.limits,
            trace=None if trace is None else trace.part(part),
        )
        part_hidden, part_cell = scan.run(steps)
        last_hidden.append(part_hidden)
        last_cell.append(part_cell)
    all_hidden = _keep_at_end(torch.cat(last_hidden), order)
    all_cells = _keep_at_end(torch.cat(last_cell), order)
    hidden = _unpack_state(all_hidden, order).to(inputs.dtype)
    cell = _unpack_state(all_cells, order).to(inputs.dtype)
    return (_unpack(outputs, order, inputs), hidden, cell), vectors


class _LayerScan(torch.autograd.Function):
    """A layer with its gradient, which cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, order: ReadingOrder, limits: Limits, kernels: Kernels, *tensors: Any) -> Scanned:
        inputs, hidden, cell, *parameters = tensors
        weights = [direction.to(hidden.dtype) for direction in _by_direction(parameters)]
        gates_size, output_size = weights[0].recurrent.shape  # 4H, P
        shape = order.places.shape
        trace = Trace(
            gates=cell.new_empty(*shape, gates_size, dtype=wide(cell.dtype)),
            cells=cell.new_empty(*shape, gates_size // 4, dtype=wide(cell.dtype)),
            projected=hidden.new_empty(*shape, output_size),
        )
        scanned, vectors = _scan_packed(LayerInputs(inputs, order, hidden, cell, weights, limits), kernels, trace)
        ctx.save_for_backward(*trace, vectors, hidden, cell, *(tensor for direction in weights for tensor in direction))
        ctx.order = order
        ctx.limits = limits
        ctx.kernels = kernels
        ctx.dtype = parameters[0].dtype
        return scanned

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_hidden: Tensor, d_cell: Tensor) -> tuple[Tensor | None, ...]:
        gates, cells, projected, vectors, hidden, cell, *parameters = ctx.saved_tensors
        words, outputs = vectors
        order, kernels = ctx.order, ctx.kernels
        needs_inputs = ctx.needs_input_grad[3]  # of inputs, after order, limits and kernels
        trace = Trace(gates, cells, projected)
        weights = _by_direction(parameters)
        d_words = _pack(d_outputs, order, torch.empty_like(words))
        # Rows of texts that ended before a step hold the gradient of their last state.
        d_packed_hidden = _keep_at_end(_pack_state(d_hidden, order), order).to(words.dtype)
        d_packed_cell = _keep_at_end(_pack_state(d_cell, order), order).to(wide(d_cell.dtype))
        previous = _previous(outputs, _pack_state(hidden, order), order)
        first_cells = _pack_state(cell, order).to(cells.dtype)
        previous_cells = _previous(_clipped(cells, ctx.limits.cell), first_cells, order)
        scan = kernels.scan_for(weights[0])
        d_inputs: list[Tensor] = []
        d_weights: list[Tensor | None] = []
        for part, part_order in _parts(order, len(weights), scan.directions_per_step(weights)):
            stacked = stack(weights[part])
            steps = BackwardSteps(
                trace=trace.part(part),
                order=part_order,
                previous_cells=previous_cells[part],
                d_outputs=d_words[part],
                d_hidden=d_packed_hidden[part],
                d_cell=d_packed_cell[part],
                weights=stacked,
                limits=ctx.limits,
            )
            d_gates, memories = scan.run_back(steps)
            d_products = d_gates.to(words.dtype)
            d_projection = None
            if stacked.projection is not None:
                d_projection = kernels.multiply(d_words[part].mT, memories.to(words.dtype))
            d_stacked = Weights(
                inputs=kernels.multiply(d_products.mT, words[part]),
                bias=d_gates.sum(dim=1),
                recurrent=kernels.multiply(d_products.mT, previous[part]),
                projection=d_projection,
            )
            d_weights += _tensors_by_direction(d_stacked, ctx.dtype)
            if needs_inputs:
                d_inputs.extend(kernels.multiply(d_products, stacked.inputs).unbind())
        return (
            None,  # order
            None,  # limits
            None,  # kernels
            _unpack(d_inputs, order, d_outputs) if needs_inputs else None,
            _unpack_state(d_packed_hidden, order).to(d_hidden.dtype),
            _unpack_state(d_packed_cell, order).to(d_cell.dtype),
            *d_weights,
        )


def _tensors_by_direction(stacked: Weights, dtype: torch.dtype) -> list[Tensor | None]:
    """The tensors of one direction after the other, in a dtype; the inverse of `_by_direction` and `stack`."""
    tensors: list[Tensor | None] = []
    for direction in range(len(stacked.bias)):
        for tensor in stacked:
            tensors.append(None if tensor is None else tensor[direction].to(dtype))
    return tensors


def _by_direction(tensors: Sequence[Any]) -> list[Weights]:
    """The weights of each direction, one after the other."""
    return [Weights(*tensors[start : start + 4]) for start in range(0, len(tensors), 4)]


def _parts(order: ReadingOrder, count: int, directions_per_step: int) -> Iterator[tuple[slice, ReadingOrder]]:
    """The directions that take each step together, of `count` in all, and their reading order."""
    for start in range(0, count, directions_per_step):
        part = slice(start, start + directions_per_step)
        if order.keeps is None:
            yield part, order
        else:
            yield part, order._replace(keeps=order.keeps[part])


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
    if order.keeps_at_end is None:
        return state
    return state * order.keeps_at_end.unsqueeze(2)


def _unpack_state(state: Tensor, order: ReadingOrder) -> Tensor:
    """The inverse of `_pack_state`."""
    return state.transpose(0, 1).flatten(1)[order.ranks]


def _previous(states: Tensor, first: Tensor, order: ReadingOrder) -> Tensor:
    """`(D, N, .)`, the state used at each word: `first` at the first step, then `states` after the step before."""
    starts = [0, *accumulate(order.columns)]
    # The texts of a step are the first of those of the step before.
    before = [states[:, start : start + count] for start, count in zip(starts, order.columns[1:], strict=False)]
    previous = torch.cat([first[:, : max(order.columns, default=0)], *before], dim=1)
    if order.keeps is None:
        return previous
    return previous * order.keeps.unsqueeze(2)
