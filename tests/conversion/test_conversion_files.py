"""The files of a checkpoint that are found in a folder, and the folders that are written."""

from pathlib import Path

import pytest
from checkpoints import (
    BASE,
    bits,
    read_datasets,
)

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder, convert_source, folder_to_allennlp


def test_files_of_a_folder_are_found_by_their_suffixes(tmp_path: Path) -> None:
    for name in ("elmo_options.json", "config.json", "elmo_weights.hdf5", "my_vocab.txt", "README.txt"):
        (tmp_path / name).touch()
    found = AllenNlpFiles.in_folder(tmp_path)
    assert found == AllenNlpFiles(
        tmp_path / "elmo_options.json", tmp_path / "elmo_weights.hdf5", tmp_path / "my_vocab.txt"
    )
    (tmp_path / "options.json").touch()
    assert AllenNlpFiles.in_folder(tmp_path).options == tmp_path / "options.json"


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_an_existing_destination_is_left_as_it_is(kind: str, tiny_folder: Path, tmp_path: Path) -> None:
    destination = tmp_path / "DEST"
    precious = destination / "precious.txt" if kind == "folder" else destination
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("mine", encoding="utf-8")
    with pytest.raises(FileExistsError, match="DEST"):
        convert_source(tmp_path / "nowhere", destination, Given())
    with pytest.raises(FileExistsError, match="DEST"):
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


def test_an_hdf5_file_beside_remains_of_a_checkpoint_is_taken(tmp_path: Path) -> None:
    for name in ("options.json", "w.hdf5", "checkpoint", "model.ckpt-1.meta"):
        (tmp_path / name).touch()
    assert AllenNlpFiles.in_folder(tmp_path).weights == tmp_path / "w.hdf5"


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["vocab.txt", "vocab_full.txt"], "vocab.txt"), (["a_vocab.txt", "b_vocab.txt"], None), ([], None)],
    ids=["the usual name", "two others", "none"],
)
def test_one_of_two_vocabularies_is_not_guessed(names: list[str], expected: str | None, tmp_path: Path) -> None:
    for name in ["options.json", "w.hdf5", *names]:
        (tmp_path / name).touch()
    assert AllenNlpFiles.in_folder(tmp_path).vocabulary == (tmp_path / expected if expected else None)
