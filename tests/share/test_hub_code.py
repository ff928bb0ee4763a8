"""The generator of the code that saved folders carry: what it writes, and what it refuses."""

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_imports

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.hub_code import PACKAGE, TABLE, generate, generated_files

FILES = {f"{file}.py" for file in TABLE}
MAY_IMPORT = {
    "torch",
    "transformers",
    "huggingface_hub",
    "tokenizers",
    "safetensors",
    "numpy",
} | sys.stdlib_module_names


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
            source = PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
            tree = ast.parse(source)
            docstring = ast.get_docstring(tree) or ""
            assert "\n".join(f"# {line}".rstrip() for line in docstring.splitlines()) in text, module
            for node in tree.body[1:]:
                if not isinstance(node, (ast.Import, ast.ImportFrom)):
                    assert ast.get_source_segment(source, node) in text, module


def test_the_code_imports_only_what_every_user_of_the_hub_has(tmp_path: Path) -> None:
    ElmoConfig().save_pretrained(tmp_path)
    for name in FILES:
        assert set(get_imports(tmp_path / name)) <= MAY_IMPORT


def meanings(node: ast.stmt) -> dict[str, str]:
    """What a top-level statement makes each of its names stand for; an assignment, and an import, is its own text."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.split(".")[0]: f"import {alias.asname and alias.name}" for alias in node.names
        }
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
    names = names if isinstance(node, (ast.Assign, ast.AnnAssign)) else [getattr(node, "name", "")]
    return {name: ast.unparse(node) for name in names if name}


@pytest.mark.parametrize("file", TABLE)
def test_a_name_stands_for_one_thing_in_a_file(file: str) -> None:
    known: dict[str, str] = {}
    for node in ast.parse(generated_files()[f"{file}.py"]).body:
        for name, meaning in meanings(node).items():
            assert known.setdefault(name, meaning) == meaning, name


# Two modules of one file and one of another.
SMALL_TABLE = {"low_file": ("room.low",), "high_file": ("room.first", "room.second")}
MODULES = {
    "first": '"""First."""\n\nimport os\nfrom typing import Any\n\nfrom .low import LOW\n\nx: Any = (os, LOW)\n',
    "second": '"""The second."""\n\nfrom typing import NamedTuple\n\nfrom .first import x\n\ny = (NamedTuple, x)\n',
}


def test_imports_are_merged_and_siblings_named_and_a_module_of_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "room" / f"{name}.py").write_text(text)
    code = generate("high_file", SMALL_TABLE, tmp_path)
    assert [line for line in code.splitlines() if line and not line.startswith("#")] == [
        "import os",
        "from typing import Any, NamedTuple",
        "from .low_file import LOW",
        "x: Any = (os, LOW)",
        "y = (NamedTuple, x)",
    ]
    with pytest.raises(AssertionError, match=r"room\.low"):
        generate("high_file", {"high_file": SMALL_TABLE["high_file"]}, tmp_path)


@pytest.mark.parametrize("part", [ElmoConfig(), ElmoTokenizer()], ids=["config", "tokenizer"])
def test_a_part_alone_brings_the_code_along_and_other_files_stay(
    part: ElmoConfig | ElmoTokenizer, tmp_path: Path
) -> None:
    for name in ("mine.py", "scan_elmo.py"):
        (tmp_path / name).write_text("# of the user, or of an older version\n")
    part.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == FILES | {"mine.py"}
    assert (tmp_path / "mine.py").read_text() == "# of the user, or of an older version\n"
    assert (tmp_path / "scan_elmo.py").read_text(encoding="utf-8") == generated_files()["scan_elmo.py"]
