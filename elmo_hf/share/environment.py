"""What decides how fast this machine computes: `elmo-hf env`."""

import platform
from importlib import metadata
from pathlib import Path

import torch

from ..model.configuration_elmo import ElmoConfig
from ..scan.processor_kernels import ProcessorKernels
from ..scan.triton_scan import is_available

CPU_FACTS = Path("/proc/cpuinfo")


def describe(kernels: ProcessorKernels | None = None) -> list[tuple[str, str]]:
    """Names and values: versions, processor, threads, GPU, and the products that large layers take (`scan/`)."""
    kernels = kernels or ProcessorKernels()
    packages = ("elmo-hf", "torch", "transformers", "tokenizers")
    rows = [(package, metadata.version(package)) for package in packages]
    rows += [
        ("Python", platform.python_version()),
        ("processor", f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}"),
        ("threads", str(torch.get_num_threads())),
        ("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"),
    ]
    if torch.cuda.is_available():
        rows.append(("scan on the GPU", "triton" if is_available(torch.device("cuda"), torch.float32) else "packed"))
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        rows += [(f"products, {name}", kernels.way_of(dtype)), (f"packed, {name}", _packed(dtype, kernels))]
    return rows


def _processor() -> str:
    """The name that Linux gives it, or else the name of its kind."""
    lines = CPU_FACTS.read_text(encoding="utf-8").splitlines() if CPU_FACTS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _packed(dtype: torch.dtype, kernels: ProcessorKernels) -> str:
    """For which counts of texts a step of the original's size is faster with packed weights."""
    config = ElmoConfig()
    weight = torch.ones(4 * config.cell_size, config.projection_size, dtype=dtype)
    if not kernels.can_pack(weight):
        return "not in this torch, or not on this processor"
    faster = kernels.faster_at(weight)  # a count stands for those up to the next one
    turns = [
        count for count, before, now in zip(kernels.counts, (False, *faster), faster, strict=False) if before != now
    ]
    spans = [f"{first} to {after - 1}" for first, after in zip(turns[::2], turns[1::2], strict=False)]
    if faster[-1]:
        spans.append(f"{turns[-1]} or more")
    return f"faster for steps of {' and '.join(spans)} texts" if spans else "never faster"
