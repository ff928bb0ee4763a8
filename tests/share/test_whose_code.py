"""Whose code runs with `trust_remote_code=True`: the package's, once one of its names has been used."""

import shutil
from pathlib import Path

import pytest
from checkpoints import run_online, run_python
from loopback_hub import LoopbackHub, Repository, StoredFile

LOAD = """
import sys
from elmo_hf import ElmoModel
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer, pipeline

name = sys.argv[1]
for auto_class in (AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer):
    for trust in ({}, {"trust_remote_code": True}):
        fields = {"num_softmax_words": 5} if auto_class is AutoModelForPreTraining else {}
        print(type(auto_class.from_pretrained(name, **trust, **fields)).__module__.split(".")[0])
print(any(module.startswith("transformers_modules.") for module in sys.modules))
"""
PIPELINE = """
import sys
import elmo_hf
from transformers import pipeline

kinds = {"stock": pipeline, "package": elmo_hf.pipeline}
pipe = kinds[sys.argv[2]]("feature-extraction", model=sys.argv[1], trust_remote_code=True)
print([type(part).__module__.split(".")[0] for part in (pipe, pipe.model, pipe.tokenizer)])
"""


@pytest.fixture
def mined(tiny_folder: Path, tmp_path: Path) -> Path:
    """A folder whose code cannot be imported."""
    folder = shutil.copytree(tiny_folder, tmp_path / "mined")
    for path in folder.glob("*.py"):
        path.write_text('raise AssertionError("code of the folder ran")\n', encoding="utf-8")
    return folder


def test_the_packages_code_runs_and_none_of_the_folders(mined: Path, hub: LoopbackHub, tmp_path: Path) -> None:
    expected = ["elmo_hf"] * 8 + ["False"]
    assert run_python(LOAD, tmp_path, mined).split() == expected
    repository = hub.repositories["org/elmo"] = Repository(is_private=False)
    files = {path.name: StoredFile(path.read_bytes(), is_lfs=False) for path in mined.iterdir()}
    repository.commit("main", files)
    assert run_online(LOAD, hub, tmp_path / "home", "org/elmo", HF_TOKEN="").split() == expected


def test_a_stock_pipeline_takes_its_class_from_the_folder_and_the_packages_pipeline_does_not(
    tiny_folder: Path, mined: Path, tmp_path: Path
) -> None:
    stock = run_python(PIPELINE, tmp_path, tiny_folder, "stock")
    assert stock.split("\n")[0] == "['transformers_modules', 'elmo_hf', 'elmo_hf']"
    assert run_python(PIPELINE, tmp_path, mined, "package").split("\n")[0] == "['elmo_hf', 'elmo_hf', 'elmo_hf']"
