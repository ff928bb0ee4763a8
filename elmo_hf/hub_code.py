"""Generates the five files of code in a saved folder from the modules of this package.

A model folder has its code, so it opens where this package is not installed. Users should read that code before they
pass `trust_remote_code=True`, so the many small modules of the package become a few files, one for each row of a table:

    the modules of the row, each after the modules that it imports
        -> their imports from outside the package, merged, on top
        -> one import line for each other row that they need
        -> their sources, word for word, each under its docstring as a comment

The result depends only on the sources and the version of the package. Nothing generated is kept in the repository.

Config, model and tokenizer call this module when they are saved, so it imports none of them. A class that was loaded
from a folder has an `_auto_class`, and transformers copies that folder's files when an object of it is saved.

A module in the table may import other modules of the package only by top-level lines `from .x import name` without
`as`, which is asserted here. In the modules of a row, a top-level name must mean the same thing; a test checks this.
"""

import ast
import functools
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
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
        "scan.private_names",
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
        "language_model.causal_model",
    ),
}
# Files for sentence-transformers: a text's vector is `pooler_output`. Without these files, it would average
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
    """Writes the generated files into a folder, for a model also `SENTENCE_FILES`; other files stay."""
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
        AssertionError: if a module breaks the rule about imports above.
    """
    return {f"{file}.py": generate(file, TABLE, PACKAGE) for file in TABLE}


def generate(file: str, table: Mapping[str, Sequence[str]], package: Path) -> str:
    """Generates the text of the file in one row of a table."""
    imports: dict[str, set[str]] = {}  # imported names by module; "" stands for the whole module
    sections = []
    for module in table[file]:
        source = package.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        dropped = set(range(tree.body[0].end_lineno or 0))  # the docstring
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                is_plain = node in tree.body and not any(alias.asname for alias in node.names)
                assert is_plain, f"{module} imports from {node.module} inside a function or with `as`."
                origin = ".".join([*module.split(".")[: -node.level], node.module or ""])
                row = next((row for row, members in table.items() if origin in members), None)
                assert row is not None, f"{module} imports from {origin}, which is in no generated file."
                origin = f".{row}"
            elif isinstance(node, (ast.Import, ast.ImportFrom)) and node in tree.body:
                origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            else:
                continue
            dropped |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
            if origin != f".{file}":
                imports.setdefault(origin, set()).update(map(ast.unparse, node.names))
        body = "\n".join(line for number, line in enumerate(source.splitlines()) if number not in dropped)
        comment = "\n".join(f"# {line}".rstrip() for line in (ast.get_docstring(tree) or "").splitlines())
        rule = f"# ---- {module.replace('.', '/')}.py ".ljust(LINE_LENGTH, "-")
        sections.append(f"{rule}\n{comment}\n\n{body.strip()}\n")
    lines = [f"import {name}" for name in sorted(imports.pop("", ()))]
    lines += [
        _import_line(origin, imports[origin]) for origin in sorted(imports, key=lambda each: (each[0] == ".", each))
    ]
    header = HEADER.format(file=file, version=importlib.metadata.version("elmo-hf"))
    return "\n".join([header, *lines, "", *sections])


def _import_line(module: str, names: set[str]) -> str:
    line = f"from {module} import {', '.join(sorted(names))}"
    if len(line) > LINE_LENGTH:
        line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in sorted(names)) + ")"
    return line
