"""The scan of GPUs: that its cases pass, its kernels compile, what happens where it cannot run, and CUDA graphs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import run_python
from fake_graphs import FakeGraphs
from scan_layers import arguments_of, layer_of, mask_of, run
from torch import Tensor

from elmo_hf.scan import layer as scan_layer_module
from elmo_hf.scan import step_graphs, triton_scan
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.step_graphs import StepGraphs

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
    assert int(re.search(r"(\d+) passed", result.stdout)[1]) >= 41


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

    def scan_triton(inputs: Tensor, is_word: Tensor, keeps: Tensor, *others: Any) -> tuple[Tensor, ...]:
        hidden, cell, weights, _ = others
        taken.append(weights[0].recurrent.dtype)
        return inputs, hidden, cell

    monkeypatch.setattr(scan_layer_module, "is_available", is_available)
    monkeypatch.setattr(scan_layer_module, "scan_triton", scan_triton)
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
    assert second.split() == ["parameters", "step_graphs", "triton_kernels", "triton_steps"]


class Work:
    """Adds one to a number on the machine that graphs are of, and knows how often it was asked to."""

    def __init__(self, graphs: FakeGraphs) -> None:
        self.graphs, self.value, self.result = graphs, 0, torch.zeros(2)

    def __call__(self) -> None:
        self.graphs.launch(self.add)

    def add(self) -> None:
        self.value += 1
        self.result.copy_(torch.tensor([1.0, 2.0]))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> FakeGraphs:
    monkeypatch.setattr(StepGraphs, "can_capture", True)
    return FakeGraphs(monkeypatch)


def test_what_is_seen_twice_is_captured_and_then_replayed(graphs: FakeGraphs) -> None:
    steps, work = StepGraphs(GPU), Work(graphs)
    values = []
    for _ in range(4):
        steps.run("key", work, work.result)
        values.append(work.value)
    # The second time once more before the capture, so that all is there that is made at a first call.
    assert values == [1, 3, 4, 5]
    assert (graphs.num_done, graphs.num_captured) == (2, 1)


def test_each_key_has_a_graph_of_its_own(graphs: FakeGraphs) -> None:
    steps, first, second = StepGraphs(GPU), Work(graphs), Work(graphs)
    for _ in range(3):
        steps.run(("key", None), first, first.result)
        steps.run(("key", 1.5), second, second.result)
    assert (first.value, second.value, graphs.num_captured) == (4, 4, 2)


def test_keys_that_were_not_seen_for_long_are_forgotten(graphs: FakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "MAX_GRAPHS", 2)
    steps, work = StepGraphs(GPU), Work(graphs)
    for key in ("a", "a", "b", "a", "c", "a", "b", "b"):
        steps.run(key, work, work.result)
    # "b" is new again after "c"; its second time comes last.
    assert graphs.num_captured == 2


def test_after_a_capture_that_failed_everything_is_done_plainly(
    graphs: FakeGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(step_graphs.logger, "warning", warnings.append)
    graphs.can_capture = False
    steps, work = StepGraphs(GPU), Work(graphs)
    for _ in range(3):
        steps.run("key", work, work.result)
    assert work.value == 4
    for _ in range(3):
        StepGraphs(GPU).run("other", work, work.result)
    assert work.value == 7
    assert warnings == [
        "CUDA graphs are not used, every step is launched by itself: operation not permitted when stream is capturing"
    ]


def test_a_graph_that_gives_other_numbers_is_not_taken(graphs: FakeGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(step_graphs.logger, "warning", warnings.append)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: None)
    steps, work = StepGraphs(GPU), Work(graphs)
    for _ in range(3):
        work.result.zero_()
        steps.run("key", work, work.result)
        assert work.result.tolist() == [1.0, 2.0]
    assert warnings == [
        "CUDA graphs are not used, every step is launched by itself: "
        "the first replay of a graph gave other numbers than its steps"
    ]


def test_inside_a_capture_of_the_callers_own_work_belongs_to_that(graphs: FakeGraphs) -> None:
    steps, work, outer = StepGraphs(GPU), Work(graphs), torch.cuda.CUDAGraph()
    steps.run("key", work, work.result)
    with graphs.capture(outer):
        steps.run("key", work, work.result)
    assert (work.value, graphs.num_captured) == (1, 1)
    outer.replay()
    assert work.value == 2


def test_other_devices_have_no_graphs(graphs: FakeGraphs) -> None:
    steps, work = StepGraphs(torch.device("cpu")), Work(graphs)
    for _ in range(3):
        steps.run("key", work, work.result)
    assert (work.value, graphs.num_captured) == (3, 0)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_torchs_switches_of_low_precision_are_part_of_a_graphs_key(dtype: str) -> None:
    switches, name = torch.backends.cuda.matmul, f"allow_{dtype}_reduced_precision_reduction"
    key, before = triton_scan._precision(), getattr(switches, name)
    setattr(switches, name, not before)
    try:
        assert triton_scan._precision() != key
    finally:
        setattr(switches, name, before)


def test_torchs_precision_of_float32_is_part_of_a_graphs_key() -> None:
    before = triton_scan._precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert triton_scan._precision() != before
    finally:
        torch.set_float32_matmul_precision("highest")
