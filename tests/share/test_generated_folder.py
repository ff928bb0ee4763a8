"""The generated code in a saved folder computes what the package does, bit for bit, in every way a model is used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, run_python
from task_models import LSTM, TASKS, C, make_task_model

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.hub_code import TABLE
from elmo_hf.model.configuration_elmo import ELMO_HF

NUMBERS = (Path(__file__).parents[1] / "helpers" / "folder_numbers.py").read_text(encoding="utf-8")
REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"elmo_hf", "conversion", "h5py"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
"""
TINY = {"max_word_length": C, "char_embedding_size": 5, "char_filters": [[1, 3], [2, 4]], "num_highway_layers": 1}
TINY |= {"projection_size": 7, "cell_size": 9, "cell_clip": 0.6, "projection_clip": 0.4}


def save(folder: Path, model: Any, **asked: Any) -> None:
    """Every model is in a folder called `model`, so that transformers imports the code, which is the same, once."""
    model.save_pretrained(folder / "model")
    ElmoTokenizer(max_word_length=C, word_splitter="whitespace").save_pretrained(folder / "model")
    (folder / "asked.json").write_text(json.dumps({"architecture": type(model).__name__, "has_pairs": False} | asked))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of every golden case and of every Auto class."""
    work = tmp_path_factory.mktemp("saved")
    for case in GOLDEN_CASES:
        (work / case).mkdir()
        allennlp_to_folder(FIXTURES / case, work / case / "model", source_name=case)
        sentences = json.loads((FIXTURES / case / "sentences.json").read_text())["call1"]
        (work / case / "asked.json").write_text(
            json.dumps({"architecture": "ElmoModel", "has_pairs": False, "sentences": sentences})
        )
    for task in TASKS:
        save(work / task, make_task_model(task, **LSTM), has_pairs=task in ("pairs", "questions"))
    torch.manual_seed(20180608)
    save(work / "language_models", ElmoForPreTraining(ElmoConfig(**TINY, num_softmax_words=6)))
    save(work / "bilm", ElmoModel(ElmoConfig(**TINY, num_hidden_layers=1, representation_dropout=0.0)), graphs=True)
    return work


def numbers(saved: Path, work: Path, which: str) -> dict[str, np.ndarray]:
    """What `folder_numbers.py` computes by the `package`, or by the folders' code (`auto`) alone."""
    work.mkdir()
    code = NUMBERS if which == "package" else REFUSE + NUMBERS
    run_python(code, work, saved, work / "numbers.npz", work / "again", which)
    return dict(np.load(work / "numbers.npz"))


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if name.startswith("language_models.") and array.dtype.kind == "f":
            # Only the package adds the gradients of the full softmax by blocks.
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_a_folder_computes_what_the_package_does_bit_for_bit_and_so_does_its_copy(saved: Path, tmp_path: Path) -> None:
    expected = numbers(saved, tmp_path / "package", "package")
    found = numbers(saved, tmp_path / "auto", "auto")
    assert {name.split(".")[0] for name in expected} == {path.name for path in saved.iterdir()}
    files = {name: found.pop(name).tolist() for name in list(found) if name.endswith(".files")}
    # transformers copies the files that the saved classes need: all of them.
    assert all(names == sorted(f"{file}.py" for file in TABLE) for names in files.values()), files
    assert_equal(found, {name: array for name, array in expected.items() if not name.endswith(".files")})


WITHOUT_HEADS = """
from transformers import AutoModel, AutoTokenizer

model = AutoModel.from_pretrained("model", trust_remote_code=True)
AutoTokenizer.from_pretrained("model", trust_remote_code=True)
print(*sorted({name.split(".")[-1] for name in sys.modules if name.startswith("transformers_modules.model.")} - {""}))
model.save_pretrained("again")
"""
LANGUAGE_MODELS = """
import torch
from transformers import AutoModelForPreTraining

model = AutoModelForPreTraining.from_pretrained("model", trust_remote_code=True)
ids = torch.ones(1, 3, 11, dtype=torch.long)
for call in (
    lambda: model.score([["Yes"]], None),
    lambda: model.predict_words(None, ["___"]),
    lambda: model(ids, backward_input_ids=ids),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""


def test_the_heads_travel_with_a_bilm_and_their_code_is_not_run(tmp_path: Path) -> None:
    save(tmp_path, ElmoModel(ElmoConfig(**TINY)))
    ran = run_python(REFUSE + WITHOUT_HEADS, tmp_path).split()
    assert [name for name in ran if name.endswith("_elmo")] == sorted({*TABLE} - {"heads_elmo"})
    assert (tmp_path / "again" / "heads_elmo.py").is_file()


def test_what_needs_the_package_says_so(tmp_path: Path) -> None:
    save(tmp_path, ElmoForPreTraining(ElmoConfig(**TINY, num_softmax_words=6)))
    assert (
        run_python(REFUSE + LANGUAGE_MODELS, tmp_path).splitlines()
        == [f"streams, sampled losses and scores need {ELMO_HF}: load with its `ElmoForPreTraining`."] * 3
    )


PICKLED = """
from transformers import AutoModel

try:
    AutoModel.from_pretrained("model", trust_remote_code=True)
except OSError as error:
    print(error)
"""


def test_a_folders_own_code_reads_no_pickles(tmp_path: Path) -> None:
    save(tmp_path, ElmoModel(ElmoConfig(**TINY)))
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
    assert "no file named model.safetensors" in run_python(REFUSE + PICKLED, tmp_path)
