"""Which way imports go, and that what the README says is so."""

import ast
import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Each module may import those before it in its list; see docs/architecture.md.
LAYERS = [
    ["word_codec", "word_splitter", "padding", "pipeline_elmo", "sentences", "digest"],
    ["configuration_elmo", "word_encoding", "code_point_codec", "vector_files"],
    ["token_encoder", "lstmp", "scalar_mix"],
    ["modeling_elmo", "tokenization_elmo"],
    ["loading", "embed", "__init__"],
    ["cli"],
]
CONVERSION_LAYERS = [
    ["errors", "reference", "checkpoint"],
    ["limits", "rules", "options", "reference_torch"],
    ["files", "sources", "state_dicts", "allennlp", "torch_layout", "model_card"],
    ["allennlp_files", "trained_allennlp", "manylangs"],
    ["convert"],
    ["formats", "published"],
    ["__init__"],
]


def imports_of(path: Path) -> set[str]:
    """Dotted names of the modules that a file imports, relative ones with their dots."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


@pytest.mark.parametrize(("folder", "layers"), [("elmo_hf", LAYERS), ("conversion", CONVERSION_LAYERS)])
def test_modules_import_only_modules_of_layers_below_their_own(folder: str, layers: list[list[str]]) -> None:
    files = {path.stem: path for path in (ROOT / folder).glob("*.py")}
    assert sorted(files) == sorted(module for layer in layers for module in layer)
    for number, layer in enumerate(layers):
        below = {f".{module}" for lower in layers[:number] for module in lower}
        for module in layer:
            relative = {name for name in imports_of(files[module]) if name.startswith(".")}
            assert relative <= below, f"{folder}/{module}.py"


def test_only_the_command_line_imports_conversion_and_conversion_imports_the_package_by_name() -> None:
    for path in (ROOT / "elmo_hf").glob("*.py"):
        has_conversion = any(name.startswith("elmo_hf.conversion") for name in imports_of(path))
        assert has_conversion == (path.name == "cli.py")


def test_the_readmes_file_tree_names_every_file_of_the_package() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in ("elmo_hf", "conversion"):
        for path in (ROOT / folder).glob("*.py"):
            assert path.stem == "__init__" or re.search(rf"^\s+{re.escape(path.name)}\b", readme, re.MULTILINE), path


def test_changelog_and_metadata_agree_on_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest.group(1) == importlib.metadata.version("elmo-hf")
