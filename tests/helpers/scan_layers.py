"""One biLM layer, the paths that scan it, and what each path must compute: what `LSTMP.forward` does.

Where Triton runs, which may be by its interpreter, the only path is Triton's, in float32.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_hf import ElmoConfig
from elmo_hf.kernels.packing import pack
from elmo_hf.kernels.path import scan_path
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.kernels.triton_scan import TritonScan, is_available
from elmo_hf.model.layers_elmo import LSTMP, BiLMLayer
from elmo_hf.model.scan_elmo import BatchLayout, Kernels, has_onednn, has_onednn_layout, using

B, T, P, H = 4, 6, 10, 7
SHAPES = {
    "as it is": {},
    "no cell clip": {"cell_clip": None},
    "no projection clip": {"projection_clip": None},
    "no clips": {"cell_clip": None, "projection_clip": None},
    "no projection": {"cell_size": P},
    "square projection": {"cell_size": P, "cell_projection": True},
    "no forget bias": {"forget_bias": 0.0},
    "one direction": {"bidirectional": False},
}
Tensors = tuple[Tensor, ...]
# `test_triton_scan.py` sets it to 1 or 0 in processes of its own.
DEVICE = torch.device("cuda" if os.environ.get("TRITON_INTERPRET") == "0" else "cpu")
IS_TRITON = is_available(DEVICE, torch.float32)
DTYPE = torch.float32 if IS_TRITON else torch.float64


class Path(NamedTuple):
    """Kernels, and the dtype of a layer for which they give the reference's numbers up to the tolerance."""

    kernels: Kernels
    dtype: torch.dtype = DTYPE
    tolerance: float = 2e-5 if IS_TRITON else 1e-12
    keeps_copies: bool = False  # of the layer's weights, by `pack`


# Large directions are computed one after the other.
ALONE: dict[str, Any] = {"joint_bytes": 0, "large_bytes": 0}
PACKS: dict[str, Any] = ALONE | {"repays": dict.fromkeys((torch.float32, torch.bfloat16), 1)}
TRANSPOSES: dict[str, Any] = ALONE | {"is_amd": True, "transposing_steps": 1}
if IS_TRITON:
    PATHS = {"triton in two launches": Path(ProcessorKernels(faster_scans=(TritonScan(launch_words=2 * B),)))}
else:
    PATHS = {
        "without the package": Path(Kernels()),
        "small": Path(ProcessorKernels()),
        "one direction at a time": Path(ProcessorKernels(**ALONE, block_words=5)),
        "blocks on AMD": Path(Kernels(is_amd=True, **ALONE, block_bytes=16)),
        "blocks elsewhere": Path(ProcessorKernels(is_amd=False, **ALONE, block_bytes=16)),
        "single precision": Path(ProcessorKernels(**ALONE), torch.float32, 2e-5),
        "transposed on AMD": Path(ProcessorKernels(**TRANSPOSES), torch.float32, 2e-5),
    }
    # Both multiply once in a process: here, so that no test counts these products.
    if has_onednn() and has_onednn_layout():
        PATHS["oneDNN's layout"] = Path(ProcessorKernels(**PACKS), torch.float32, 2e-5)
        PATHS["kept copies"] = Path(ProcessorKernels(**ALONE), torch.float32, 2e-5, keeps_copies=True)


class Operators(TorchDispatchMode, list):
    """The operators that are called while it is active, with their arguments."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.append((function, args))
        return function(*args, **(kwargs or {}))

    def by_onednn(self, is_packed: bool) -> list[int]:
        """The number of vectors of each product with a weight in oneDNN's layout, or with a plain one, by oneDNN."""
        places = {torch.ops.mkldnn._linear_pointwise.default: 1, torch.ops.mkldnn._linear_pointwise.binary: 2}
        return [
            len(args[0])
            for function, args in self
            if function in places and args[places[function]].is_mkldnn == is_packed
        ]


