"""What every process of a test run does first; the fixtures stand in `helpers/shared_fixtures.py`."""

import os

import pytest

# Before torch is imported, so nothing of the package is imported above: tests run on both cores, one thread each
# (`pytest -n 2`).
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# torch looks for a GPU without starting CUDA, which a forked process could not start again.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every test can be run on every path: `pytest --scan-path reference`."""
    from elmo_hf.kernels.path import PATHS

    parser.addoption("--scan-path", choices=PATHS, help="the scan that biLM layers take where they can")


def pytest_configure(config: pytest.Config) -> None:
    """Imports the fixtures, and torch with them, but not where `-n 2` leaves all tests to two other processes."""
    from torch.backends.cpu import get_cpu_capability

    from elmo_hf.model.scan_elmo import IS_AMD

    # Otherwise, without AVX-512, Intel's library adds in an order that depends on where a tensor lies in memory.
    if IS_AMD or get_cpu_capability() != "AVX512":
        os.environ.setdefault("MKL_CBWR", "AVX2" if IS_AMD else "AVX2,STRICT")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        from tests.helpers import shared_fixtures

        config.pluginmanager.register(shared_fixtures)
