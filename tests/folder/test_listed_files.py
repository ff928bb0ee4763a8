"""What `elmo-hf check` finds in a model, a run, a checkpoint and a download: every single change has its name."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.checksums import SUMS, sums_agree, write_sums
from elmo_hf.folder.listed_files import MODEL_FILES, compare_with_list
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.tiny_lm import tiny_lm

Change = Callable[[Path], object]
WEIGHTS = "model.safetensors"


def remove(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def written(name: str, content: bytes = b"x") -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-1])


def without_line(name: str) -> Change:
    """Takes a file out of the list."""

    def change(folder: Path) -> None:
        lines = (folder / SUMS).read_text().splitlines(keepends=True)
        (folder / SUMS).write_text("".join(line for line in lines if not line.endswith(f"  {name}\n")))

    return change


def take_twin(folder: Path) -> None:
    """Weights of the same shapes."""
    save_file({name: tensor + 1 for name, tensor in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)


MODEL_CHANGES: dict[str, tuple[Change, list[str]]] = {
    "no weights": (remove(WEIGHTS), [f"{WEIGHTS} is missing"]),
    "weights cut": (cut(WEIGHTS), [f"{WEIGHTS} is changed"]),
    "other weights": (take_twin, [f"{WEIGHTS} is changed"]),
    "weights renamed": (
        lambda folder: (folder / WEIGHTS).rename(folder / "x.safetensors"),
        [f"{WEIGHTS} is missing", f"x.safetensors is not in {SUMS}"],
    ),
    "another config": (written("config.json", b"{}"), ["config.json is changed"]),
    "no config": (remove("config.json"), ["config.json is missing"]),
    "another tokenizer": (cut("tokenizer.json"), ["tokenizer.json is changed"]),
    "no settings of the tokenizer": (remove("tokenizer_config.json"), ["tokenizer_config.json is missing"]),
    "other code": (written("modeling_elmo.py"), ["modeling_elmo.py is changed"]),
    "words from elsewhere": (written("words.txt"), [f"words.txt is not in {SUMS}"]),
    "weights from elsewhere": (written("other.safetensors"), [f"other.safetensors is not in {SUMS}"]),
    "an index from elsewhere": (
        written("model.safetensors.index.json"),
        [f"model.safetensors.index.json is not in {SUMS}"],
    ),
    "an adapter": (written("adapter_config.json"), [f"adapter_config.json is not in {SUMS}"]),
    "an empty list": (written(SUMS, b""), [f"{SUMS} lists no file"]),
    "a list without the tokenizer": (without_line("tokenizer.json"), [f"tokenizer.json is not in {SUMS}"]),
    "a list without the weights": (without_line(WEIGHTS), [f"{WEIGHTS} is not in {SUMS}"]),
}


@pytest.fixture
def model(tiny_folder: Path, tmp_path: Path) -> Path:
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    assert compare_with_list(folder).faults == []
    return folder


@pytest.mark.parametrize("case", MODEL_CHANGES)
def test_a_single_change_of_a_model_is_named(case: str, model: Path) -> None:
    change, faults = MODEL_CHANGES[case]
    change(model)
    assert compare_with_list(model).faults == faults


def test_each_file_behind_the_end_of_a_list_that_was_cut_is_named(model: Path) -> None:
    lines = (model / SUMS).read_text().splitlines(keepends=True)
    names = [line.split()[1] for line in lines]
    for count in range(1, len(lines)):
        (model / SUMS).write_text("".join(lines[:count]))
        assert compare_with_list(model).faults == [f"{name} is not in {SUMS}" for name in names[count:]]


def test_what_may_change_in_a_model_is_not_compared_and_is_named(model: Path) -> None:
    (model / "README.md").write_text("# Mine\n")
    (model / "handler.py").write_text("mine")
    (model / ".cache").mkdir()
    lines = output_of("check", model).splitlines()
    assert lines[0].endswith(f"of {model}: nothing changed since it was written.")
    assert lines[1:] == [f"Not compared, because {SUMS} does not list them: README.md, handler.py."]


def test_a_list_of_an_earlier_version_has_the_weights_alone_and_this_is_said(model: Path) -> None:
    write_sums(model, ("*.safetensors",))
    first, note = output_of("check", model).splitlines()
    assert first == f"Checked 1 file of {model}: nothing changed since it was written."
    assert note.startswith(f"Not compared, because {SUMS} is of an earlier version and lists only the weights: README.")
    assert "config.json, " in note
    (model / "other.safetensors").touch()
    assert compare_with_list(model).faults == [f"other.safetensors is not in {SUMS}"]


@pytest.mark.parametrize("is_earlier", [False, True], ids=["", "a list of an earlier version"])
def test_each_shard_of_the_weights_is_compared_with_list_and_index(is_earlier: bool, tmp_path: Path) -> None:
    tiny_lm().save_pretrained(tmp_path)
    second = max(path.name for path in tmp_path.glob("*.safetensors"))
    write_sums(tmp_path, ("*.safetensors",) if is_earlier else MODEL_FILES)
    assert compare_with_list(tmp_path).faults == []
    without_line(second)(tmp_path)
    assert compare_with_list(tmp_path).faults == [f"{second} is not in {SUMS}"]
    (tmp_path / second).unlink()
    assert compare_with_list(tmp_path).faults == [f"{second} is missing"]  # as the index says


@pytest.mark.parametrize("save", [ElmoModel, ElmoTokenizer], ids=["model", "tokenizer"])
def test_saving_over_a_folder_removes_its_list(save: type, model: Path) -> None:
    save.from_pretrained(model).save_pretrained(model)
    assert not (model / SUMS).exists()
    assert_fails(run("check", model), 1, f"has no {SUMS} to compare with")


@pytest.fixture
def trained(model: Path) -> Path:
    """A finished run with two checkpoints."""
    for step in (4, 8):
        checkpoint = model / f"checkpoint-{step}"
        checkpoint.mkdir()
        for name in (WEIGHTS, "config.json", "optimizer.pt", "trainer_state.json"):
            (checkpoint / name).write_text(f"{name} {step}")
        write_sums(checkpoint)
    (model / "run.json").write_text("{}")
    assert compare_with_list(model).faults == []
    return model


RUN_CHANGES: dict[str, tuple[Change, list[str]]] = {
    "an optimiser lost": (remove("checkpoint-4/optimizer.pt"), ["checkpoint-4/optimizer.pt is missing"]),
    "an optimiser cut": (cut("checkpoint-8/optimizer.pt"), ["checkpoint-8/optimizer.pt is changed"]),
    "a file from elsewhere": (written("checkpoint-4/x"), [f"checkpoint-4/x is not in {SUMS}"]),
    "no state": (remove("checkpoint-4/trainer_state.json"), ["checkpoint-4/trainer_state.json is missing"]),
    "of another checkpoint": (
        lambda folder: shutil.copy(folder / f"checkpoint-4/{WEIGHTS}", folder / f"checkpoint-8/{WEIGHTS}"),
        [f"checkpoint-8/{WEIGHTS} is changed"],
    ),
    "no list": (remove(f"checkpoint-4/{SUMS}"), [f"checkpoint-4 has no {SUMS}, so it is not complete"]),
    "an empty list": (written(f"checkpoint-4/{SUMS}", b""), [f"checkpoint-4/{SUMS} lists no file"]),
    "a list without the state": (
        lambda folder: without_line("trainer_state.json")(folder / "checkpoint-4"),
        [f"checkpoint-4/trainer_state.json is not in {SUMS}"],
    ),
    "not finished": (remove(SUMS), [f"{SUMS} is missing, so the run is not finished, or the file was lost"]),
    "the model's config": (remove("config.json"), ["config.json is missing"]),
}


@pytest.mark.parametrize("case", RUN_CHANGES)
def test_a_single_change_of_a_run_is_named(case: str, trained: Path) -> None:
    change, faults = RUN_CHANGES[case]
    change(trained)
    assert compare_with_list(trained).faults == faults


def test_a_checkpoint_is_compared_by_itself(trained: Path) -> None:
    checkpoint = trained / "checkpoint-8"
    assert output_of("check", checkpoint).startswith("Checked 4 files of ")
    (checkpoint / "optimizer.pt").unlink()
    assert not sums_agree(checkpoint)
    assert_fails(run("check", checkpoint), 1, "optimizer.pt is missing.")


def test_a_list_of_nothing_agrees_with_no_folder(tmp_path: Path) -> None:
    (tmp_path / SUMS).touch()
    assert not sums_agree(tmp_path)
    assert compare_with_list(tmp_path).faults == [f"{SUMS} lists no file"]


def test_every_file_of_a_download_is_compared(tmp_path: Path) -> None:
    for name in ("options.json", "weights.hdf5"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    assert compare_with_list(tmp_path).faults == []
    (tmp_path / "x").touch()
    (tmp_path / "weights.hdf5").unlink()
    assert compare_with_list(tmp_path).faults == ["weights.hdf5 is missing", f"x is not in {SUMS}"]


def test_what_has_no_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vectors.hdf5").touch()
    assert_fails(run("check", tmp_path), 1, f"has no {SUMS} to compare with")
    assert_fails(run("check", tmp_path / "vectors.hdf5"), 1, "a single file has none")
    assert_fails(run("check", tmp_path / "nothing"), 1, "there is no folder")


def test_one_line_names_the_first_faults_and_counts_the_others(model: Path) -> None:
    for number in range(12):
        (model / f"{number:02d}.safetensors").touch()
    assert_fails(run("check", model), 1, f"08.safetensors is not in {SUMS}; and 3 more.")
