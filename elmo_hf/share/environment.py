"""The versions and hardware that affect speed: `elmo-hf env`."""

import platform
from importlib import metadata
from pathlib import Path

import torch

from ..kernels.processor_kernels import ProcessorKernels
from ..kernels.triton_scan import is_available
from ..model.scan_elmo import has_onednn_layout

CPU_FACTS = Path("/proc/cpuinfo")


def describe(kernels: ProcessorKernels | None = None, cpu_facts: Path = CPU_FACTS) -> list[tuple[str, str]]:
    """Pairs of a name and a value: versions, processor, threads, GPU, and the layout of large weights (`scan/`)."""
    kernels = kernels or ProcessorKernels()
    lines = cpu_facts.read_text(encoding="utf-8").splitlines() if cpu_facts.exists() else []  # Linux alone has it
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    names.append(platform.processor() or platform.machine())
    packages = ("elmo-hf", "torch", "transformers", "tokenizers")
    rows = [(package, metadata.version(package)) for package in packages]
    rows += [
        ("Python", platform.python_version()),
        ("processor", f"{names[0]}, {torch.backends.cpu.get_cpu_capability()}"),
        ("threads", str(torch.get_num_threads())),
        ("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"),
    ]
    if torch.cuda.is_available():
        rows.append(("scan on the GPU", "triton" if is_available(torch.device("cuda"), torch.float32) else "packed"))
    rows.append(("bfloat16", "fast" if kernels.multiplies_bfloat16 else "slower than float32"))
    rows.append(("layout of large weights", "oneDNN's" if has_onednn_layout() else "plain: this torch has no oneDNN"))
    return rows
