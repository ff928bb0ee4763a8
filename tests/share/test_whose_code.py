"""Whose code runs with `trust_remote_code=True`: the package's, once one of its names has been used."""

import shutil
from pathlib import Path

from checkpoints import run_python

LOAD = """
from elmo_hf import ElmoModel, pipeline
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer

found = []
for auto_class in (AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer):
    for trust in ({}, {"trust_remote_code": True}):
        fields = {"num_softmax_words": 5} if auto_class is AutoModelForPreTraining else {}
        found.append(auto_class.from_pretrained("mined", **trust, **fields))
pipe = pipeline("feature-extraction", model="mined", trust_remote_code=True)
found += [pipe, pipe.model, pipe.tokenizer]
print(*{type(part).__module__.split(".")[0] for part in found})
"""


def test_the_packages_code_runs_and_none_of_the_folders(tiny_folder: Path, tmp_path: Path) -> None:
    for path in shutil.copytree(tiny_folder, tmp_path / "mined").glob("*.py"):
        path.write_text('raise AssertionError("code of the folder ran")\n', encoding="utf-8")
    assert run_python(LOAD, tmp_path).splitlines()[0] == "elmo_hf"
