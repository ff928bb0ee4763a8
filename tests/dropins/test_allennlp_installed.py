"""An installed program that imports `allennlp` runs with the drop-in, and the real AllenNLP is never hidden."""

from pathlib import Path

from tests.helpers.checkpoints import run_python
from tests.helpers.golden import BASE

# As flair, bio_embeddings, eznlp and others import.
PROGRAM = """
import importlib

import allennlp.commands.elmo
import allennlp.modules
from allennlp.commands.elmo import ElmoEmbedder, DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
from allennlp.modules.elmo import Elmo, _ElmoBiLm, _ElmoCharacterEncoder, batch_to_ids
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.scalar_mix import ScalarMix
from allennlp.modules.token_embedders import ElmoTokenEmbedder
from allennlp.nn.util import remove_sentence_boundaries

assert allennlp.modules.elmo.batch_to_ids is batch_to_ids
assert importlib.import_module("allennlp.modules").Elmo is Elmo


def embed(files, words):
    embedder = allennlp.commands.elmo.ElmoEmbedder(*files)
    return embedder.embed_sentence(words)
"""
ONE_LINE = """
import sys
sys.path.insert(0, sys.argv[1])
{line}
import program
import elmo_hf.allennlp
assert program.Elmo is elmo_hf.allennlp.Elmo
print(program.embed(sys.argv[2:4], ["Yes", "."]).shape)
try:
    import allennlp.models
except ModuleNotFoundError as error:
    print(error)
"""
FUNCTION = """
from elmo_hf.allennlp.installed_programs import register_as_allennlp
register_as_allennlp()
register_as_allennlp()
"""
REFUSED = """
import sys
sys.path.insert(0, sys.argv[1])
from elmo_hf.allennlp.installed_programs import register_as_allennlp
try:
    register_as_allennlp()
except ImportError as error:
    print(error)
import allennlp
print(allennlp.__version__, "allennlp.modules" in sys.modules)
"""
STUB = """
import sys
import types
sys.modules["allennlp"] = types.ModuleType("allennlp")
from elmo_hf.allennlp.installed_programs import register_as_allennlp
try:
    register_as_allennlp()
except ImportError as error:
    print(error)
print("allennlp.modules" in sys.modules)
"""
FOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from elmo_hf.allennlp.installed_programs import register_as_allennlp
try:
    register_as_allennlp()
except ImportError as error:
    print(error)
Path(sys.argv[1], "allennlp").rename(Path(sys.argv[1], "other"))
register_as_allennlp()
import allennlp.modules
print(allennlp.modules.Elmo.__module__)
"""


def test_a_program_that_nobody_edits_runs_after_one_line_or_one_call(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__init__.py").write_text(PROGRAM, encoding="utf-8")
    for line in ("import elmo_hf.allennlp.as_allennlp", FUNCTION):
        printed = run_python(ONE_LINE.format(line=line), tmp_path, tmp_path, *BASE.files)
        assert printed.splitlines() == ["(3, 2, 16)", "No module named 'allennlp.models'"]


def test_the_real_allennlp_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "allennlp").mkdir()
    (tmp_path / "allennlp" / "__init__.py").write_text("__version__ = 'real'\n", encoding="utf-8")
    message, result = run_python(REFUSED, tmp_path, tmp_path).splitlines()
    assert str(tmp_path / "allennlp" / "__init__.py") in message
    assert "uninstall" in message
    assert result == "real False"


def test_another_module_of_this_name_is_not_replaced(tmp_path: Path) -> None:
    message, result = run_python(STUB, tmp_path).splitlines()
    assert "`allennlp` is imported, <module 'allennlp'>" in message
    assert result == "False"


def test_a_folder_of_this_name_is_refused_until_it_is_renamed(tmp_path: Path) -> None:
    (tmp_path / "allennlp").mkdir()
    message, result = run_python(FOLDER, tmp_path, tmp_path).splitlines()
    assert f"a folder `allennlp`, at {tmp_path / 'allennlp'}: rename it" in message
    assert result == "elmo_hf.allennlp.elmo"
