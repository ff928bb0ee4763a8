"""Names of files and folders from anywhere: refused in one line, or shown as the text that they are."""

import os
import shutil
from pathlib import Path

import pytest
from checkpoints import BASE
from commands import run
from huggingface_hub import ModelCard

LATIN = os.fsdecode(b"caf\xe9")  # what Linux gives for a name in Latin-1


@pytest.mark.parametrize("kind", ["source", "destination", "options"])
def test_a_name_that_is_not_utf_8_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    names = {"source": "source", "options": "source/options.json", "destination": "DEST"}
    odd = tmp_path / (LATIN if kind != "options" else f"source/{LATIN}")
    shutil.copytree(BASE, odd if kind == "source" else tmp_path / "source")
    paths = {name: odd if name == kind else tmp_path / path for name, path in names.items()}
    weights = ("--options", paths["options"], "--weights", paths["source"] / "weights.hdf5")
    before = sorted(tmp_path.iterdir())
    result = run("convert", *(weights if kind == "options" else [paths["source"]]), paths["destination"])
    assert result.exit_code == 2
    assert result.stderr == f"Error: Invalid value: the argument {str(odd)!r} is empty or not UTF-8.\n"
    assert sorted(tmp_path.iterdir()) == before


def test_messages_show_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    assert run("convert", "\x1b[31mred", tmp_path / "DEST").stderr.startswith("Error: \\x1b[31mred must be ")


NAME = 'it\'s "me"\n---\n<script>`{{ x }}` **$'


def test_a_folder_of_any_name_gets_a_card_that_shows_it(tmp_path: Path) -> None:
    source = shutil.copytree(BASE, tmp_path / NAME)
    (source / "weights.hdf5").rename(source / "a|b``c`.hdf5")
    result = run("convert", source, tmp_path / f"{NAME}2")
    assert result.exit_code == 0, result.output
    text = (tmp_path / f"{NAME}2" / "README.md").read_text(encoding="utf-8")
    assert sorted(ModelCard(text).data.to_dict()) == ["library_name", "pipeline_tag", "tags"]
    lines = text.splitlines()
    shown = 'it\'s "me"\\\\n---\\\\n\\<script\\>\\`{{ x }}\\` \\*\\*$'
    assert f"# {shown}2" in lines
    assert f"converted from {shown} by `elmo-hf` 0.1.0." in lines
    assert any(line.startswith("| ```a\\|b``c`.hdf5``` | `") for line in lines)
    (argument,) = {line.split("(")[1].split(", trust")[0] for line in lines if "from_pretrained(" in line}
    assert eval(argument) == f"{NAME}2"
