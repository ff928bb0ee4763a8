"""The contract of a saved folder: saved and loaded, and without the package, it computes the same, bit for bit."""

import shutil
from pathlib import Path
from typing import Any

from checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, run_python
from fresh_process import without
from saved_folders import assert_same_without_the_package
from task_models import FIRST, LSTM, SECOND, TASKS, C, make_task_model

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, WordVectors
from elmo_hf.hub_code import TABLE
from elmo_hf.model.configuration_elmo import ELMO_HF

WITHOUT = without("elmo_hf", "conversion", "h5py")
TINY = {"max_word_length": C, "char_embedding_size": 5, "char_filters": [[1, 3], [2, 4]], "num_highway_layers": 1}
TINY |= {"projection_size": 7, "cell_size": 9, "cell_clip": 0.6, "projection_clip": 0.4}
VECTORS = WordVectors.learned([text.split() for text in (*FIRST, *SECOND)], 4, min_count=1)


def tiny_bilm() -> ElmoModel:
    return ElmoModel(ElmoConfig(**TINY, num_hidden_layers=1, representation_dropout=0.0))


def tiny_language_models() -> ElmoForPreTraining:
    return ElmoForPreTraining(ElmoConfig(**TINY, num_softmax_words=6))


def save(folder: Path, model: Any) -> Path:
    """Every model is in a folder called `model`, so that transformers imports the code, which is the same, once."""
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
    if model.config.word_vectors is not None:
        VECTORS.put_into(model, tokenizer)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"


def test_every_class_and_golden_case_computes_the_same_without_the_package(tmp_path: Path) -> None:
    models = {"bilm": tiny_bilm(), "lm": tiny_language_models()} | {
        task: make_task_model(task, **LSTM) for task in TASKS
    }
    models["word vectors"] = make_task_model("crf", **LSTM, word_vectors=VECTORS.config)
    folders = [save(tmp_path / name, model) for name, model in models.items()]
    for case in [*GOLDEN_CASES, "efml_tiny"]:
        folders.append(tmp_path / case / "model")
        allennlp_to_folder(FIXTURES / case, folders[-1], source_name=case)
        shutil.copy(FIXTURES / case / "sentences.json", tmp_path / case)
    assert_same_without_the_package(*folders)


WITHOUT_HEADS = """
import os
from transformers import AutoModel, AutoTokenizer

model = AutoModel.from_pretrained("model", trust_remote_code=True)
AutoTokenizer.from_pretrained("model", trust_remote_code=True)
print(*sorted({name.split(".")[-1] for name in sys.modules if name.startswith("transformers_modules.model.")} - {""}))
model.save_pretrained("again")
os.rename("model/model.safetensors", "model/pytorch_model.bin")
try:
    AutoModel.from_pretrained("model", trust_remote_code=True)
except OSError as error:
    print(error)
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
    save(tmp_path, tiny_bilm())
    ran, error = run_python(WITHOUT + WITHOUT_HEADS, tmp_path).split("\n", 1)
    assert [name for name in ran.split() if name.endswith("_elmo")] == sorted({*TABLE} - {"heads_elmo"})
    assert (tmp_path / "again" / "heads_elmo.py").is_file()
    assert "no file named model.safetensors" in error  # the folder's own code reads no pickles


def test_what_needs_the_package_says_so(tmp_path: Path) -> None:
    save(tmp_path, tiny_language_models())
    printed = run_python(WITHOUT + LANGUAGE_MODELS, tmp_path).splitlines()
    assert len(printed) == 3
    assert all(ELMO_HF in line for line in printed)
