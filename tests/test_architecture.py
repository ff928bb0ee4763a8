"""Which way imports go, and that what the README says is so."""

import ast
import importlib.metadata
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Each module may import those before it in its list; see docs/architecture.md.
LAYERS = [
    [
        "word_codec",
        "word_splitter",
        "padding",
        "pipeline_elmo",
        "sentences",
        "digest",
        "column_products",
        "reading_order",
        "scan_path",
        "scan_operator",
        "step_graphs",
        "triton_kernels",
        "text_rows",
        "processes",
    ],
    [
        "configuration_elmo",
        "bilm_scan",
        "crf",
        "word_encoding",
        "code_point_codec",
        "vocabulary_files",
        "tokenizer_arguments",
        "vector_files",
        "corpus",
        "corpora",
    ],
    ["triton_steps"],
    ["triton_scan"],
    ["token_encoder", "lstmp", "scalar_mix", "task_encoder", "softmax", "streams"],
    ["word_cache", "initialisation"],
    ["modeling_elmo", "tokenization_elmo", "scoring"],
    ["pretraining", "task_model", "word_tables"],
    ["sequence_classification", "token_classification", "question_answering", "feature_cache"],
    ["loading", "model_card", "stateful"],
    ["allennlp", "embed", "export", "push", "tfhub", "training_card", "tiny"],
    ["pretrainer"],
    ["pretrain"],
    ["__init__", "cli_language_models"],
    ["cli"],
]
# Saved folders carry the files of the heads, whichever class was saved; see `modeling_elmo._heads`.
UPWARD = {"modeling_elmo": {".pretraining", ".sequence_classification", ".token_classification", ".question_answering"}}
CONVERSION_LAYERS = [
    ["errors", "reference", "reference_outputs", "checkpoint"],
    ["limits", "rules", "options", "reference_torch"],
    ["files", "sources", "state_dicts", "tensor_bundle", "allennlp", "torch_layout"],
    ["bilm_tf", "trained_allennlp", "manylangs"],
    ["allennlp_files", "load"],
    ["convert"],
    ["formats", "published", "published_cards"],
    ["verify"],
    ["__init__"],
]
# Modules that users call by their names and that read checkpoints.
IMPORT_CONVERSION = {"allennlp.py", "cli.py"}


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
            assert relative <= below | UPWARD.get(module, set()), f"{folder}/{module}.py"


def test_only_modules_that_read_checkpoints_import_conversion_which_imports_the_package_by_name() -> None:
    for path in (ROOT / "elmo_hf").glob("*.py"):
        has_conversion = any(name.startswith("elmo_hf.conversion") for name in imports_of(path))
        assert has_conversion == (path.name in IMPORT_CONVERSION)


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
