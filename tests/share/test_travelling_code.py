"""A saved folder computes the same without the package, bit for bit; its code is `elmo_hf/model`, byte for byte."""

import importlib.metadata
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers.dynamic_module_utils import get_imports

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, WordVectors
from elmo_hf.model import configuration_elmo
from elmo_hf.model.configuration_elmo import CODE_FILES, ELMO_HF
from elmo_hf.share.model_info import describe_code
from tests.helpers.checkpoints import FIXTURES, GOLDEN_CASES, allennlp_to_folder, run_python
from tests.helpers.fresh_process import without
from tests.helpers.saved_folders import assert_same_without_the_package
from tests.helpers.task_models import FIRST, LSTM, SECOND, TASKS, C, make_task_model
from tests.helpers.tiny_inputs import TINY

MODEL = Path(configuration_elmo.__file__).parent
FILES = {*CODE_FILES}
# What every user of the Hub has.
MAY_IMPORT = {*"torch transformers huggingface_hub tokenizers safetensors numpy".split(), *sys.stdlib_module_names}
VECTORS = WordVectors.learned([text.split() for text in (*FIRST, *SECOND)], 4, min_count=1)


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


@pytest.mark.same_rounding
def test_every_class_and_golden_case_computes_the_same_without_the_package(tmp_path: Path) -> None:
    models: dict[str, Any] = {task: make_task_model(task, **LSTM) for task in TASKS}
    models["bilm"] = ElmoModel(ElmoConfig(**TINY | {"num_hidden_layers": 1, "representation_dropout": 0.0}))
    models["language models"] = tiny_language_models()
    models["word vectors"] = make_task_model("crf", **LSTM, word_vectors=VECTORS.config)
    models["marks"] = make_task_model("labelling", **LSTM, mark_size=3)
    folders = [save(tmp_path / name, model) for name, model in models.items()]
    for case in [*GOLDEN_CASES, "efml_tiny"]:
        folders.append(tmp_path / case / "model")
        allennlp_to_folder(FIXTURES / case, folders[-1], source_name=case)
        shutil.copy(FIXTURES / case / "sentences.json", tmp_path / case)
    assert_same_without_the_package(*folders)


FOLDERS_CODE = """
import os
import torch
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

options = {"trust_remote_code": True}
model = AutoModel.from_pretrained("model", **options)
AutoTokenizer.from_pretrained("model", **options)
print(*{name.split(".")[-1] for name in sys.modules if name.startswith("transformers_modules.model.")})
model.save_pretrained("again")
os.rename("again/model.safetensors", "again/pytorch_model.bin")
model = AutoModelForPreTraining.from_pretrained("model", **options)
ids = torch.ones(1, 3, 11, dtype=torch.long)
for call in (
    lambda: AutoModel.from_pretrained("again", **options),
    lambda: model.score([["Yes"]], None),
    lambda: model.predict_words(None, ["___"]),
    lambda: model(ids, backward_input_ids=ids),
    lambda: model(ids, forward_resets=ids[..., 0]),
    lambda: model(ids, candidates=[]),
):
    try:
        call()
    except (ImportError, OSError) as error:
        print(type(error).__name__, error)
"""


def test_a_bilm_runs_no_code_of_heads_and_what_needs_the_package_or_reads_a_pickle_is_refused(tmp_path: Path) -> None:
    save(tmp_path, tiny_language_models())
    ran, pickle, *lacking = run_python(without("elmo_hf", "conversion", "h5py") + FOLDERS_CODE, tmp_path).splitlines()
    assert {name for name in ran.split() if name.endswith("_elmo")} == {Path(name).stem for name in FILES} - {
        "heads_elmo",
        "language_model_elmo",
    }
    assert (tmp_path / "again" / "heads_elmo.py").is_file()
    assert (tmp_path / "again" / "language_model_elmo.py").is_file()
    assert pickle.startswith("OSError")
    assert "no file named model.safetensors" in pickle
    assert [line.startswith("ImportError") and ELMO_HF in line for line in lacking] == [True] * 5


