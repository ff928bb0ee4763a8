"""Names of files and folders from anywhere: shown as the text that they are, or refused in one line."""

import os
import shutil
from pathlib import Path

from checkpoints import BASE
from commands import assert_fails, run
from huggingface_hub import ModelCard

LATIN = os.fsdecode(b"caf\xe9")  # what Linux gives for a name in Latin-1


def test_a_source_may_have_a_name_that_is_not_utf_8_and_a_destination_may_not(tmp_path: Path) -> None:
    source = shutil.copytree(BASE, tmp_path / LATIN)
    assert run("convert", source, tmp_path / "to").exit_code == 0
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert r"converted from caf\\udce9 by" in text
    before = sorted(tmp_path.iterdir())
    assert_fails(run("convert", BASE, tmp_path / f"{LATIN}2"), 1, "surrogates not allowed")
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
