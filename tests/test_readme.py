"""The README is short, and its set-up commands are those that CI runs; `test_documents.py` runs what it shows."""

import subprocess

from pages import ROOT, blocks, read


def test_the_readme_is_short() -> None:
    assert len(read("README").splitlines()) <= 120


def test_its_first_figures_are_what_the_first_command_prints() -> None:
    (figures,) = blocks(read("README"), "console")
    assert figures in read("install")  # whose output is tested


def test_ci_finds_the_two_commands_that_set_up() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    section = next(line for line in script.splitlines() if line.startswith("section()"))
    found = subprocess.run(
        ["bash", "-c", f'{section}; section "Install and run"'], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == [block.rstrip("\n") for block in blocks(read("README"), "bash")]
    assert len(found.stdout.splitlines()) == 2