MOVED_CODE = """
import os
from transformers import AutoModel, AutoModelForTokenClassification

def files(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".py")) if os.path.exists(folder) else None

options = {"trust_remote_code": True}
model = AutoModel.from_pretrained("model", **options)
task = AutoModelForTokenClassification.from_pretrained("model", **options)
task.elmo.save_pretrained("part")
AutoModel.from_pretrained("part", **options).save_pretrained("part")
os.rename("model", "moved")
print(files("part"))
try:
    model.save_pretrained("biLM")
except OSError as error:
    print(type(error).__name__, error)
print(files("biLM"))
model.name_or_path = "moved"
model.save_pretrained("biLM")
print(files("biLM"))
try:
    task.save_pretrained("task")
except OSError as error:
    print(type(error).__name__, error)
print(files("task"))
task.name_or_path = "moved"
task.save_pretrained("task")
AutoModelForTokenClassification.from_pretrained("task", **options)
AutoModel.from_pretrained("task", **options)
print(files("task"))
"""


def test_a_model_is_saved_with_all_classes_that_its_config_names_or_not_at_all(tmp_path: Path) -> None:
    """Also a task model, which has the code of the tasks alone; and a part of a model, whose class no one loaded."""
    save(tmp_path, tiny_language_models())
    lines = run_python(without("elmo_hf", "conversion", "h5py") + MOVED_CODE, tmp_path).splitlines()
    part, error, nothing, bilm, task_error, no_task, task = lines
    complete = str(sorted(FILES - {"tokenization_elmo.py"}))
    assert error.startswith("FileNotFoundError nothing was saved: heads_elmo.py")
    assert "Set `model.name_or_path` to a folder that has it." in error
    assert task_error.startswith("FileNotFoundError nothing was saved: language_model_elmo.py")
    assert (part, nothing, bilm, no_task, task) == (complete, "None", complete, "None", complete)


def test_the_package_saves_its_code_wherever_the_model_came_from(tmp_path: Path) -> None:
    model = ElmoModel.from_pretrained(save(tmp_path, tiny_language_models()))
    shutil.rmtree(tmp_path / "model")
    model.save_pretrained(tmp_path / "again")
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == FILES


PACKAGES_CODE = """
from elmo_hf import ElmoModel, pipeline
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer

found = []
for auto_class in (AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer):
    for trust in ({}, {"trust_remote_code": True}):
        fields = {"num_softmax_words": 5} if auto_class is AutoModelForPreTraining else {}
        found.append(auto_class.from_pretrained("mined", **trust, **fields))
pipe = pipeline("feature-extraction", model="mined", trust_remote_code=True)
found += [pipe.model, pipe.tokenizer]
print(*{type(part).__module__.split(".")[0] for part in found})
"""


def test_an_imported_package_runs_its_own_code_and_not_the_folders(tiny_folder: Path, tmp_path: Path) -> None:
    for path in shutil.copytree(tiny_folder, tmp_path / "mined").glob("*.py"):
        path.write_text('raise AssertionError("code of the folder ran")\n', encoding="utf-8")
    assert run_python(PACKAGES_CODE, tmp_path).splitlines()[0] == "elmo_hf"


