"""The generator of the code that saved folders carry: what it writes, and what it refuses."""

import ast
import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from elmo_hf import ElmoConfig, ElmoTokenizer, hub_code
from elmo_hf.hub_code import TABLE, generated_files

FILES = {f"{file}.py" for file in TABLE}


def test_the_code_is_at_most_five_files_and_4400_lines_of_which_embedding_runs_3350() -> None:
    files = generated_files()
    assert set(files) == FILES
    assert len(files) <= 5
    lines = {name: len(text.splitlines()) for name, text in files.items()}
    assert sum(lines.values()) <= 4400
    assert sum(lines.values()) - lines["heads_elmo.py"] <= 3350


def test_every_definition_of_every_module_is_in_its_file_word_for_word() -> None:
    """And the version on top, and each docstring as the comment that opens its section."""
    for file, modules in TABLE.items():
        text = generated_files()[f"{file}.py"]
        assert f"elmo-hf {importlib.metadata.version('elmo-hf')}" in text.splitlines()[0]
        for module in modules:
            source = hub_code.PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
            tree = ast.parse(source)
            docstring = ast.get_docstring(tree) or ""
            assert "\n".join(f"# {line}".rstrip() for line in docstring.splitlines()) in text, module
            for node in tree.body[1:]:
                if not isinstance(node, (ast.Import, ast.ImportFrom)):
                    assert ast.get_source_segment(source, node) in text, module


def test_the_code_is_the_same_each_time() -> None:
    once = generated_files()
    generated_files.cache_clear()
    assert generated_files() == once


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two modules in one file and one in another."""
    (tmp_path / "room").mkdir()
    for name, text in {
        "low": '"""The low one."""\n\nimport math\n\nLOW = math.pi\n',
        "first": '"""First."""\n\nimport os\nfrom typing import Any\n\nfrom .low import LOW\n\nx: Any = (os, LOW)\n',
        "second": '"""The second."""\n\nfrom typing import NamedTuple\n\nfrom .first import x\n\ny = (NamedTuple, x)\n',
    }.items():
        (tmp_path / "room" / f"{name}.py").write_text(text)
    monkeypatch.setattr(hub_code, "PACKAGE", tmp_path)
    monkeypatch.setattr(hub_code, "TABLE", {"low_file": ("room.low",), "high_file": ("room.first", "room.second")})
    generated_files.cache_clear()
    yield tmp_path / "room"
    generated_files.cache_clear()


def test_imports_are_merged_and_siblings_named(package: Path) -> None:
    code = "\n".join(line for line in generated_files()["high_file.py"].splitlines() if not line.startswith("#"))
    assert re.sub(r"\n{2,}", "\n", code).split("\n")[1:] == [
        "import os",
        "from typing import Any, NamedTuple",
        "from .low_file import LOW",
        "x: Any = (os, LOW)",
        "y = (NamedTuple, x)",
    ]


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("x = 3\n", "high_file.py would hold one name for room.first.x and x = 3: rename one of each"),
        ("from os import path as Any\n", "high_file.py would hold one name for os.path and typing.Any"),
        ("from .low import LOW as x\n", "room.second gives another name to what it imports from low"),
        ("from .third import z\n", "room.second imports room.third, which is in no generated file"),
        ("def f():\n    from .low import LOW\n", "room.second imports from the package inside a function"),
    ],
)
def test_what_cannot_be_joined_is_refused(package: Path, addition: str, message: str) -> None:
    path = package / "second.py"
    path.write_text(path.read_text() + addition)
    with pytest.raises(AssertionError, match=re.escape(message)):
        generated_files()


def test_config_and_tokenizer_alone_bring_the_code_along(tmp_path: Path) -> None:
    ElmoConfig().save_pretrained(tmp_path / "config")
    ElmoTokenizer().save_pretrained(tmp_path / "tokenizer")
    for folder in (tmp_path / "config", tmp_path / "tokenizer"):
        assert {path.name for path in folder.glob("*.py")} == FILES


def test_other_files_of_a_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("# of the user\n")
    ElmoConfig().save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == FILES | {"mine.py"}
    assert (tmp_path / "mine.py").read_text() == "# of the user\n"
