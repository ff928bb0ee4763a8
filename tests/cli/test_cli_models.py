"""Models by name: `tiny` everywhere, what is no ELMo, `elmo-hf info`, `elmo-hf card`, and silence about torchao."""

import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from checkpoints import FIXTURES
from commands import assert_fails, run
from huggingface_hub import ModelCard
from language_models import state_of

from elmo_hf import ElmoForTokenClassification, ElmoTokenizer, tfhub, tiny_model, tiny_tokenizer
from elmo_hf.cli.errors import line_of
from elmo_hf.folder.loading import TINY_FOLDER, load_complete, load_tokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.share import model_info
from elmo_hf.text.escapes import markdown

BASE = FIXTURES / "base_2l_relu"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def copy_without_card(folder: Path, path: Path) -> Path:
    shutil.copytree(folder, path)
    (path / "README.md").unlink()
    return path


@pytest.mark.usefixtures("no_network")
def test_tiny_goes_back_to_allennlps_files_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("convert", "tiny", "x", "--to", "allennlp").stdout.splitlines()[-1] == (
        "Wrote x/options.json, x/softmax.hdf5, x/vocab.txt and x/weights.hdf5."
    )
    assert run("convert", "x", "again").exit_code == 0
    ours, theirs = state_of(tmp_path / "again"), tiny_model(ElmoForPreTraining).state_dict()
    assert all(np.array_equal(array, theirs[name].numpy()) for name, array in ours.items())


@pytest.mark.usefixtures("no_network")
def test_tiny_is_a_module_of_tfhub() -> None:
    vectors = tfhub.Module("tiny")(["The bank of the river ."])
    expected = tfhub.Module(TINY_FOLDER)(["The bank of the river ."])
    np.testing.assert_array_equal(vectors.detach().numpy(), expected.detach().numpy())


@pytest.mark.usefixtures("no_network")
def test_info_and_the_loader_of_tokenizers_know_tiny() -> None:
    assert run("info", "tiny").stdout.splitlines()[0].split() == ["model", "tiny"]
    assert load_tokenizer(Path("tiny")).word_splitter == "ptb"


def test_a_folder_of_the_same_name_is_meant_where_there_is_one(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert load_complete("tiny").config.cell_size == 32


def test_python_refuses_what_is_no_elmo_in_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 768}')
    with pytest.raises(ValueError, match=r"holds a model of `model_type` 'bert'; this is not an ELMo\.$"):
        load_complete(tmp_path)
    with pytest.raises(ValueError, match=r"is not converted yet: it holds weights.hdf5\. Run `elmo-hf convert "):
        tfhub.Module(BASE)


@pytest.mark.parametrize("suffix", ["weights.th", "encoder.pkl", "model.ckpt-1.index", "model.tar.gz", "elmo.h5"])
def test_files_of_every_format_are_said_to_need_conversion(suffix: str, tmp_path: Path) -> None:
    (tmp_path / suffix).touch()
    (tmp_path / "config.json").write_text('{"dataset_reader": {}}')  # what AllenNLP calls a config
    with pytest.raises(ValueError, match=f"is not converted yet: it holds {suffix}"):
        load_complete(tmp_path)


