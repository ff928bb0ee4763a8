"""The scan of GPUs: it passes the tests of scans, its kernels compile, and elsewhere the portable scan runs."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from elmo_hf.kernels import triton_kernels
from elmo_hf.kernels.path import scan_path
from elmo_hf.kernels.triton_scan import is_available, is_right
from elmo_hf.model.scan_elmo import Scanned, scan_layer
from tests.helpers.checkpoints import run_python
from tests.helpers.scan_layers import DEVICE, IS_TRITON, PADDED, Operators, arguments_of, layer_of, run

needs_triton = pytest.mark.skipif(triton_kernels.triton is None, reason="triton is not installed")
of_triton = pytest.mark.skipif(not IS_TRITON, reason="Triton does not run in this process")
of_others = pytest.mark.skipif("TRITON_INTERPRET" in os.environ, reason="Triton may run in this process")


@needs_triton
@of_others
@pytest.mark.parametrize(
    "is_interpreted",
    [True, pytest.param(False, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))],
    ids=["interpreted", "compiled"],
)
def test_every_case_passes(is_interpreted: bool) -> None:
    """In a process of its own, because kernels are interpreted or not from their import on."""
    environment = {**os.environ, "TRITON_INTERPRET": str(int(is_interpreted)), "OMP_NUM_THREADS": "1"}
    files = [Path(__file__).with_name("test_packed.py"), __file__]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 40


@of_triton
def test_a_layer_takes_it_unless_another_path_or_dtype_is_requested() -> None:
    layer = layer_of()
    double, dtypes = layer_of(torch.float64), (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    assert [is_available(DEVICE, dtype) for dtype in dtypes] == [True, True, True, False]
    for each, path, uses_triton in ((layer, "triton", True), (layer, "packed", False), (double, "triton", False)):
        with scan_path(path), Operators() as called:
            run(each, arguments_of(each), PADDED)
        assert any("sigmoid" in str(function) for function, _ in called) != uses_triton


def wrong(*arguments: Any, cell: float = 1.0, gradient: float = 1.0) -> Scanned:
    outputs, hidden, last_cell = scan_layer(*arguments)
    return gradient * outputs - (gradient - 1) * outputs.detach(), hidden, last_cell * cell


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_first_use_compares_two_scans(dtype: torch.dtype, caplog: pytest.LogCaptureFixture) -> None:
    assert is_right(DEVICE, dtype, None if IS_TRITON else scan_layer)
    assert not caplog.text
    for change in ({"cell": 1.1}, {"gradient": 2.0}):
        assert not is_right(DEVICE, dtype, partial(wrong, **change))
    assert caplog.text.count("its numbers are wrong by") == 2


@of_triton
def test_tanh_is_right_to_a_few_units_of_its_last_place() -> None:
    import triton
    import triton.language as tl

    @triton.jit
    def tanh(inputs: tl.tensor, outputs: tl.tensor, BLOCK: tl.constexpr) -> None:
        place = tl.arange(0, BLOCK)
        tl.store(outputs + place, triton_kernels._tanh(tl.load(inputs + place)))

    sizes = torch.logspace(-30, 2, 4094, dtype=torch.float64).float()
    inputs = torch.cat([sizes, -sizes, torch.tensor([0.0, torch.inf, -torch.inf, 0.25])]).to(DEVICE)
    outputs = torch.empty_like(inputs)
    tanh[(1,)](inputs, outputs, BLOCK=8192)
    torch.testing.assert_close(outputs.double(), inputs.double().tanh(), atol=0, rtol=1e-6)


# The types of a kernel's arguments: of numbers, of flags and of what is float32 always; all others are of `dtype`.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from elmo_hf.kernels.triton_kernels import backward_steps, forward_steps, tl

sizes = {"DIRECTIONS": 2, "WIDTH": 4096, "SIZE": 512, "HAS_KEEPS": True, "KEEPS_TRACE": True, "IS_PROJECTED": True}
sizes |= {"ROWS": 64, "UNITS": 64, "COLUMNS": 64, "SPLITS": 8}
types = dict.fromkeys(("first", "last", "base", "block", "words", "batch", "steps"), "i32")
types |= {"cell_limit": "fp32", "hidden_limit": "fp32", "keeps": "*u8", "starts": "*i32", "arrived": "*i32"}
types |= dict.fromkeys(("cell", "partial", "gates", "cells", "previous_cells", "d_cell"), "*fp32")
targets = [("cuda", 90, 32, "bf16", tl.bfloat16, 64), ("hip", "gfx942", 64, "fp32", tl.float32, 32)]
for *target, dtype, kind, depth in targets:
    for kernel in (forward_steps, backward_steps):
        constants = sizes | {"PRECISION": "ieee", "TYPE": kind, "DEPTH": depth}
        signature = {n: "constexpr" if n in constants else types.get(n, "*" + dtype) for n in kernel.arg_names}
        source = ASTSource(kernel, signature, {name: constants[name] for name in signature if name in constants})
        binary = triton.compile(source, target=GPUTarget(*target), options={"num_warps": 8, "num_stages": 2})
        print(kernel.__name__, *binary.asm)
"""


@needs_triton
@of_others
def test_kernels_compile_for_gpus_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kinds = [line.split()[-1] for line in run_python(COMPILE, tmp_path).splitlines()]
    assert kinds == 2 * ["cubin"] + 2 * ["hsaco"]


@of_others
def test_without_triton_the_packed_scan_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not any(is_available(torch.device(kind), torch.float32) for kind in ("cpu", "meta", "xpu"))
    assert not is_right(torch.device("cpu"), torch.float32)
    assert "Triton does not run in torch.float32 on cpu" in caplog.text
    with pytest.raises(RuntimeError, match="scan_path"):  # a device on which nothing runs, as after a fault
        is_right(torch.device("meta"), torch.float32)
    code = "import sys, torch; sys.modules['triton'] = None; from elmo_hf.kernels.triton_scan import is_available\n"
    code += "print(is_available(torch.device('cuda', 0), torch.float32))"
    assert run_python(code, tmp_path).split() == ["False"]