def test_the_files_that_travel_are_those_of_the_room_byte_for_byte(tmp_path: Path) -> None:
    assert {path.name for path in MODEL.glob("*_elmo.py")} == FILES
    ElmoConfig().save_pretrained(tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (MODEL / name).read_bytes(), name


def test_each_file_begins_with_the_version_the_licence_and_its_source() -> None:
    heads = {tuple((MODEL / name).read_text(encoding="utf-8").splitlines()[:2]) for name in FILES}
    ((first, second),) = heads
    assert first.startswith(f"# elmo-hf {importlib.metadata.version('elmo-hf')}: ")
    assert "Apache License 2.0" in first
    assert "elmo_hf/model/" in second


def test_the_code_imports_only_what_every_user_of_the_hub_has(tmp_path: Path) -> None:
    ElmoConfig().save_pretrained(tmp_path)
    for name in FILES:
        assert set(get_imports(tmp_path / name)) <= MAY_IMPORT


@pytest.mark.parametrize("part", [ElmoConfig(), ElmoTokenizer()], ids=["config", "tokenizer"])
def test_a_part_alone_brings_the_code_along_and_other_files_stay(
    part: ElmoConfig | ElmoTokenizer, tmp_path: Path
) -> None:
    for name in ("mine.py", "scan_elmo.py"):
        (tmp_path / name).write_text("# of the user, or of an older version\n")
    part.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == FILES | {"mine.py"}
    assert (tmp_path / "mine.py").read_text() == "# of the user, or of an older version\n"
    assert (tmp_path / "scan_elmo.py").read_bytes() == (MODEL / "scan_elmo.py").read_bytes()


def test_what_a_killed_process_left_is_removed_and_not_what_another_is_writing(tmp_path: Path) -> None:
    living = tmp_path / ".scan_elmo.py.8.partial"
    living.touch()
    for _ in range(2):  # also where the code is complete already
        abandoned = tmp_path / ".scan_elmo.py.7.partial"
        abandoned.touch()
        os.utime(abandoned, (1, 1))
        ElmoConfig().save_pretrained(tmp_path)
        assert [*tmp_path.glob(".*")] == [living]


def test_a_save_that_is_refused_leaves_the_config_as_it_was(tmp_path: Path) -> None:
    weights = [0.2, 0.3, 0.5]
    model = ElmoModel(ElmoConfig(**TINY, scalar_mix_weights=weights))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        model.save_pretrained(tmp_path / "file")
    assert model.config.scalar_mix_weights == weights


def test_who_may_read_the_config_may_read_the_weights(tmp_path: Path) -> None:
    tiny_language_models().save_pretrained(tmp_path, max_shard_size="2KB")
    shards = [*tmp_path.glob("model-*.safetensors")]
    assert len(shards) > 1
    assert {path.stat().st_mode for path in shards} == {(tmp_path / "config.json").stat().st_mode}


OLD_FOLDER = FIXTURES / "folder_of_0_1_0_generated"
OLD_CODE = """
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

options = {"trust_remote_code": True}
tokenizer = AutoTokenizer.from_pretrained("old", **options)
batch = tokenizer(["The ferry left.", "It isn't late", "the"], padding=True, return_tensors="pt")
expected = load_file("old/expected.safetensors")
assert torch.equal(batch["input_ids"], expected["input_ids"])
with torch.no_grad():
    output = AutoModel.from_pretrained("old", **options)(**batch, output_hidden_states=True)
    scores = AutoModelForPreTraining.from_pretrained("old", **options)(**batch, output_logits=True)
found = {
    "last_hidden_state": output.last_hidden_state,
    "pooler_output": output.pooler_output,
    "layer_2": output.hidden_states[2],
    "forward_logits": scores.forward_logits,
    "backward_logits": scores.backward_logits,
}
for name, tensor in found.items():
    # Sums of float32 in another order on another processor.
    torch.testing.assert_close(tensor, expected[name], rtol=1e-5, atol=1e-6)
print(type(output).__module__.split(".")[0])
"""


@pytest.mark.parametrize("has_package", [True, False])
def test_a_folder_of_an_earlier_version_computes_what_it_did(has_package: bool, tmp_path: Path) -> None:
    shutil.copytree(OLD_FOLDER, tmp_path / "old")
    before = "import elmo_hf.public, sys\n" if has_package else without("elmo_hf", "conversion", "h5py")
    code = run_python(before + OLD_CODE, tmp_path).splitlines()[-1]
    assert code == ("elmo_hf" if has_package else "transformers_modules")


def test_a_folder_of_an_earlier_version_is_saved_with_the_code_of_this_one(tmp_path: Path) -> None:
    ElmoForPreTraining.from_pretrained(OLD_FOLDER).save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.glob("*.py")} == FILES
    assert dict(describe_code(tmp_path))["code"] == f"that of elmo-hf {importlib.metadata.version('elmo-hf')}"


def test_info_names_the_files_of_code_that_differ(tmp_path: Path) -> None:
    ElmoConfig().save_pretrained(tmp_path)
    (tmp_path / "scan_elmo.py").write_text("# mine\n")
    (tmp_path / "heads_elmo.py").unlink()
    version = importlib.metadata.version("elmo-hf")
    assert (
        dict(describe_code(tmp_path))["code"]
        == f"not that of elmo-hf {version}: heads_elmo.py is missing; scan_elmo.py differs"
    )
    (tmp_path / "old_elmo.py").write_text("")
    assert "old_elmo.py is not of it" in dict(describe_code(tmp_path))["code"]
