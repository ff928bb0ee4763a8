"""`elmo-hf env`: facts of this machine, and the ways of multiplying that are used on it."""

from importlib import metadata
from pathlib import Path

import pytest
import torch
from commands import run

from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.share import environment


def rows() -> dict[str, str]:
    result = run("env")
    assert result.exit_code == 0
    return dict(line.split("  ", 1) for line in result.stdout.splitlines())


def values() -> dict[str, str]:
    return {name: value.strip() for name, value in rows().items()}


def test_facts_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "cpuinfo"
    facts.write_text("vendor_id : Somebody\nmodel name\t: Fast: 3 GHz\nmodel name : Slow\n", encoding="utf-8")
    monkeypatch.setattr(environment, "CPU_FACTS", facts)
    found = values()
    assert found["torch"] == metadata.version("torch")
    assert found["processor"] == f"Fast: 3 GHz, {torch.backends.cpu.get_cpu_capability()}"
    assert found["threads"] == str(torch.get_num_threads())
    facts.unlink()
    assert not values()["processor"].startswith("Fast")


@pytest.mark.parametrize("is_amd", [False, True])
def test_ways_of_multiplying(is_amd: bool) -> None:
    way = "amd" if is_amd else "blocks"
    for multiplies, of_bfloat16 in ((True, "plain"), (False, way)):
        kernels = ProcessorKernels(is_amd=is_amd, multiplies=multiplies, measure=lambda *_: (False,) * 5)
        found = dict(environment.describe(kernels))
        assert (found["products, float32"], found["products, bfloat16"]) == (way, of_bfloat16)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((4, 16), "faster for steps of 4 to 7 and 16 to 63 texts"),
        ((4, 8, 64), "faster for steps of 4 to 15 and 64 or more texts"),
        ((1, 4, 8, 16, 64), "faster for steps of 1 or more texts"),
        ((), "never faster"),
    ],
)
def test_packed_weights_are_measured(counts: tuple[int, ...], said: str) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    kernels = ProcessorKernels(is_amd=False, measure=lambda _, columns: [each in counts for each in columns])
    assert dict(environment.describe(kernels))["packed, float32"] == said


def test_a_torch_without_onednn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert values()["packed, float32"] == "not in this torch, or not on this processor"
