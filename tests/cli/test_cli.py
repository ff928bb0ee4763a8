"""The command line: its commands, and every form of `convert`, with errors without a traceback."""

import json
import re
import shlex
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from checkpoints import FIXTURES, SAVES, TINY_LM, VOCABULARY, read_datasets, write_datasets
from commands import assert_fails, run

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion import published
from elmo_hf.conversion.contract import Given
from elmo_hf.language_model.pretraining import ElmoForPreTraining

BASE = FIXTURES / "base_2l_relu"
WORDS = FIXTURES / "bilm_tf_edges" / "bi_word_2"
EXPORT_FORM = "--to allennlp takes SOURCE and DEST and no other option."
FORMS = "give SOURCE and DEST; with --options and --weights, or with --model, DEST alone."


@pytest.mark.parametrize(
    ("verb", "written"),
    [
        ("convert", {"files", "my-elmo"}),
        ("embed", {"text.txt", "vectors.hdf5"}),
        ("vectors", {"text.txt", "words.txt", "vectors.txt"}),
        ("export", {"elmo.pt2"}),
        ("vocab", {"text.txt", "words.txt"}),
        ("pretrain", {"text.txt", "words.txt", "config.json", "my-elmo", "new"}),
        ("score", {"text.txt", "surprisal.tsv"}),
        ("models", set()),
        ("fill", set()),
        ("info", set()),
        ("env", set()),
        ("card", {"files", "my-elmo"}),
    ],
)
def test_the_examples_of_every_help_run_in_an_empty_folder(
    verb: str, written: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of push need a Hub."""
    monkeypatch.chdir(tmp_path)
    for line in run(verb, "--help").stdout.split("Example:\n")[1].splitlines():
        program, *arguments = shlex.split(line)
        if program == "echo":
            text, arrow, name = arguments
            assert arrow == ">"
            Path(name).write_text(f"{text}\n", encoding="utf-8")
        else:
            assert program == "elmo-hf"
            result = run(*arguments)
            assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == written


def test_help_lists_every_verb() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.split("Commands:")[1].splitlines() if line] == [
        "convert",
        "models",
        "embed",
        "vectors",
        "export",
        "push",
        "vocab",
        "pretrain",
        "score",
        "fill",
        "info",
        "env",
        "card",
    ]


def test_no_verb_shows_the_help() -> None:
    assert "Commands:" in run().output


def test_convert_makes_a_folder_of_a_folder(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to")
    assert result.exit_code == 0
    load = f"Load it: AutoModel.from_pretrained('{tmp_path / 'to'}', trust_remote_code=True)"
    found = f"Found options and weights of AllenNLP, bilm-tf or simple_elmo in {BASE}."
    assert result.stdout == f"{found}\nWrote {tmp_path / 'to'}. {load}\n"
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32
    assert "# to" in (tmp_path / "to" / "README.md").read_text(encoding="utf-8").splitlines()


def test_convert_makes_a_folder_of_two_files(tmp_path: Path) -> None:
    options, weights = tmp_path / "o.json", tmp_path / "elmo_tiny.hdf5"
    options.write_bytes((BASE / "options.json").read_bytes())
    weights.write_bytes((BASE / "weights.hdf5").read_bytes())
    result = run("convert", "--options", options, "--weights", weights, tmp_path / "to")
    assert result.exit_code == 0
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32
    assert "# to" in (tmp_path / "to" / "README.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ("options.json", "weights.hdf5"),
        ("options.json", "any.h5"),
        ("elmo_small_options.json", "elmo_small_weights.hdf5"),
    ],
)
def test_convert_looks_for_the_options_beside_a_file_of_weights(options: str, weights: str, tmp_path: Path) -> None:
    (tmp_path / options).write_bytes((BASE / "options.json").read_bytes())
    (tmp_path / weights).write_bytes((BASE / "weights.hdf5").read_bytes())
    if weights != "any.h5":
        (tmp_path / "another_options.json").write_text("{}")
        (tmp_path / "another_weights.hdf5").touch()
    result = run("convert", tmp_path / weights, tmp_path / "to")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1] == f"Note: the options are {options}, beside {weights}."
    assert ElmoModel.from_pretrained(tmp_path / "to").config.cell_size == 32


def test_convert_says_what_a_file_of_weights_alone_lacks(tmp_path: Path) -> None:
    (tmp_path / "weights.hdf5").write_bytes((BASE / "weights.hdf5").read_bytes())
    message = (
        f"{tmp_path / 'weights.hdf5'} is one file of a checkpoint, and there is no options file beside it: put "
        f"`options.json` there, or give `--options FILE --weights {tmp_path / 'weights.hdf5'}`."
    )
    assert_fails(run("convert", tmp_path / "weights.hdf5", tmp_path / "to"), 1, message)


def test_convert_takes_h5_for_hdf5(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "from")
    (tmp_path / "from" / "weights.hdf5").rename(tmp_path / "from" / "weights.h5")
    assert run("convert", tmp_path / "from", tmp_path / "to").exit_code == 0


def test_convert_downloads_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str) -> tuple[Path, Given]:
        asked.append(name)
        return BASE / "weights.hdf5", Given(options=BASE / "options.json")

    monkeypatch.setattr(published, "download", download)
    result = run("convert", "--model", "5.5B", tmp_path / "to")
    assert (result.exit_code, asked) == (0, ["5.5B"])
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert "converted from the published 5.5B model by" in text
    assert "5.5 billion words of English" in text
    assert "license_name: no-restrictions" in text.splitlines()


def test_convert_checks_when_asked(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to", "--check")
    assert result.exit_code == 0
    pattern = r"Largest difference from the checkpoint, all layers: (\S+) \(float32 against float64\)\.\nWrote .*\n"
    match = re.fullmatch(rf"Found .*\n{pattern}", result.stdout)
    assert match is not None
    assert float(match[1]) < 1e-5


def test_convert_takes_a_vocabulary_for_word_input(tmp_path: Path) -> None:
    words = ["<S>", "</S>", "<UNK>"] + [f"word{number}" for number in range(4, 33)]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    result = run("convert", WORDS, tmp_path / "to", "--vocabulary", tmp_path / "words.txt")
    assert result.exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to")("word7 other")["input_ids"] == [1, 7, 3, 2]


def test_convert_makes_language_models_of_a_save_directory(tmp_path: Path) -> None:
    shutil.copytree(SAVES / "bi_word_shared", tmp_path / "save")
    (tmp_path / "save" / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    assert run("convert", tmp_path / "save", tmp_path / "to").exit_code == 0
    assert ElmoForPreTraining.from_pretrained(tmp_path / "to").config.num_softmax_words == 32
    result = run("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp")
    *files, last = [
        str(tmp_path / "back" / name) for name in ("options.json", "softmax.hdf5", "vocab.txt", "weights.hdf5")
    ]
    assert result.stdout.splitlines()[-1] == f"Wrote {', '.join(files)} and {last}."


def test_convert_takes_the_index_of_a_checkpoint_beside_an_export(tmp_path: Path) -> None:
    assert_fails(
        run("convert", TINY_LM, tmp_path / "to"), 1, "exactly one `.hdf5` file or TensorFlow checkpoint, found"
    )
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "model.ckpt-1.index")
    result = run("convert", *files, "--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to")
    assert result.exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == 28


def test_convert_takes_a_released_softmax(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    softmax = write_datasets(tmp_path / "softmax_weights.hdf5", arrays)
    files = ("--options", TINY_LM / "options.json", "--weights", TINY_LM / "weights.hdf5")
    result = run("convert", *files, "--softmax", softmax, "--vocabulary", TINY_LM / "vocab.txt", tmp_path / "to")
    assert result.exit_code == 0
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to")
    np.testing.assert_array_equal(model.softmax.weight.detach().numpy(), arrays["softmax/W"])
    assert run("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp").exit_code == 0
    np.testing.assert_array_equal(read_datasets(tmp_path / "back" / "softmax.hdf5")["softmax/b"], arrays["softmax/b"])


def test_convert_names_a_softmax_that_is_none(tmp_path: Path) -> None:
    result = run("convert", BASE, tmp_path / "to", "--softmax", BASE / "weights.hdf5")
    assert_fails(result, 1, "weights.hdf5 must be a file of `softmax/W` and `softmax/b`")
    assert list(tmp_path.iterdir()) == []


def test_convert_writes_allennlps_files_back(tiny_folder: Path, tmp_path: Path) -> None:
    result = run("convert", tiny_folder, tmp_path / "back", "--to", "allennlp")
    assert result.exit_code == 0
    options, weights = tmp_path / "back" / "options.json", tmp_path / "back" / "weights.hdf5"
    assert result.stdout == f"Wrote {options} and {weights}.\n"
    assert json.loads(options.read_text(encoding="utf-8")) == json.loads(
        (BASE / "options.json").read_text(encoding="utf-8")
    )
    with h5py.File(weights, "r") as ours, h5py.File(BASE / "weights.hdf5", "r") as theirs:
        np.testing.assert_array_equal(ours["char_embed"][()], theirs["char_embed"][()])


def test_convert_prints_the_notes_of_an_export(tmp_path: Path) -> None:
    assert run("convert", FIXTURES / "ext_max_chars_24", tmp_path / "there").exit_code == 0
    result = run("convert", "--to", "allennlp", tmp_path / "there", tmp_path / "back")
    note = "Note: bilm-tf reads these files, AllenNLP does not, because max_word_length is not 50."
    assert result.stdout.splitlines()[0] == note


FILES = ("--options", BASE / "options.json", "--weights", BASE / "weights.hdf5")
WRONG_COMBINATIONS = {
    "no path": ((), "Missing argument"),
    "source alone": (("DEST",), FORMS),
    "three paths": ((BASE, "DEST", "more"), FORMS),
    "options alone": ((*FILES[:2], "DEST"), "--options and --weights go together."),
    "weights alone": ((*FILES[2:], "DEST"), "--options and --weights go together."),
    "options and weights with source": ((*FILES, BASE, "DEST"), FORMS),
    "model with source": (("--model", "small", BASE, "DEST"), FORMS),
    "model with files": (("--model", "small", *FILES, "DEST"), FORMS),
    "export with check": ((BASE, "DEST", "--to", "allennlp", "--check"), EXPORT_FORM),
    "export with vocabulary": ((BASE, "DEST", "--to", "allennlp", "--vocabulary", "words.txt"), EXPORT_FORM),
    "export with softmax": ((BASE, "DEST", "--to", "allennlp", "--softmax", "softmax.hdf5"), EXPORT_FORM),
    "export of files": ((*FILES, "DEST", "--to", "allennlp"), EXPORT_FORM),
    "export of published": (("--model", "small", "DEST", "--to", "allennlp"), EXPORT_FORM),
    "unknown format": ((BASE, "DEST", "--to", "onnx"), "Invalid value for '--to'"),
    "unknown option": ((BASE, "DEST", "--fast"), "No such option: --fast"),
}


@pytest.mark.parametrize(("arguments", "text"), WRONG_COMBINATIONS.values(), ids=WRONG_COMBINATIONS)
def test_convert_refuses_a_wrong_combination(
    arguments: tuple, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_fails(run("convert", *arguments), 2, text)
    assert list(tmp_path.iterdir()) == []


def test_convert_leaves_an_existing_destination(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "precious.txt").touch()
    assert_fails(run("convert", BASE, tmp_path / "to"), 1, "to exists already")
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "precious.txt"]


def test_convert_names_a_missing_vocabulary(tmp_path: Path) -> None:
    result = run("convert", WORDS, tmp_path / "to", "--vocabulary", tmp_path / "nowhere.txt")
    assert_fails(result, 1, "nowhere.txt")
    assert list(tmp_path.iterdir()) == []


def test_convert_names_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert_fails(run("convert", BASE, tmp_path / "file" / "to"), 1, "file")


def test_convert_to_the_current_folder_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("convert", BASE, ".")
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_convert_writes_the_splitter_that_is_asked_for(tmp_path: Path) -> None:
    assert run("convert", BASE, tmp_path / "to", "--word-splitter", "whitespace").exit_code == 0
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == ["Don't", "go."]
