"""The files that a saved folder carries for other programs: five of code, generated from the modules of this package.

A model folder opens where this package is not installed, because it carries its code, and a user reads that code before
saying `trust_remote_code=True`. So the many small modules of the package become a few files, one for each row of a
table:

    the modules of the row, each after the modules that it imports
        -> their imports from outside the package, merged, on top
        -> one import line for each other row that they need
        -> their sources, word for word, each under its docstring as a comment

The result depends only on the sources and the version of the package. Nothing generated is kept in the repository.

Config, model and tokenizer call this module when they are saved, so it imports none of them. A class that was loaded
from a folder has an `_auto_class`, and transformers copies that folder's files when an object of it is saved.

A module in the table imports other modules of the package by top-level lines `from .x import name` without `as`, and no
two modules of a row define the same top-level name. `generated_files` refuses anything else.
"""

import ast
import functools
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from .disk.whole_files import new_file

PACKAGE = Path(__file__).parent

# Which modules make which file.
TABLE = {
    "configuration_elmo": ("model.configuration_elmo",),
    "tokenization_elmo": (
        "tokenizer.word_splitter",
        "tokenizer.word_codec",
        "tokenizer.code_point_codec",
        "tokenizer.encoded_texts",
        "tokenizer.padding",
        "tokenizer.tokenization_elmo",
    ),
    "scan_elmo": (
        "scan.operator",
        "scan.parameters",
        "scan.products",
        "scan.reading_order",
        "scan.kernels",
        "scan.packed_steps",
        "scan.packed_gradient",
        "scan.packed",
    ),
    "modeling_elmo": (
        "model.inputs",
        "model.pooling",
        "model.scalar_mix",
        "model.token_encoder",
        "model.lstmp",
        "model.bilm",
        "model.modeling_elmo",
    ),
    "heads_elmo": (
        "tasks.text_rows",
        "tasks.task_encoder",
        "tasks.task_model",
        "tasks.crf",
        "tasks.sequence_classification",
        "tasks.token_classification",
        "tasks.question_answering",
        "language_model.softmax",
        "language_model.sentence_model",
    ),
}
# What sentence-transformers reads: a text's vector is `pooler_output`. Without these files it would average
# `last_hidden_state`, boundaries included.
READER = "sentence_transformers.base.modules.transformer.Transformer"
VECTOR = {"method": "forward", "method_output_name": "pooler_output"}
SENTENCE_FILES = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": READER}],
    "sentence_bert_config.json": {"modality_config": {"text": VECTOR}, "module_output_name": "sentence_embedding"},
    "config_sentence_transformers.json": {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
}
LINE_LENGTH = 120
HEADER = """\
# {file}.py of elmo-hf {version}, generated from the readable modules of that package when this folder was saved.
# ELMo (Peters et al. 2018). Apache License 2.0.
"""


