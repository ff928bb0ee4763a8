"""The scan of GPUs: that its cases pass, its kernels compile, and what happens where it cannot run."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import run_python
from scan_layers import arguments_of, layer_of, mask_of, run
from torch import Tensor

from elmo_hf.scan import processor_kernels, triton_scan
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.reading_order import BatchLayout

TESTS = Path(__file__).parents[1]
needs_triton = pytest.mark.skipif(triton_scan.triton is None, reason="triton is not installed")
GPU = torch.device("cuda", 0)


@needs_triton
@pytest.mark.parametrize(
    "is_interpreted",
    [True, pytest.param(False, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))],
    ids=["interpreted", "compiled"],
)
def test_every_case_passes(is_interpreted: bool) -> None:
    """In a process of its own, because kernels are interpreted or not from their import on."""
    environment = {**os.environ, "TRITON_INTERPRET": str(int(is_interpreted)), "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(TESTS / "helpers" / "triton_scan_cases.py"),
    ]
    result = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 38


# The types of a kernel's arguments: of numbers, of flags and of what is float32 always; all others are of `dtype`.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from elmo_hf.scan import triton_kernels

kernels = ("cell_step", "hidden_step", "hidden_gradient_step", "cell_gradient_step")
sizes = {"WIDTH": 4096, "SIZE": 512, "BLOCK": 512, "KEEPS_GATES": True, "IS_PROJECTED": True}
types = {name: "i32" for name in ("step", "length", "batch", "count")} | {"limit": "fp32"}
types |= {name: "*u8" for name in ("is_word", "keeps")} | {name: "*fp32" for name in ("cells", "d_hidden", "d_cell")}
targets = [("cuda", 80, 32, "fp16"), ("cuda", 90, 32, "bf16"), ("hip", "gfx942", 64, "fp32")]
for *target, dtype in targets:
    for kernel in (getattr(triton_kernels, name) for name in kernels):
        signature = {name: "constexpr" if name in sizes else types.get(name, "*" + dtype) for name in kernel.arg_names}
        constants = {name: value for name, value in sizes.items() if name in signature}
        binary = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget(*target))
        print(kernel.__name__, *binary.asm)
"""


@needs_triton
def test_kernels_compile_for_gpus_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an A100, an H100 and an MI300."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    kinds = [line.split()[-1] for line in run_python(COMPILE, tmp_path).splitlines()]
    assert kinds == 8 * ["cubin"] + 4 * ["hsaco"]


def test_it_is_for_gpus_and_not_for_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_scan, "triton", object())
    monkeypatch.setattr(triton_scan, "_runs_on", lambda device: True)
    monkeypatch.setattr(triton_scan, "IS_INTERPRETED", False)
    dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    assert [triton_scan.is_available(GPU, dtype) for dtype in dtypes] == [True, True, True, False]
    assert not any(triton_scan.is_available(torch.device(kind), torch.float32) for kind in ("cpu", "meta", "xpu"))
    monkeypatch.setattr(triton_scan, "triton", None)
    assert not triton_scan.is_available(GPU, torch.float32)


def test_where_triton_does_not_run_the_portable_scan_does(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, warnings = [], []

    def compile_kernels(inputs: Tensor, *args: object) -> None:
        tried.append(inputs.device)
        raise RuntimeError("Failed to find C compiler.")

    monkeypatch.setattr(triton_scan, "scan_triton", compile_kernels)
    monkeypatch.setattr(triton_scan.logger, "warning", warnings.append)
    device = torch.device("cpu")
    triton_scan._runs_on.cache_clear()
    assert not triton_scan._runs_on(device)
    assert not triton_scan._runs_on(device)
    triton_scan._runs_on.cache_clear()
    assert tried == [device]
    assert warnings == [
        "Triton does not run on cpu, so the portable scan is used, which is slower: Failed to find C compiler."
    ]


def test_a_layer_takes_it_where_it_is_available_and_no_other_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, asked, taken = layer_of(), [], []
    arguments, mask = arguments_of(layer), mask_of([6] * 4)

    def is_available(device: torch.device, dtype: torch.dtype) -> bool:
        asked.append((device.type, dtype))
        return len(asked) < 3

    def scan_with_padding(inputs: Tensor, layout: BatchLayout, *others: Any) -> tuple[Tensor, ...]:
        hidden, cell, *_ = others
        taken.append(hidden.dtype)
        return inputs, hidden, cell

    monkeypatch.setattr(processor_kernels, "is_available", is_available)
    monkeypatch.setattr(processor_kernels, "scan_with_padding", scan_with_padding)
    for path in ("packed", "reference"):
        with scan_path(path):
            run(layer, arguments, mask)
    assert asked == taken == []
    run(layer, arguments, mask)
    with scan_path("triton"), torch.autocast("cpu", dtype=torch.bfloat16):
        run(layer, arguments, mask)
    assert asked == [("cpu", torch.float64), ("cpu", torch.bfloat16)]
    assert taken == [torch.float64, torch.bfloat16]
    run(layer, arguments, mask)
    assert len(taken) == 2


REFUSE = """
import sys

sys.modules["triton"] = None
import torch
from elmo_hf.scan import triton_kernels, triton_scan
from transformers.dynamic_module_utils import check_imports
print(triton_kernels.triton, triton_scan.is_available(torch.device("cuda", 0), torch.float32))
print(*sorted({name for module in (triton_kernels, triton_scan) for name in check_imports(module.__file__)}))
"""


def test_without_triton_its_files_import_and_the_hub_does_not_ask_for_it(tmp_path: Path) -> None:
    first, second = run_python(REFUSE, tmp_path).splitlines()
    assert first == "None False"
    assert second.split() == ["parameters", "reading_order", "triton_kernels", "triton_steps"]
