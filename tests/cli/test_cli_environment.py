"""`elmo-hf env`: facts of this machine, and what layers compute with on it."""

from importlib import metadata
from pathlib import Path

import torch
from commands import run

from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.share.environment import describe


def test_facts_of_the_machine(tmp_path: Path) -> None:
    result = run("env")
    assert result.exit_code == 0
    found = {name: value.strip() for name, value in (line.split("  ", 1) for line in result.stdout.splitlines())}
    assert found["torch"] == metadata.version("torch")
    assert found["threads"] == str(torch.get_num_threads())
    facts = tmp_path / "cpuinfo"
    facts.write_text("vendor_id : Somebody\nmodel name\t: Fast: 3 GHz\nmodel name : Slow\n", encoding="utf-8")
    assert dict(describe(cpu_facts=facts))["processor"] == f"Fast: 3 GHz, {torch.backends.cpu.get_cpu_capability()}"
    assert not dict(describe(cpu_facts=tmp_path / "none"))["processor"].startswith("Fast")


def test_bfloat16_is_fast_or_slow() -> None:
    for multiplies, said in ((True, "fast"), (False, "many times slower than float32")):
        assert dict(describe(ProcessorKernels(multiplies_bfloat16=multiplies)))["bfloat16"] == said
