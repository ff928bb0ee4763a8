"""Refused checkpoints: every error names the fault, and no file is left."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from checkpoints import (
    BASE,
    CELL,
    assert_refused,
    base_checkpoint,
    bits,
    read_datasets,
    write_checkpoint,
    write_datasets,
)

from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, folder_to_allennlp
from elmo_hf.conversion.errors import ConversionError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no options file "),
        (b"<html>Not found</html>", "options.json is not JSON: "),
        (b'{"lstm": {"dim": 32', "options.json is not JSON: "),
        (b"\xff\xfe{\x00", "options.json is not JSON: "),
        (b"", "options.json is not JSON: "),
        (b"[1, 2]", "options.json must hold a JSON object with an object `lstm` in it"),
        (b'{"char_cnn": {}}', "options.json must hold a JSON object with an object `lstm` in it"),
        (b'{"lstm": 3}', "options.json must hold a JSON object with an object `lstm` in it"),
    ],
    ids=["missing", "html", "cut", "not utf-8", "empty", "list", "no lstm", "lstm is a number"],
)
def test_options_file_that_is_none_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    if content is not None:
        path.write_bytes(content)
    assert_refused(AllenNlpFiles(path, BASE / "weights.hdf5"), tmp_path, message)


ABSENT = object()
FAULTY_OPTIONS = {
    "no projection_dim": ("lstm.projection_dim", ABSENT, "lacks `lstm.projection_dim`, which every ELMo needs."),
    "no dim": ("lstm.dim", ABSENT, "lacks `lstm.dim`, which every ELMo needs."),
    "no char embedding": ("char_cnn.embedding", ABSENT, "lacks `char_cnn.embedding.dim`, which every ELMo needs."),
    "no char embedding dim": ("char_cnn.embedding.dim", ABSENT, "lacks `char_cnn.embedding.dim`, which every"),
    "no filters": ("char_cnn.filters", ABSENT, "lacks `char_cnn.filters`, which every ELMo needs."),
    "no activation": ("char_cnn.activation", ABSENT, "lacks `char_cnn.activation`, which every ELMo needs."),
    "char_cnn null": ("char_cnn", None, "`char_cnn` must be an object, found None."),
    "embedding number": ("char_cnn.embedding", 4, "`char_cnn.embedding` must be an object, found 4."),
    "unknown in lstm": ("lstm.layer_norm", True, "unknown key `lstm.layer_norm`. It may change the architecture"),
    "unknown in char_cnn": ("char_cnn.dilation", 2, "unknown key `char_cnn.dilation`. It may change the architecture"),
    "activation": ("char_cnn.activation", "gelu", "`char_cnn.activation` must be 'relu' or 'tanh', found 'gelu'."),
    "filters": ("char_cnn.filters", [[1, 4], [2]], "`char_cnn.filters` must be a list of at most 100 pairs [width,"),
    "filters no list": ("char_cnn.filters", 7, "whole numbers from 1 to 1,000,000, found 7."),
    "filters of text": ("char_cnn.filters", [["1", 4]], "whole numbers from 1 to 1,000,000, found [['1', 4]]."),
    "filter too wide": ("char_cnn.filters", [[51, 4]], "`char_filters` must be at most `max_word_length` = 50"),
    "highway text": ("char_cnn.n_highway", "two", "`char_cnn.n_highway` must be a whole number up to 100, found"),
    "short words": ("char_cnn.max_characters_per_token", 2, "must be a whole number from 3 to 1,000, found 2."),
    "no layers": ("lstm.n_layers", 0, "`lstm.n_layers` must be a whole number from 1 to 100, found 0."),
    "half a layer": ("lstm.n_layers", 1.5, "`lstm.n_layers` must be a whole number from 1 to 100, found 1.5."),
    "true layers": ("lstm.n_layers", True, "`lstm.n_layers` must be a whole number from 1 to 100, found True."),
    "null layers": ("lstm.n_layers", None, "`lstm.n_layers` must be a whole number from 1 to 100, found None."),
    "dim text": ("lstm.dim", "32", "`lstm.dim` must be a whole number from 1 to 1,000,000, found '32'."),
    "dim float": ("lstm.dim", 32.0, "`lstm.dim` must be a whole number from 1 to 1,000,000, found 32.0."),
    "endless dim": ("lstm.dim", 10**4000, "whole number from 1 to 1,000,000, found a number of 13,288 bits."),
    "negative projection": ("lstm.projection_dim", -8, "`lstm.projection_dim` must be a whole number from 1 to"),
    "skip text": ("lstm.use_skip_connections", "yes", "`lstm.use_skip_connections` must be true or false, found 'yes'"),
    "skip number": ("lstm.use_skip_connections", 1, "`lstm.use_skip_connections` must be true or false, found 1."),
    "negative clip": ("lstm.cell_clip", -3, "`lstm.cell_clip` must be a positive number, or 0 or null to"),
    "infinite clip": ("lstm.cell_clip", float("inf"), "or 0 or null to switch it off, found inf."),
    "clip is no number": ("lstm.proj_clip", float("nan"), "`lstm.proj_clip` must be a positive number, or 0 or null"),
    "endless clip": ("lstm.cell_clip", 10**400, "or 0 or null to switch it off, found a number of 1,329 bits."),
    "clip text": ("lstm.cell_clip", "three", "`lstm.cell_clip` must be a positive number, or 0 or null to"),
    "clip true": ("lstm.cell_clip", True, "or 0 or null to switch it off, found True."),
    "clip list": ("lstm.proj_clip", [3], "`lstm.proj_clip` must be a positive number, or 0 or null to switch it off"),
    "clip of much text": ("lstm.cell_clip", "x" * 500, f"found '{'x' * 199}..."),
    "embedding wider than the file's": ("char_cnn.embedding.dim", 5, "`char_embed` must be (261, 5), found (261, 4)"),
    "more layers than the file has": ("lstm.n_layers", 3, "missing: `RNN_1/RNN/MultiRNNCell/Cell2/LSTMCell/W_0`"),
    "fewer layers than the file has": ("lstm.n_layers", 1, "unknown: `RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B`"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), FAULTY_OPTIONS.values(), ids=FAULTY_OPTIONS)
def test_faulty_option_is_named(path: str, value: Any, message: str, tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    *parents, key = path.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    if value is ABSENT:
        del place[key]
    else:
        place[key] = value
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, message)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "Infinity", "NaN"])
def test_a_number_that_no_float_holds_is_named(number: str, tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    options["lstm"]["cell_clip"] = "HERE"
    files = write_checkpoint(tmp_path / "source", options, arrays)
    text = files.options.read_text(encoding="utf-8")
    files.options.write_text(text.replace('"HERE"', number), encoding="utf-8")
    found = f"found {float(number)!r}."
    message = f"{files.options}: `lstm.cell_clip` must be a positive number, or 0 or null to switch it off, {found}"
    assert_refused(files, tmp_path, message)


def test_known_keys_are_listed_beside_an_unknown_one(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    options["lstm"]["layer_norm"] = True
    known = "known keys are cell_clip, dim, n_layers, proj_clip, projection_dim, use_skip_connections."
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, known)


def damaged(damage: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(damage((BASE / "weights.hdf5").read_bytes())) and None


def flip(*places: int) -> Callable[[bytes], bytes]:
    """Inverts the bits of bytes."""
    return lambda content: bytes(byte ^ 255 if place in places else byte for place, byte in enumerate(content))


DAMAGED_FILES = {
    "missing": (lambda path: None, "there is no weights file "),
    "text": (damaged(lambda _: b"<html>404\n" * 9), "weights.hdf5 is not an hdf5 file; ELMo weights are `*.hdf5`"),
    "empty": (damaged(lambda _: b""), "weights.hdf5 is not an hdf5 file"),
    "half": (damaged(lambda content: content[: len(content) // 2]), "weights.hdf5 cannot be read, it may be truncated"),
    "end lost": (damaged(lambda content: content[:-1]), "weights.hdf5 cannot be read, it may be truncated"),
    "shape corrupt": (damaged(flip(834)), "weights.hdf5 cannot be read, it may be truncated"),
    "type corrupt": (damaged(flip(891)), "weights.hdf5 cannot be read, it may be truncated"),
    "name corrupt": (damaged(flip(6264)), "weights.hdf5 cannot be read, it may be truncated"),
}  # fmt: skip


@pytest.mark.parametrize(("write", "message"), DAMAGED_FILES.values(), ids=DAMAGED_FILES)
def test_damaged_weights_file_is_refused(write: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.hdf5"
    write(path)
    assert_refused(AllenNlpFiles(BASE / "options.json", path), tmp_path, message)


def test_weights_kept_in_another_file_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    table = arrays.pop("char_embed")
    (tmp_path / "secret.bin").write_bytes(table.tobytes())
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        external = [(str(tmp_path / "secret.bin"), 0, table.nbytes)]
        file.create_dataset("char_embed", shape=table.shape, dtype=table.dtype, external=external)
    np.testing.assert_array_equal(read_datasets(files.weights)["char_embed"], table)
    assert_refused(files, tmp_path, "`char_embed` refers to another file, which is not followed.")


def test_virtual_weights_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    write_datasets(tmp_path / "other.hdf5", {"table": arrays["char_embed"]})
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", "table", shape=(261, 4))
    del arrays["char_embed"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        file.create_virtual_dataset("char_embed", layout)
    assert_refused(files, tmp_path, "`char_embed` refers to another file, which is not followed.")


def test_links_to_another_file_are_not_followed(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    write_datasets(tmp_path / "other.hdf5", {"bias": arrays[f"{CELL}/B"]})
    del arrays[f"{CELL}/B"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    with h5py.File(files.weights, "a") as file:
        file[f"{CELL}/B"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "bias")
    assert_refused(files, tmp_path, f"missing: `{CELL}/B` (128,)")


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[3] = np.nan
    return array


FAULTY_ARRAYS = {
    "missing": (f"{CELL}/B", lambda array: None, f"missing: `{CELL}/B` (128,)"),
    "one cell's projection missing": (f"{CELL}/W_P_0", lambda array: None, f"missing: `{CELL}/W_P_0` (32, 8)"),
    "no CNN projection": ("CNN_proj/W_proj", lambda array: None, "`char_projection` must be True, from an input"),
    "no CNN projection bias": ("CNN_proj/b_proj", lambda array: None, "missing: `CNN_proj/b_proj` (8,)"),
    "no table": ("char_embed", lambda array: None, "describes characters input, so the weights must hold `char_embed`"),
    "unknown": ("CNN/W_cnn_4", lambda array: np.ones((1, 5, 4, 8), np.float32), "unknown: `CNN/W_cnn_4` (1, 5, 4, 8)"),
    "shape": (f"{CELL}/W_0", lambda array: array.T, f"shape: `{CELL}/W_0` must be (16, 128), found (128, 16)"),
    "short table": ("char_embed", lambda array: array[:260], "`char_embed` must have 261 rows, found 260."),
    "flat table": ("char_embed", lambda array: array[:, 0], "shape: `char_embed` must be (261, 4), found (261,)"),
    "scalar table": ("char_embed", lambda array: array[0, 0], "`char_embed`"),
    "whole numbers": ("CNN/b_cnn_0", lambda array: array.astype(int), "type: `CNN/b_cnn_0` must be float32, found"),
    "texts": ("CNN/b_cnn_0", lambda array: np.array([b"a"] * 4, object), "type: `CNN/b_cnn_0` must be float32, found"),
    "nan": ("CNN_high_1/W_carry", with_nan, "values: `CNN_high_1/W_carry` holds NaN or infinite numbers"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), FAULTY_ARRAYS.values(), ids=FAULTY_ARRAYS)
def test_faulty_array_is_named(
    name: str, change: Callable[[Any], np.ndarray | None], message: str, tmp_path: Path
) -> None:
    options, arrays = base_checkpoint()
    changed = change(arrays.pop(name, None))
    if changed is not None:
        arrays[name] = changed
    assert_refused(write_checkpoint(tmp_path / "source", options, arrays), tmp_path, message)


def test_word_options_with_character_weights_are_refused(tmp_path: Path) -> None:
    options, arrays = base_checkpoint()
    del options["char_cnn"]
    files = write_checkpoint(tmp_path / "source", options, arrays)
    assert_refused(files, tmp_path, "describes word input, so the weights must hold `embedding`, found CNN/W_cnn_0")


def test_files_of_a_folder_are_found_by_their_suffixes(tmp_path: Path) -> None:
    for name in ("elmo_options.json", "config.json", "elmo_weights.hdf5", "my_vocab.txt", "README.txt"):
        (tmp_path / name).touch()
    found = AllenNlpFiles.in_folder(tmp_path)
    assert found == AllenNlpFiles(
        tmp_path / "elmo_options.json", tmp_path / "elmo_weights.hdf5", tmp_path / "my_vocab.txt"
    )
    (tmp_path / "options.json").touch()
    assert AllenNlpFiles.in_folder(tmp_path).options == tmp_path / "options.json"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["options.json", "a.hdf5", "b.hdf5"], "found a.hdf5, b.hdf5, options.json; name the files with"),
        (["a.hdf5", "config.json"], "found a.hdf5, config.json; name the files with `--options FILE --weights FILE`."),
        (["options.json"], "found options.json; name the files with"),
        (["a_options.json", "b_options.json", "a.hdf5"], "found a.hdf5, a_options.json, b_options.json; name the"),
        ([], "found nothing; name the files with"),
    ],
    ids=["two weights", "no options", "no weights", "two options", "empty"],
)
def test_a_folder_without_exactly_one_checkpoint_is_refused(names: list[str], found: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(
        ConversionError, match=re.escape(f"must hold `options.json` and exactly one `.hdf5` file, {found}")
    ):
        AllenNlpFiles.in_folder(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_source_that_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConversionError, match=rf"{name} is not a folder; give a folder with `options\.json`"):
        AllenNlpFiles.in_folder(tmp_path / name)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_existing_destination_is_left_as_it_is(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    destination = tmp_path / "DEST"
    precious = destination / "precious.txt" if kind == "folder" else destination
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("mine", encoding="utf-8")
    message = "DEST exists already; remove it or choose another name. Nothing was written."
    with pytest.raises(ConversionError, match=re.escape(message)):
        allennlp_to_folder(AllenNlpFiles.in_folder(BASE), destination, source_name="any")
    with pytest.raises(ConversionError, match=re.escape(message)):
        folder_to_allennlp(tiny_folder, destination)
    assert precious.read_text(encoding="utf-8") == "mine"
    assert list(tmp_path.rglob("*")) == sorted({destination, precious})


def test_an_empty_destination_folder_is_filled(tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "there", source_name="any")
    folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "there"]
    assert {path.name for path in (tmp_path / "there").iterdir()} == {path.name for path in tiny_folder.iterdir()}
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(read_datasets(BASE / "weights.hdf5"))


def test_folders_above_the_destination_are_made(tmp_path: Path) -> None:
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "a" / "b" / "DEST", source_name="any")
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["DEST"]


def test_a_destination_may_be_a_link_to_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), tmp_path / "link", source_name="any")
    assert (tmp_path / "place" / "config.json").is_file()


def test_a_destination_that_is_a_folder_above_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(ConversionError, match="exists already"):
        allennlp_to_folder(
            AllenNlpFiles(tmp_path / "none", tmp_path / "none"), tmp_path / "inner" / "..", source_name="any"
        )