def test_score_says_how_to_get_a_softmax(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Yes.\n")
    assert_fails(
        run("score", tiny_folder, tmp_path / "text.txt"),
        1,
        f"`elmo-hf pretrain CORPUS -o OUT --model {tiny_folder} --vocabulary WORDS --frozen-steps 1000`.",
    )


def test_score_says_how_to_name_the_words_of_a_softmax(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tiny_model(ElmoForPreTraining).save_pretrained(model)
    ElmoTokenizer().save_pretrained(model)
    (tmp_path / "text.txt").write_text("Yes.\n")
    assert_fails(run("score", model, tmp_path / "text.txt"), 1, f"{model} has no words.txt for its softmax")


def test_info_says_what_a_model_is_and_can_do(tiny_folder: Path, tmp_path: Path) -> None:
    # What it says of `tiny` is on a page that is run: docs/commands.md.
    rows = dict(line.split("  ", 1) for line in run("info", tiny_folder).stdout.splitlines())
    rows = {name: value.strip() for name, value in rows.items()}
    assert (rows["class"], rows["mixes"], rows["softmax"]) == ("ElmoModel", "1 scalar, equal weights", "none")
    assert (rows["source"], rows["licence"], rows["language"]) == ("our_tiny", "not said", "not said")
    assert rows["can"] == (
        f"embed; export; pretrain --model {tiny_folder} --vocabulary WORDS, which gives it a softmax to score with"
    )
    ElmoForTokenClassification.from_pretrained(tiny_folder, id2label={0: "O", 1: "B-PER"}).save_pretrained(tmp_path)
    last = run("info", tmp_path).stdout.splitlines()[-1]
    assert last.endswith("; label words (O, B-PER)")


def test_info_names_what_it_cannot_read(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny_folder / "config.json").read_bytes())
    assert_fails(run("info", tmp_path), 1, f"{tmp_path} must have model.safetensors")
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    assert_fails(run("info", tmp_path), 1, f"{tmp_path / 'model.safetensors'} is damaged")


def test_card_writes_the_card_of_a_folder_that_python_saved(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    tiny_model(ElmoForPreTraining).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    result = run("card", folder, "--license", "Apache-2.0")
    assert result.stdout == f"Wrote {folder / 'README.md'}.\nThe Hub asks for more: give --language.\n"
    card = ModelCard.load(folder / "README.md")
    assert card.data.to_dict() == {
        "library_name": "transformers",
        "license": "apache-2.0",
        "pipeline_tag": "feature-extraction",
        "tags": ["elmo", "bilm", "word-embeddings"],
    }
    assert "# mine" in card.text.splitlines()
    assert "| parameters | 7,608,388 |" in card.text.splitlines()
    assert 'AutoModelForPreTraining.from_pretrained("mine", trust_remote_code=True)' in card.text
    assert "Where it comes from" not in card.text
    assert "Not given: language, source. Fill them in before you share this folder:" in card.text


def test_card_changes_what_the_options_say_and_keeps_the_rest(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mine")
    before = ModelCard.load(folder / "README.md").text
    assert "Not given: licence, language, source. Fill them in before you share this folder:" in before
    options = ("--license", "mit", "--language", "eu", "--language", "es", "--source", "https://a.b/c")
    assert run("card", folder, *options).stdout == f"Wrote {folder / 'README.md'}.\n"
    card = ModelCard.load(folder / "README.md")
    assert (card.data.license, card.data.language, card.data.to_dict()["source"]) == (
        "mit",
        ["eu", "es"],
        "https://a.b/c",
    )
    parts, parts_before = card.text.split("\n## "), before.split("\n## ")
    changed = [index for index, part in enumerate(parts) if part.strip() != parts_before[index].strip()]
    assert [parts[index].strip().splitlines() for index in changed] == [
        [
            "Licence, language, source",
            "",
            *("| | |", "|---|---|", "| licence | mit |", "| language | eu, es |", "| source | <https://a.b/c> |"),
        ]
    ]
    assert run("info", folder).stdout.splitlines()[-4].split() == ["source", "https://a.b/c"]
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert run("card", folder).exit_code == 0
    assert (folder / "README.md").read_text(encoding="utf-8") == text


def test_card_gives_metadata_to_a_card_of_another_hand(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mine")
    (folder / "README.md").write_text("# Ours\n\nAll our own words.\n", encoding="utf-8")
    assert run("card", folder, "--source", "org/base").exit_code == 0
    card = ModelCard.load(folder / "README.md")
    assert card.text.strip() == "# Ours\n\nAll our own words."
    assert (card.data.base_model, card.data.library_name) == ("org/base", "transformers")


def test_convert_writes_what_the_options_say_into_the_card(tmp_path: Path) -> None:
    options = ("--license", "cc-by-4.0", "--language", "en", "--source", "org/elmo")
    assert run("convert", BASE, tmp_path / "to", *options).exit_code == 0
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("cc-by-4.0", ["en"], "org/elmo")
    assert "Not given" not in card.text
    assert "| source | <https://huggingface.co/org/elmo> |" in card.text.splitlines()


def test_push_offers_to_write_a_missing_card(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_any")
    folder = copy_without_card(tiny_folder, tmp_path / "mine")
    hint = f"`elmo-hf card {folder} --license NAME --language CODE` the model card README.md."
    result = run("push", folder, "org/mine")
    assert_fails(result, 1, f"{folder} with README.md. ")
    assert hint in " ".join(result.stderr.split())


def test_a_gpu_without_room_is_one_line() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
    assert str(line_of(error)).startswith("CUDA out of memory. Give a smaller --batch-words or --rows")
    assert line_of(RuntimeError("a mistake")) is None


HUNGRY = """
import resource
import sys
from elmo_hf.cli import app, main
from elmo_hf.cli.errors import Command

@app.command(cls=Command)
def hungry() -> None:
    held = []
    while True:
        held.append(bytearray(1 << 30))  # zeros, which take no memory before they are written

resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, resource.RLIM_INFINITY))
sys.argv = ["elmo-hf", "hungry"]
main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no limit on a process's data")
def test_more_data_than_the_limit_is_one_line() -> None:
    completed = subprocess.run([sys.executable, "-c", HUNGRY], capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stderr == "Error: this machine has not enough memory for it; a file may be damaged.\n"


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
def test_a_command_that_imports_torchao_says_nothing_of_it() -> None:
    """Its libraries may not fit this machine, and torch warns of it; help and version do not import it at all."""
    code = "import sys; from elmo_hf.cli import main; sys.argv[0] = 'elmo-hf'; main()"
    arguments = [sys.executable, "-c", code, "info", "tiny"]
    completed = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert completed.stderr == ""
    assert completed.stdout.startswith("model ")


def test_the_source_of_a_card_is_told_without_its_escapes() -> None:
    for name in ("my*.model", "my__elmo"):
        card = ModelCard(f"---\n{{}}\n---\nconverted from {markdown(name)} by `elmo-hf` 0.1")
        assert model_info._source(SimpleNamespace(card=card)) == name