def write_code(folder: Path | str, is_model: bool = False) -> None:
    """Writes the generated files into a folder, and `SENTENCE_FILES` beside a model; any other file stays."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in generated_files().items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode():
            with new_file(path) as partial:
                partial.write_text(text, encoding="utf-8")
    for name, content in SENTENCE_FILES.items() if is_model else ():
        if not (folder / name).exists():  # one that exists may be the user's
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@functools.cache
def generated_files() -> dict[str, str]:
    """The text of each file by its name.

    Raises:
        AssertionError: if a module holds what the module docstring rules out.
    """
    return {f"{file}.py": _generate(file, modules) for file, modules in TABLE.items()}


def _generate(file: str, modules: tuple[str, ...]) -> str:
    parsed = [_Module(name) for name in modules]
    _refuse_collisions(file, parsed)
    outside: dict[str, set[str]] = {}
    siblings: dict[str, set[str]] = {}
    for module in parsed:
        for source, name in module.outside_imports:
            outside.setdefault(source, set()).add(name)
        for source, names in module.inside_imports:
            row = next((row for row, members in TABLE.items() if source in members), None)
            assert row is not None, f"{module.name} imports {source}, which is in no generated file."
            if row != file:
                siblings.setdefault(f".{row}", set()).update(names)
    imports = [f"import {name}" for name in sorted(outside.pop("", ()))]
    imports += [_import_line(source, names) for source, names in sorted(outside.items())]
    standard = [line for line in imports if line.split()[1].split(".")[0] in sys.stdlib_module_names]
    others = [line for line in imports if line not in standard]
    inside = [_import_line(source, names) for source, names in sorted(siblings.items())]
    header = HEADER.format(file=file, version=importlib.metadata.version("elmo-hf"))
    blocks = ["\n".join(lines) + "\n" for lines in (standard, others, inside) if lines]
    return "\n".join([header, *blocks, *(module.section for module in parsed)])


class _Module:
    """One module's source, taken apart."""

    def __init__(self, name: str) -> None:
        self.name = name
        source = PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        self.outside_imports: list[tuple[str, str]] = []
        self.inside_imports: list[tuple[str, set[str]]] = []
        lines = source.splitlines()
        dropped = set()
        for node in tree.body:
            if isinstance(node, ast.Import):
                self.outside_imports += [("", _with_alias(alias)) for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                self.outside_imports += [(node.module or "", _with_alias(alias)) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                self._take_inside_import(node)
            else:
                continue
            dropped |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
        on_top = all(node in tree.body for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level)
        assert on_top, f"{name} imports from the package inside a function; such imports stand on top."
        docstring = ast.get_docstring(tree) or ""
        end = tree.body[0].end_lineno or 0
        body = "\n".join(line for number, line in enumerate(lines) if number >= end and number not in dropped)
        rule = f"# ---- {name.replace('.', '/')}.py ".ljust(LINE_LENGTH, "-")
        comment = "\n".join(f"# {line}".rstrip() for line in docstring.splitlines())
        self.section = f"{rule}\n{comment}\n\n{body.strip()}\n"
        # What each top-level name stands for; two assignments of one text are one meaning, as that of a `logger`.
        self.meanings = [
            (target, ast.unparse(node) if isinstance(node, ast.Assign) else f"{name}.{target}")
            for node in tree.body
            if not isinstance(node, (ast.Import, ast.ImportFrom))
            for target in _targets(node)
        ]
        self.meanings += [_meaning(source, imported) for source, imported in self.outside_imports]
        row = next(row for row in TABLE.values() if name in row)
        self.meanings += [
            (each, f"{source}.{each}") for source, names in self.inside_imports if source not in row for each in names
        ]

    def _take_inside_import(self, node: ast.ImportFrom) -> None:
        parents = self.name.split(".")[: -node.level]
        is_renamed = any(alias.asname for alias in node.names)
        assert not is_renamed, f"{self.name} gives another name to what it imports from {node.module}."
        self.inside_imports.append((".".join([*parents, node.module or ""]), {alias.name for alias in node.names}))


def _targets(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        yield from (name.id for name in names if isinstance(name.ctx, ast.Store))
    elif isinstance(node, ast.Try):
        for inner in [*node.body, *node.orelse]:
            yield from _targets(inner)
    elif isinstance(node, ast.If):
        for inner in [*node.body, *node.orelse]:
            yield from _targets(inner)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)


def _refuse_collisions(file: str, modules: list[_Module]) -> None:
    """Checks that a name stands for one thing in a file."""
    meanings: dict[str, set[str]] = {}
    for name, meaning in (pair for module in modules for pair in module.meanings):
        meanings.setdefault(name, set()).add(meaning)
    clashes = [" and ".join(sorted(found)) for found in meanings.values() if len(found) > 1]
    assert not clashes, f"{file}.py would hold one name for {'; '.join(sorted(clashes))}: rename one of each."


def _meaning(module: str, imported: str) -> tuple[str, str]:
    """The name that an import binds, and what it stands for."""
    what, _, alias = imported.partition(" as ")
    if module or alias:
        return alias or what, f"{module}.{what}".strip(".")
    return what.split(".")[0], what.split(".")[0]


def _with_alias(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _import_line(module: str, names: Iterable[str]) -> str:
    line = f"from {module} import {', '.join(sorted(names))}"
    if len(line) > LINE_LENGTH:
        line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in sorted(names)) + ")"
    return line
