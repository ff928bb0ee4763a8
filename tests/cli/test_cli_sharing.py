"""`elmo-hf info`, `card`, `check` and `env`; `export` and `push` are tested in `tests/share`."""

import hashlib
import shutil
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import assert_fails, output_of, run
from huggingface_hub import ModelCard

from elmo_hf import ElmoForTokenClassification, ElmoTokenizer, tiny_model, tiny_tokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.scan.processor_kernels import ProcessorKernels
from elmo_hf.share import model_info
from elmo_hf.share.environment import describe
from elmo_hf.text.escapes import markdown


def rows(*command: object) -> dict[str, str]:
    lines = output_of(*command).splitlines()
    return {name: value.strip() for name, value in (line.split("  ", 1) for line in lines)}


def test_info_says_what_a_model_is_and_can_do(tiny_folder: Path, tmp_path: Path) -> None:
    # What it says of `tiny` is on a page that is run: docs/commands.md.
    found = rows("info", tiny_folder)
    assert (found["class"], found["mixes"], found["softmax"]) == ("ElmoModel", "1 scalar, equal weights", "none")
    assert (found["source"], found["licence"], found["language"]) == ("our_tiny", "not said", "not said")
    assert found["can"] == (
        f"embed; export; pretrain --model {tiny_folder} --vocabulary WORDS, which gives it a softmax to score with"
    )
    ElmoForTokenClassification.from_pretrained(tiny_folder, id2label={0: "O", 1: "B-PER"}).save_pretrained(tmp_path)
    assert rows("info", tmp_path)["can"].endswith("; label words (O, B-PER)")


def test_files_that_are_not_converted_are_said_to_need_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dataset_reader": {}}')  # what AllenNLP calls a config
    assert_fails(run("info", tmp_path), 1, f"{tmp_path} must have model.safetensors")
    for name in ("weights.th", "encoder.pkl", "model.ckpt-1.index", "model.tar.gz", "elmo.h5"):
        (tmp_path / name).touch()
        assert_fails(run("info", tmp_path), 1, f"is not converted yet: it holds {name}")
        (tmp_path / name).unlink()


def test_score_says_how_to_get_a_softmax_and_its_words(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Yes.\n")
    command = f"`elmo-hf pretrain CORPUS -o OUT --model {tiny_folder} --vocabulary WORDS --frozen-steps 1000`."
    assert_fails(run("score", tiny_folder, tmp_path / "text.txt"), 1, command)
    tiny_model(ElmoForPreTraining).save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    lacking = f"{tmp_path / 'model'} has no words.txt for its softmax"
    assert_fails(run("score", tmp_path / "model", tmp_path / "text.txt"), 1, lacking)


def test_card_writes_the_card_of_a_folder_that_python_saved(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    tiny_model(ElmoForPreTraining).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    printed = output_of("card", folder, "--license", "Apache-2.0")
    assert printed == f"Wrote {folder / 'README.md'}.\nThe Hub asks for more: give --language.\n"
    card = ModelCard.load(folder / "README.md")
    expected = {"library_name": "transformers", "license": "apache-2.0", "pipeline_tag": "feature-extraction"}
    assert card.data.to_dict() == expected | {"tags": ["elmo", "bilm", "word-embeddings"]}
    assert {"# mine", "| parameters | 7,608,388 |"} <= {*card.text.splitlines()}
    assert 'AutoModelForPreTraining.from_pretrained("mine", trust_remote_code=True)' in card.text


def test_card_changes_what_the_options_say_and_keeps_the_rest(tiny_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mine")
    before = ModelCard.load(folder / "README.md").text
    options = ("--license", "mit", "--language", "eu", "--language", "es", "--source", "https://a.b/c")
    assert output_of("card", folder, *options) == f"Wrote {folder / 'README.md'}.\n"
    card = ModelCard.load(folder / "README.md")
    labels = (card.data.license, card.data.language, card.data.to_dict()["source"])
    assert labels == ("mit", ["eu", "es"], "https://a.b/c")
    pairs = zip(card.text.split("\n## "), before.split("\n## "), strict=True)
    (section,) = [part for part, old in pairs if part.strip() != old.strip()]
    rows_of_section = ["| licence | mit |", "| language | eu, es |", "| source | <https://a.b/c> |"]
    assert section.strip().splitlines()[-3:] == rows_of_section
    assert rows("info", folder)["source"] == "https://a.b/c"
    (folder / "README.md").write_text("# Ours\n\nAll our own words.\n", encoding="utf-8")
    output_of("card", folder, "--source", "org/base")
    card = ModelCard.load(folder / "README.md")
    assert card.text.strip() == "# Ours\n\nAll our own words."
    assert (card.data.base_model, card.data.library_name) == ("org/base", "transformers")


@pytest.mark.parametrize("name", ["model.safetensors", "part-00000.parquet"])
def test_check_names_a_file_that_is_missing_or_changed(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if name == "model.safetensors":
        shutil.copytree(tiny_folder, folder)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert (folder / "SHA256SUMS").read_text() == f"{digest}  {name}\n"  # as `sha256sum -c` reads it
    else:
        (tmp_path / "text.txt").write_text("A ferry\nYes\n")
        output_of("embed", tiny_folder, tmp_path / "text.txt", "-o", f"{folder}/")
    assert "1 file" in output_of("check", folder)
    content = bytearray((folder / name).read_bytes())
    content[-9] ^= 1
    (folder / name).write_bytes(content)
    assert_fails(run("check", folder), 1, name)
    (folder / name).unlink()
    assert_fails(run("check", folder), 1, name)
    assert_fails(run("check", tmp_path), 1, "SHA256SUMS")


def test_the_source_of_a_card_is_told_without_its_escapes() -> None:
    for name in ("my*.model", "my__elmo"):
        card = ModelCard(f"---\n{{}}\n---\nconverted from {markdown(name)} by `elmo-hf` 0.1")
        assert model_info._source(SimpleNamespace(card=card)) == name


def test_env_says_facts_of_the_machine(tmp_path: Path) -> None:
    found = rows("env")
    assert found["torch"] == metadata.version("torch")
    assert found["threads"] == str(torch.get_num_threads())
    facts = tmp_path / "cpuinfo"
    facts.write_text("vendor_id : Somebody\nmodel name\t: Fast: 3 GHz\nmodel name : Slow\n", encoding="utf-8")
    assert dict(describe(cpu_facts=facts))["processor"] == f"Fast: 3 GHz, {torch.backends.cpu.get_cpu_capability()}"
    for multiplies, said in ((True, "fast"), (False, "slower than float32")):
        assert dict(describe(ProcessorKernels(multiplies_bfloat16=multiplies)))["bfloat16"] == said
