"""Every block of Python of the documents runs, and every command is one of ours."""

import re
import shlex
from pathlib import Path

import pytest
from archives import manylangs_files, write_zip
from checkpoints import BASE, run_online, run_python
from loopback_hub import LoopbackHub
from typer.testing import CliRunner

from elmo_hf.cli import app

DOCS = Path(__file__).parents[1] / "docs"


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def place(tiny_folder: Path, tmp_path: Path) -> Path:
    """A folder in which the tiny model goes by every name that the documents load."""
    for name in ("elmo-original", "elmo-small", "elmo-en"):
        (tmp_path / name).symlink_to(tiny_folder)
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / name).symlink_to(BASE / name)
    (tmp_path / "sentences.txt").write_text("The ferry left .\n\nYes .\n", encoding="utf-8")
    (tmp_path / "text.conllu").write_text("1\tYes" + "\t_" * 8 + "\n\n", encoding="utf-8")
    return tmp_path


def test_what_the_migration_guide_says_to_write_now_runs_and_has_the_shapes_that_it_tells(place: Path) -> None:
    """The tiny model is 16 wide, where the original is 1024."""
    text = (DOCS / "migration.md").read_text(encoding="utf-8")
    now = re.findall(r"\*\*now\*\*\n\n```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    before = [block for block in blocks(text, "python") if block.startswith("# before")]
    assert len(now) == len(before) == len(blocks(text, "python")) / 2
    lines = []
    for line in "\n".join(now).splitlines():
        lines.append(line)
        told = re.fullmatch(r"(\w+)(?:, \w+)? = .*  # .*?\(((?:\d+, )+\d+)\).*", line)
        if told:
            shape = [{1024: 16, 3072: 48, 512: 8}.get(int(size), int(size)) for size in told[2].split(", ")]
            lines.append(f"assert list({told[1]}.shape) == {shape}, {line!r}")
    assert sum(line.startswith("assert") for line in lines) == 11
    run_python("\n".join(lines), place)


def test_commands_of_the_migration_guide_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    (place / "elmo-en").unlink()
    write_zip(place / "144.zip", manylangs_files())
    ran = 0
    for block in blocks((DOCS / "migration.md").read_text(encoding="utf-8"), "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and "--model" not in words and "SOURCE" not in words:
                result = CliRunner().invoke(app, words[1:])
                assert result.exit_code == 0, (line, result.output)
                ran += 1
    assert ran == 4


def test_the_python_of_the_guide_to_tasks_runs(place: Path) -> None:
    code = "\n".join(blocks((DOCS / "tasks.md").read_text(encoding="utf-8"), "python"))
    shown = "print(tuple(logits.shape), answer in contexts[0], trainer.train_dataset.column_names[-1])"
    assert run_python(f"{code}\n{shown}", place).splitlines()[-1] == "(1, 6, 3) True bilm_layers"
    assert (place / "film-elmo" / "sequence_classification.py").exists()


def test_what_the_guide_to_speed_shows_of_quantising_and_exporting_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    text = (DOCS / "speed.md").read_text(encoding="utf-8")
    command = next(line for line in "".join(blocks(text, "bash")).splitlines() if "export" in line)
    assert CliRunner().invoke(app, shlex.split(command, comments=True)[1:]).exit_code == 0
    quantise, run = (block for block in blocks(text, "python") if "torchao" in block or "onnxruntime" in block)
    shown = "print(type(model.bilm.layers[0].forward_lstm.projection.weight).__name__, vectors.shape, pooled.shape)"
    assert run_python(f"{quantise}{run}{shown}", place).splitlines()[-1] == "Int8Tensor (2, 8, 16) (2, 16)"


@pytest.mark.parametrize("name", ["migration.md", "hub.md", "tasks.md", "speed.md"])
def test_every_command_and_option_is_one_of_ours(name: str) -> None:
    lines = [line for block in blocks((DOCS / name).read_text(encoding="utf-8"), "bash") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("elmo-hf")]
    assert commands
    for _, verb, *arguments in commands:
        help_text = CliRunner().invoke(app, [verb, "--help"]).output
        assert all(re.search(rf"(?<!\S){word}\b", help_text) for word in arguments if word.startswith("-")), arguments


def test_the_python_of_the_hub_guide_runs_against_a_hub(
    hub: LoopbackHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(blocks((DOCS / "hub.md").read_text(encoding="utf-8"), "python")).replace("my-org/", "org/")
    monkeypatch.chdir(place)
    run_online(code, hub, place / "home")
    assert {"model.safetensors", "tokenizer.json", "modeling_elmo.py"} <= set(hub.files("org/elmo-small"))
    assert b"on three sentences." in hub.files("org/elmo-mine")["README.md"]
