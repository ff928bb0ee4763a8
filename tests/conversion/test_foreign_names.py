"""Names of files and folders from anywhere: refused in one line, or shown as the text that they are."""

import os
import shutil
from pathlib import Path

import pytest
from checkpoints import BASE
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from elmo_hf.cli import app

LATIN = os.fsdecode(b"caf\xe9")  # what Linux gives for a name in Latin-1


def put_source(place: Path, kind: str) -> list[str]:
    """The arguments of a conversion in which one name is not UTF-8."""
    source = shutil.copytree(BASE, place / (LATIN if kind == "source" else "source"))
    if kind == "options":
        options = shutil.copy(source / "options.json", place / f"{LATIN}.json")
        return ["--options", str(options), "--weights", str(source / "weights.hdf5"), str(place / "DEST")]
    return [str(source), str(place / (LATIN if kind == "destination" else "DEST"))]


@pytest.mark.parametrize("kind", ["source", "destination", "options"])
def test_a_name_that_is_not_utf_8_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    arguments = put_source(tmp_path, kind)
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(app, ["convert", *arguments])
    assert result.exit_code == 2
    name = {"options": f"{LATIN}.json"}.get(kind, LATIN)
    assert result.stderr == f"Error: Invalid value: the argument {str(tmp_path / name)!r} is empty or not UTF-8.\n"
    assert sorted(tmp_path.iterdir()) == before


def test_messages_show_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", "\x1b[31mred", str(tmp_path / "DEST")])
    assert result.stderr == "Error: there is no file or folder \\x1b[31mred.\n"


NAME = 'it\'s "me"\n---\n<script>`{{ x }}` **$'


def test_a_folder_of_any_name_gets_a_card_that_shows_it(tmp_path: Path) -> None:
    source = shutil.copytree(BASE, tmp_path / NAME)
    (source / "weights.hdf5").rename(source / "a|b``c`.hdf5")
    result = CliRunner().invoke(app, ["convert", str(source), str(tmp_path / f"{NAME}2")])
    assert result.exit_code == 0, result.output
    text = (tmp_path / f"{NAME}2" / "README.md").read_text(encoding="utf-8")
    assert ModelCard(text).data.to_dict() == {
        "library_name": "transformers",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "bilm", "word-embeddings"],
    }
    lines = text.splitlines()
    shown = 'it\'s "me"\\\\n---\\\\n\\<script\\>\\`{{ x }}\\` \\*\\*$'
    assert f"# {shown}2" in lines
    assert f"converted from {shown} by `elmo-hf` 0.1.0." in lines
    assert any(line.startswith("| ```a\\|b``c`.hdf5``` | `") for line in lines)
    (argument,) = {line.split("(")[1].split(", trust")[0] for line in lines if "from_pretrained(" in line}
    assert eval(argument) == f"{NAME}2"