def assert_scan(path: Path, fields: dict[str, Any], mask: Tensor, has_resets: bool) -> None:
    """Values, last state and every gradient of a path are the reference's; without gradient the values are the same."""
    layer = layer_of(path.dtype, **fields)
    arguments = arguments_of(layer, mask.shape)
    resets = tuple(torch.rand(2, *mask.shape, device=DEVICE) < 0.4) if has_resets else ()
    steps, leaves = count_reference_steps(layer), [*arguments, *layer.parameters()]
    with using(path.kernels):
        if path.keeps_copies:
            pack(layer)
        fast = with_gradients(run(layer, arguments, mask, *resets), leaves)
        with torch.no_grad():
            alone = run(layer, arguments, mask, *resets)
    assert not steps
    with scan_path("reference"):
        expected = with_gradients(run(layer, arguments, mask, *resets), leaves)
    assert len(steps) == len(layer.lstms) * mask.shape[1]
    names = ["outputs", "hidden", "cell", "d inputs", "d hidden", "d cell"]
    names += [f"d {name}" for name, _ in layer.named_parameters()]
    for name, found, wanted in zip(names, fast, expected, strict=True):
        # Sums in another order differ in proportion to the largest numbers that they add.
        scale = wanted.abs().max().clamp(min=1).item() if wanted.numel() else 1
        torch.testing.assert_close(found, wanted, atol=path.tolerance * scale, rtol=0, msg=name)
    torch.testing.assert_close(alone, fast[:3], atol=1e-6 if IS_TRITON else 0, rtol=0)


def layer_of(dtype: torch.dtype = DTYPE, has_skip_connection: bool = False, **fields: Any) -> BiLMLayer:
    """A layer whose weights are large enough for both clips to act."""
    fields = {"projection_size": P, "cell_size": H, "cell_clip": 0.4, "projection_clip": 0.3} | fields
    layer = BiLMLayer(ElmoConfig(**fields), has_skip_connection).to(DEVICE, dtype)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -0.9, 0.9)
    return layer


def mask_of(*lengths: int, side: str = "right", most: int = T) -> Tensor:
    """`(B, most)`, True on words."""
    places = torch.arange(most) if side == "right" else torch.arange(most).flip(0)
    return (places < torch.tensor(lengths).unsqueeze(1)).to(DEVICE)


FULL, PADDED = mask_of(6, 6, 6, 6), mask_of(3, 0, 6, 1)


def arguments_of(layer: BiLMLayer, shape: Sequence[int] = (B, T)) -> Tensors:
    """Inputs and the state before them, which all require a gradient; in memory a vector's numbers stand apart."""
    weight, count = layer.forward_lstm.input_linear.weight, len(layer.lstms)
    (gates, size), options = weight.shape, {"dtype": weight.dtype, "device": DEVICE}
    shapes = [(*shape, count * size), (shape[0], count * size), (shape[0], count * gates // 4)]
    return tuple(torch.randn(shape, **options).mT.contiguous().mT.requires_grad_() for shape in shapes)


def run(layer: BiLMLayer, arguments: Sequence[Tensor], mask: Tensor, *resets: Tensor) -> Tensors:
    """Outputs and last state; `resets` of directions that the layer lacks are left out."""
    (inputs, hidden, cell), count = arguments, len(layer.lstms)
    return layer(inputs, BatchLayout(mask, resets[:count] or None, count), hidden, cell)


def with_gradients(outputs: Tensors, leaves: Sequence[Tensor]) -> Tensors:
    """Outputs, and the gradients of a random projection of them."""
    generator = torch.Generator().manual_seed(3)
    loss = sum((output * torch.randn(output.shape, generator=generator).to(output)).sum() for output in outputs)
    return (*outputs, *torch.autograd.grad(loss, leaves))


def count_reference_steps(layer: BiLMLayer) -> list[LSTMP]:
    """Grows by one for each position and direction that the reference computes."""
    steps: list[LSTMP] = []
    for lstm in layer.lstms:

        def masked_step(*args: Tensor, lstm: LSTMP = lstm) -> tuple[Tensor, Tensor]:
            steps.append(lstm)
            return LSTMP.masked_step(lstm, *args)

        lstm.masked_step = masked_step
    return steps
