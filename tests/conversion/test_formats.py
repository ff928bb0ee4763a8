"""The formats that `convert` recognises, its messages, and the formats that it only explains."""

import re
import zipfile
from pathlib import Path

import numpy as np
from archives import MANYLANGS, archive_files, nlpl_files, write_files, write_tar, write_zip
from checkpoints import BASE, EDGES, SAVES, TINY_LM, VOCABULARY, bits, write_datasets
from language_models import state_of, words_file
from typer.testing import CliRunner, Result

from elmo_hf import ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.cli import app
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source

TENSORFLOW = "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


def test_the_zip_and_the_folder_it_was_made_of_become_the_same_model(tiny_folder: Path, tmp_path: Path) -> None:
    for name, compression in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        source = write_zip(tmp_path / f"{name}.zip", nlpl_files("base_2l_relu"), compression)
        convert_source(source, tmp_path / name, Given())
        for file in ("model.safetensors", "config.json", "tokenizer_config.json"):
            assert (tmp_path / name / file).read_bytes() == (tiny_folder / file).read_bytes()
    text = (tmp_path / "stored" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", text, re.MULTILINE) == ["stored.zip"]


def save_files(name: str) -> dict[str, bytes]:
    """A save directory of bilm-tf."""
    return {path.name: path.read_bytes() for path in (SAVES / name).iterdir()}


def test_convert_says_what_it_found_and_what_it_leaves(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "ner.tar.gz", archive_files("base_2l_relu"))
    result = run(source, tmp_path / "to", "--check")
    assert result.exit_code == 0
    found, note, difference, wrote = result.stdout.splitlines()
    assert found == f"Found a trained AllenNLP model in {source}."
    assert note.startswith("Note: 3 arrays of the task's model are not carried: ")
    assert difference.startswith("Largest difference from the checkpoint, all layers: ")
    assert wrote.startswith(f"Wrote {tmp_path / 'to'}. Load it: ")


def test_a_save_directory_its_zip_and_its_index_become_the_same_language_model(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "save", save_files("bi_char_1layer"))
    words = words_file(tmp_path, VOCABULARY)
    sources = {"a": folder, "b": write_zip(tmp_path / "save.zip", save_files("bi_char_1layer"))}
    for name, source in sources.items():
        result = run(source, tmp_path / name, "--vocabulary", words, "--check")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == f"Found {TENSORFLOW} in {source}."
    options = ("--options", folder / "options.json", "--vocabulary", words)
    assert run(folder / "model.ckpt-6.index", tmp_path / "c", *options).exit_code == 0
    for name in "abc":
        assert bits(state_of(tmp_path / name)) == bits(state_of(tmp_path / "a"))
        assert ElmoTokenizer.from_pretrained(tmp_path / name).predicted_words == VOCABULARY
        assert ElmoForPreTraining.from_pretrained(tmp_path / name).config.num_softmax_words == 32
    text = (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", text, re.MULTILINE) == ["save.zip"]


def test_an_index_given_alone_is_not_another_checkpoint_beside_it(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "save", save_files("bi_char_1layer"))
    for path in SAVES.glob("bi_word_shared/model.ckpt-6.*"):
        (folder / path.name.replace("-6.", "-7.")).write_bytes(path.read_bytes())
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"', encoding="utf-8")
    assert run(folder / "model.ckpt-6.index", tmp_path / "to", "--options", folder / "options.json").exit_code == 0


def test_a_softmax_that_lies_beside_an_archive_has_its_own_fingerprint(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    softmax = write_datasets(tmp_path / "released.hdf5", arrays)
    members = {name: (TINY_LM / name).read_bytes() for name in ("options.json", "weights.hdf5", "vocab.txt")}
    source = write_zip(tmp_path / "lm.zip", members)
    assert run(source, tmp_path / "to", "--softmax", softmax).exit_code == 0
    np.testing.assert_array_equal(state_of(tmp_path / "to")["softmax.weight"], arrays["softmax/W"])
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == 28
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", text, re.MULTILINE) == ["lm.zip", "released.hdf5"]


def test_a_language_model_without_vocabulary_is_noted(tmp_path: Path) -> None:
    result = run(SAVES / "bi_char_1layer", tmp_path / "to")
    note = result.stdout.splitlines()[1]
    assert note.startswith("Note: ")
    assert "has a softmax over 32 words, but there is no vocabulary to say which" in note


def test_options_may_stand_elsewhere(tmp_path: Path) -> None:
    weights = write_files(tmp_path, {"weights.hdf5": (BASE / "weights.hdf5").read_bytes()}) / "weights.hdf5"
    result = run(weights, tmp_path / "to", "--options", BASE / "options.json")
    assert result.exit_code == 0, result.output
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32


def test_word_input_takes_its_vocabulary_and_its_dump(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    result = run(EDGES / "bi_word_2", tmp_path / "to", "--vocabulary", tmp_path / "words.txt")
    assert result.exit_code == 0, result.output
    result = run(EDGES / "bi_word_2", tmp_path / "no", "--token-embeddings", tmp_path / "none.hdf5")
    assert "none.hdf5" in result.stderr


def test_convert_writes_the_splitter_that_is_asked_for(tmp_path: Path) -> None:
    assert run(MANYLANGS, tmp_path / "to", "--word-splitter", "ptb").exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == ["Do", "n't", "go", "."]


def test_deeppavlovs_checkpoint_one_folder_down_becomes_the_same_language_model(tmp_path: Path) -> None:
    words = words_file(tmp_path, VOCABULARY)
    save = save_files("bi_char_1layer")
    options = {"options.json": save.pop("options.json")}
    below = {f"saves/{name}": content for name, content in save.items()}
    sources = {
        "a": write_files(tmp_path / "plain", options | save),
        "b": write_files(tmp_path / "below", options | below | {"README.md": b"x"}),
        "c": write_tar(tmp_path / "below.tar.gz", options | below),
        "d": write_files(tmp_path / "all below", below | {"saves/options.json": options["options.json"]}),
    }
    for name, source in sources.items():
        result = run(source, tmp_path / name, "--vocabulary", words, "--check")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == f"Found {TENSORFLOW} in {source}."
        assert bits(state_of(tmp_path / name)) == bits(state_of(tmp_path / "a"))
