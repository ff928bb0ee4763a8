"""The versions and hardware that affect speed: `elmo-hf env`."""

import platform
from importlib import metadata
from pathlib import Path

import torch

from ..kernels.processor_kernels import ProcessorKernels
from ..kernels.triton_scan import is_available
from ..model.scan_elmo import has_onednn_layout

CPU_FACTS = Path("/proc/cpuinfo")


def describe_environment(kernels: ProcessorKernels | None = None, cpu_facts: Path = CPU_FACTS) -> list[tuple[str, str]]:
    """Pairs of a name and a value: versions, processor, threads, GPU, and the layout of large weights."""
    if kernels is None:
        kernels = ProcessorKernels()
    packages = ("elmo-hf", "torch", "transformers", "tokenizers")
    rows = [(package, metadata.version(package)) for package in packages]
    rows += [
        ("Python", platform.python_version()),
        ("processor", f"{_processor_name(cpu_facts)}, {torch.backends.cpu.get_cpu_capability()}"),
        ("threads", str(torch.get_num_threads())),
        ("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"),
    ]
    if torch.cuda.is_available():
        rows.append(("scan on the GPU", "triton" if is_available(torch.device("cuda"), torch.float32) else "packed"))
    rows.append(("bfloat16", "fast" if kernels.multiplies_bfloat16 else "slower than float32"))
    rows.append(("layout of large weights", "oneDNN's" if has_onednn_layout() else "plain: this torch has no oneDNN"))
    return rows


def _processor_name(cpu_facts: Path) -> str:
    """The name of the processor by the file that Linux alone has, or else Python's."""
    if cpu_facts.exists():
        for line in cpu_facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
