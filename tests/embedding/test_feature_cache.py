"""Layers kept beside a dataset: equal to the biLM's, trained on with the same result, refused where they do not fit."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding.feature_cache import add_bilm_layers
from tests.helpers.task_models import LSTM, C, make_task_model
from tests.helpers.task_training import TOKENIZER, each_task, make_dataset, make_trainer
from tests.helpers.tiny_inputs import assert_outputs_close


@each_task
@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_layers_are_the_bilms_in_the_datasets_order(task: str, batch_size: int) -> None:
    model, dataset = make_task_model(task), make_dataset(task)
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace", padding_side="left")
    cached = add_bilm_layers(dataset, model, tokenizer, batch_size=batch_size)
    assert set(cached.column_names) == {*dataset.column_names, "bilm_layers"}
    for plain, row in zip(dataset, cached, strict=True):
        expected = model.compute_bilm_layers(torch.tensor([plain["input_ids"]]))[0]
        assert_outputs_close(torch.from_numpy(row["bilm_layers"]), expected)
        assert np.array_equal(row["input_ids"], plain["input_ids"])


@each_task
def test_training_on_kept_layers_trains_the_same_model(task: str, tmp_path: Path) -> None:
    ends = []
    for is_kept in (False, True):
        model = make_task_model(task, **LSTM)
        # Not Adam, which makes full steps of the rounding errors of a gradient that is zero.
        trainer = make_trainer(model, task, tmp_path, max_steps=4, seed=11, optim="sgd", learning_rate=0.1)
        if is_kept:
            trainer.train_dataset = add_bilm_layers(trainer.train_dataset, model, TOKENIZER)
            model.elmo.bilm.forward = None
        trainer.train()
        ends.append(dict(model.named_parameters()))
    assert_outputs_close(ends[1], ends[0], 1e-5)


def test_layers_can_be_kept_in_float16() -> None:
    model, dataset = make_task_model("crf"), make_dataset("crf")
    exact, half = (add_bilm_layers(dataset, model, TOKENIZER, dtype=dtype) for dtype in ("float32", "float16"))
    for row, expected in zip(half, exact, strict=True):
        np.testing.assert_array_equal(row["bilm_layers"], expected["bilm_layers"].astype(np.float16))


# Fields of the config that change a biLM's layers but not the shapes of its weights.
CHANGES: dict[str, Any] = {"char_activation": "tanh", "cell_clip": 0.5, "projection_clip": 0.3}
CHANGES |= {"use_skip_connections": False, "forget_bias": 0.25}


def test_the_bilm_is_run_again_where_its_layers_change_and_not_for_what_is_on_top_of_it() -> None:
    dataset, first, other_head = make_dataset("labelling"), make_task_model("labelling"), make_task_model("crf", **LSTM)
    changed = [make_task_model("labelling", **{name: value}) for name, value in CHANGES.items()]
    changed += [make_task_model("labelling"), make_task_model("labelling")]
    for model in (other_head, *changed):
        for part in ("token_encoder", "bilm"):
            getattr(model.elmo, part).load_state_dict(getattr(first.elmo, part).state_dict())
    with torch.no_grad():
        changed[-2].elmo.token_encoder.projection.bias[0] += 1e-3
        changed[-1].elmo.bilm.layers[1].backward_lstm.input_linear.bias[0] += 1e-3
    same, *others = (add_bilm_layers(dataset, each, TOKENIZER)._fingerprint for each in (other_head, first, *changed))
    others.append(add_bilm_layers(dataset, first, TOKENIZER, dtype="float16")._fingerprint)
    assert len({*others}) == len(others)
    assert same == others[0]


def test_a_kept_file_that_was_cut_is_named_and_without_it_the_layers_are_computed_again(tmp_path: Path) -> None:
    dataset, model = make_dataset("labelling"), make_task_model("labelling")
    (tmp_path / "shorter").mkdir()
    whole = add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    (file,) = tmp_path.glob("*.arrow")
    content = file.read_bytes()
    # Cut in the schema, in the numbers, and between two batches of rows.
    shorter = add_bilm_layers(dataset.select([0, 1]), model, TOKENIZER, folder=tmp_path / "shorter")
    fewer_rows = Path(shorter.cache_files[0]["filename"]).read_bytes()
    for damaged in (b"", content[:10], content[: len(content) // 2], fewer_rows):
        file.unlink()  # the old file is mapped into memory
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{file.name} .*remove {file}, and") as error:
            add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
        assert "\n" not in str(error.value)
    assert "must have the layers of 3 texts, found 2" in str(error.value)
    file.unlink()
    again = add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    for row, expected in zip(again, whole, strict=True):
        np.testing.assert_array_equal(row["bilm_layers"], expected["bilm_layers"])


def test_a_kept_file_with_one_other_bit_is_refused_and_an_earlier_version_s_gets_its_checksum(tmp_path: Path) -> None:
    dataset, model = make_dataset("labelling"), make_task_model("labelling")
    add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    (file,) = tmp_path.glob("*.arrow")
    sum_file = tmp_path / f"{file.name}.sha256"
    content, line = file.read_bytes(), sum_file.read_bytes()
    assert line == f"{hashlib.sha256(content).hexdigest()}  {file.name}\n".encode()
    sum_file.unlink()  # as an earlier version left it
    add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    assert sum_file.read_bytes() == line
    number = add_bilm_layers(dataset, model, TOKENIZER)[0]["bilm_layers"][1, 1, 1]
    changed = bytearray(content)
    changed[content.index(number.tobytes())] ^= 1
    lines = (b"", line.replace(b"arrow", b"arrov"), line.replace(b"\n", b"\v"))
    for path, damaged in [(file, bytes(changed)), *((sum_file, damaged) for damaged in lines)]:
        right = path.read_bytes()
        path.unlink()  # the old file is mapped into memory
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=f"SHA-256 in {file.name}.sha256, found .*; remove {file}, and"):
            add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
        path.unlink()
        path.write_bytes(right)
    sum_file.write_bytes(b"")
    file.unlink()  # as advised
    add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    assert (file.read_bytes(), sum_file.read_bytes()) == (content, line)


def test_an_earlier_version_s_file_is_read_where_its_checksum_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, model = make_dataset("labelling"), make_task_model("labelling")
    whole = add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    (sum_file,) = tmp_path.glob("*.sha256")
    sum_file.unlink()

    def refuse(path: Path) -> None:
        raise PermissionError(f"{path} may not be written")

    monkeypatch.setattr("elmo_hf.embedding.feature_cache.new_file", refuse)
    again = add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    assert not sum_file.exists()
    for row, expected in zip(again, whole, strict=True):
        np.testing.assert_array_equal(row["bilm_layers"], expected["bilm_layers"])


def test_a_result_has_its_name_only_after_its_checksum_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elmo_hf.embedding.feature_cache.new_file", stop)
    with pytest.raises(KeyboardInterrupt):
        add_bilm_layers(make_dataset("labelling"), make_task_model("labelling"), TOKENIZER, folder=tmp_path)
    assert [*tmp_path.glob("*.arrow")] == []


def test_while_layers_are_computed_nothing_has_a_name_of_their_folder_and_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo_hf.embedding.feature_cache.WINDOW_ROWS", 2)  # the second rows follow written ones
    dataset, model = make_dataset("labelling"), make_task_model("labelling")
    add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path / "first")
    (file,) = (tmp_path / "first").glob("*.arrow")
    folder = tmp_path / "second"
    partial = folder / f".{file.name}.partial"
    partial.mkdir(parents=True)
    (partial / "tmpabc").write_bytes(b"left by a killed process")
    names: list[set[str]] = []
    compute = model.compute_bilm_layers

    def look(**batch: Any) -> torch.Tensor:
        names.append({path.name for path in folder.iterdir()})
        return compute(**batch)

    model.compute_bilm_layers = look
    add_bilm_layers(dataset, model, TOKENIZER, folder=folder)
    assert names == [{partial.name, f".{file.name}.lock"}] * 2
    assert {path.name for path in folder.iterdir()} == {file.name, f"{file.name}.sha256"}
    assert (folder / file.name).read_bytes() == file.read_bytes()


def test_what_killed_processes_left_of_any_layers_is_removed_and_a_running_process_keeps_its_files(
    tmp_path: Path,
) -> None:
    dataset, model = make_dataset("labelling"), make_task_model("labelling")
    add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
    (file,) = tmp_path.glob("*.arrow")
    sum_file = tmp_path / f"{file.name}.sha256"
    for name in (file.name, sum_file.name, "0123.arrow"):  # the last with another fingerprint
        (tmp_path / f".{name}.lock").touch()
        (tmp_path / f".{name}.partial").mkdir()
    (tmp_path / ".4567.arrow.partial").mkdir()  # its lock was removed
    with only_writer(tmp_path / "89ab.arrow") as partial:
        partial.mkdir()
        running = {partial, partial.with_suffix(".lock")}
        add_bilm_layers(dataset, model, TOKENIZER, folder=tmp_path)
        assert {*tmp_path.iterdir()} == {file, sum_file, *running}
