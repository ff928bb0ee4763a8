"""The contract of a saved folder: saved and loaded, and without the package, it computes the same, bit for bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, run_python
from fresh_process import without
from task_models import FIRST, LSTM, SECOND, TASKS, C, make_task_model

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, WordVectors
from elmo_hf.hub_code import TABLE
from elmo_hf.model.configuration_elmo import ELMO_HF

NUMBERS = (Path(__file__).parents[1] / "helpers" / "folder_numbers.py").read_text(encoding="utf-8")
WITHOUT = without("elmo_hf", "conversion", "h5py")
TINY = {"max_word_length": C, "char_embedding_size": 5, "char_filters": [[1, 3], [2, 4]], "num_highway_layers": 1}
TINY |= {"projection_size": 7, "cell_size": 9, "cell_clip": 0.6, "projection_clip": 0.4}
VECTORS = WordVectors.learned([text.split() for text in (*FIRST, *SECOND)], 4, min_count=1)


def tiny_bilm() -> ElmoModel:
    return ElmoModel(ElmoConfig(**TINY, num_hidden_layers=1, representation_dropout=0.0))


def tiny_language_models() -> ElmoForPreTraining:
    return ElmoForPreTraining(ElmoConfig(**TINY, num_softmax_words=6))


# One line for each class of models.
MODELS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "bilm": (tiny_bilm, {"graphs": True}),
    "language_models": (tiny_language_models, {}),
    "word_vectors": (lambda: make_task_model("crf", **LSTM, word_vectors=VECTORS.config), {}),
    **{
        task: (lambda task=task: make_task_model(task, **LSTM), {"has_pairs": task in ("pairs", "questions")})
        for task in TASKS
    },
}


def save(folder: Path, model: Any, **asked: Any) -> None:
    """Every model is in a folder called `model`, so that transformers imports the code, which is the same, once."""
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
    if model.config.word_vectors is not None:
        VECTORS.put_into(model, tokenizer)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "asked.json").write_text(json.dumps({"architecture": type(model).__name__, "has_pairs": False} | asked))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of every golden case and of every class."""
    work = tmp_path_factory.mktemp("saved")
    for case in GOLDEN_CASES:
        (work / case).mkdir()
        allennlp_to_folder(FIXTURES / case, work / case / "model", source_name=case)
        sentences = json.loads((FIXTURES / case / "sentences.json").read_text())["call1"]
        asked = {"architecture": "ElmoModel", "has_pairs": False, "sentences": sentences}
        (work / case / "asked.json").write_text(json.dumps(asked))
    torch.manual_seed(20180608)
    for name, (make, asked) in MODELS.items():
        save(work / name, make(), **asked)
    return work


def numbers_of(saved: Path, work: Path, which: str) -> dict[str, np.ndarray]:
    """What `folder_numbers.py` computes by the `package`, or by the folders' code (`auto`) alone, twice saved."""
    run_python(
        ("" if which == "package" else WITHOUT) + NUMBERS, work, saved, work / "numbers.npz", work / "again", which
    )
    return dict(np.load(work / "numbers.npz"))


@pytest.fixture(scope="module")
def numbers(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, np.ndarray]]:
    return [numbers_of(saved, tmp_path_factory.mktemp(which), which) for which in ("package", "auto")]


@pytest.mark.parametrize("name", [*MODELS, *GOLDEN_CASES])
def test_a_folder_computes_the_same_without_the_package(name: str, numbers: list[dict[str, np.ndarray]]) -> None:
    expected, found = ({key: each[key] for key in each if key.startswith(f"{name}.")} for each in numbers)
    files = {key: str(found.pop(key)) for key in [*found] if key.startswith(f"{name}.files.")}
    # transformers copies the files that the saved classes need: all of them.
    assert sorted(files.values()) == sorted(f"{file}.py" for file in TABLE)
    assert {key.split(".")[1] for key in found} >= {"outputs", "gradients"}
    assert found.keys() == expected.keys() - files.keys()
    for key, array in found.items():
        if name == "language_models" and array.dtype.kind == "f":
            # Only the package adds the gradients of the full softmax by blocks.
            np.testing.assert_allclose(array, expected[key], rtol=1e-5, atol=1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(array, expected[key], err_msg=key)


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
PICKLED = """
from transformers import AutoModel

try:
    AutoModel.from_pretrained("model", trust_remote_code=True)
except OSError as error:
    print(error)
"""


def test_the_heads_travel_with_a_bilm_and_their_code_is_not_run(tmp_path: Path) -> None:
    save(tmp_path, tiny_bilm())
    ran = run_python(WITHOUT + WITHOUT_HEADS, tmp_path).split()
    assert [name for name in ran if name.endswith("_elmo")] == sorted({*TABLE} - {"heads_elmo"})
    assert (tmp_path / "again" / "heads_elmo.py").is_file()
    # The folder's own code reads no pickles.
    (tmp_path / "model" / "model.safetensors").rename(tmp_path / "model" / "pytorch_model.bin")
    assert "no file named model.safetensors" in run_python(WITHOUT + PICKLED, tmp_path)


def test_what_needs_the_package_says_so(tmp_path: Path) -> None:
    save(tmp_path, tiny_language_models())
    printed = run_python(WITHOUT + LANGUAGE_MODELS, tmp_path).splitlines()
    assert len(printed) == 3
    assert all(ELMO_HF in line for line in printed)
