"""`elmo-hf convert`, `info`, `card`, `check` and `env`; `export` and `push` are tested in `tests/share`."""

import hashlib
import re
import shutil
from collections.abc import Callable
from importlib import metadata
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from elmo_hf import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    tiny_model,
    tiny_tokenizer,
)
from elmo_hf.conversion.published import PUBLISHED
from elmo_hf.folder.model_names import TINY_FOLDER
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.share import model_info
from elmo_hf.share.environment import describe_environment
from elmo_hf.text.escapes import markdown
from tests.helpers.checkpoints import BASE, TINY_LM, bits, read_datasets, write_datasets
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.loopback_hub import LoopbackHub


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


def test_info_shows_the_card_and_the_listed_checksums_of_the_weights_alone(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "SHA256SUMS").unlink()
    (folder / "README.md").unlink()
    assert {"card", "SHA-256"}.isdisjoint(rows("info", folder))
    (folder / "README.md").write_text("A card.\n")
    assert rows("info", folder)["card"] == f"{folder}/README.md"
    (folder / "SHA256SUMS").write_text(f"{'a' * 64}  config.json\n{'b' * 64}  model.safetensors\n")
    shown = rows("info", folder)
    assert shown["card"] == f"{folder}/README.md"
    assert shown["SHA-256"] == f"model.safetensors {'b' * 64}"


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Saves a model with the words of `tiny`, without some of its weights, which its config still describes."""

    def save(model_class: type, *missing: str, **fields: Any) -> Path:
        folder = tmp_path_factory.mktemp("incomplete")
        if model_class in (ElmoModel, ElmoForPreTraining):
            model = tiny_model(model_class)
        else:
            model = model_class.from_pretrained(TINY_FOLDER, **fields)
        weights = {name: weight for name, weight in model.state_dict().items() if not name.startswith(missing)}
        model.save_pretrained(folder, state_dict=weights)
        tiny_tokenizer().save_pretrained(folder)
        return folder

    return save


def test_a_softmax_that_only_the_config_describes_cannot_score(without: Callable[..., Path], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Yes.\n")
    # A biLM of a folder with language models keeps their config.
    for folder in (without(ElmoModel, "-"), without(ElmoForPreTraining, "softmax.")):
        assert ElmoConfig.from_pretrained(folder).num_softmax_words == 20_000
        shown = rows("info", folder)
        assert shown["softmax"] == "none"
        assert shown["can"] == (
            f"embed; export; pretrain --model {folder} --vocabulary WORDS, which gives it a softmax to score with"
        )
        for command in (("score", folder, text), ("fill", folder, "I ___ it .")):
            assert_fails(
                run(*command), 1, f"{folder} has no softmax over words, so it embeds text and cannot score it."
            )
        output_of("card", folder)
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert "softmax" not in card
        assert 'AutoModel.from_pretrained("' in card
        assert "ForPreTraining" not in card
    assert shown["incomplete"].startswith(
        "ElmoForPreTraining has no weights for `softmax.bias`, `softmax.weight`; they"
    )


def test_words_of_another_softmax_cannot_score(without: Callable[..., Path]) -> None:
    folder = without(ElmoForPreTraining, "-")
    assert "score" in rows("info", folder)["can"]
    words = (folder / "words.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "words.txt").write_text("".join(words[:-1]), encoding="utf-8")
    found = rows("info", folder)
    assert found["softmax"].endswith("words.txt has 19,999 words, so it is of another softmax")
    assert found["can"].startswith("embed; export; pretrain --model")


@pytest.mark.parametrize(
    ("model_class", "missing", "use"),
    [
        (ElmoForTokenClassification, "classifier.", "label words (O, B-PER)"),
        (ElmoForSequenceClassification, "classifier.bias", "classify texts (O, B-PER)"),
        (ElmoForQuestionAnswering, "qa_outputs.", "answer questions"),
    ],
)
def test_a_head_that_only_the_config_describes_has_no_use_and_no_place_in_the_card(
    model_class: type, missing: str, use: str, without: Callable[..., Path]
) -> None:
    labels = {"id2label": {0: "O", 1: "B-PER"}}
    whole, folder = without(model_class, "-", **labels), without(model_class, missing, **labels)
    shown, expected = rows("info", folder), rows("info", whole)
    assert expected["can"] == f"{shown['can'].replace(str(folder), str(whole))}; {use}"
    assert "incomplete" not in expected
    assert shown["incomplete"].startswith(f"{model_class.__name__} has no weights for `{missing}")
    output_of("card", folder)
    data = ModelCard.load(folder / "README.md").data
    assert data.pipeline_tag == "feature-extraction"
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert 'AutoModel.from_pretrained("' in card
    assert "B-PER" not in card


def test_a_folder_without_weights_of_the_bilm_can_do_nothing_and_gets_no_card(without: Callable[..., Path]) -> None:
    folder = without(ElmoModel, "bilm.layers.1.")
    assert rows("info", folder)["can"] == "nothing"
    assert_fails(run("card", folder), 1, f"{folder} has no weights for `bilm.layers.1.")
    assert not (folder / "README.md").exists()


def test_files_that_are_not_converted_are_said_to_need_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dataset_reader": {}}')  # what AllenNLP calls a config
    assert_fails(run("info", tmp_path), 1, f"{tmp_path} must have model.safetensors")
    for name in ("weights.th", "encoder.pkl", "model.ckpt-1.index", "model.tar.gz", "elmo.h5"):
        (tmp_path / name).touch()
        assert_fails(run("info", tmp_path), 1, f"is not converted yet: it holds {name}")
        (tmp_path / name).unlink()


def test_score_says_how_to_get_a_softmax_and_its_words(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Yes.\n")
    command = f"`elmo-hf pretrain CORPUS -o OUT --model {tiny_folder} --vocabulary WORDS --frozen-steps N`, in"
    assert_fails(run("score", tiny_folder, tmp_path / "text.txt"), 1, command)
    tiny_model(ElmoForPreTraining).save_pretrained(tmp_path / "model")
    ElmoTokenizer().save_pretrained(tmp_path / "model")
    lacking = f"{tmp_path / 'model'} has no tokenizer with the words of its softmax"
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


@pytest.mark.parametrize(
    ("licence", "similar"),
    [
        ("mitt", "mit"),
        ("Apache", "apache-2.0"),
        ("CC-BY-4", "cc-by-4.0"),
        ("MIT", None),
        ("gpl-2.0", None),  # its neighbour gpl-3.0 is another licence
        ("our-own-licence", None),
    ],
)
def test_a_licence_that_resembles_one_of_the_hubs_is_noted_and_written(
    licence: str, similar: str | None, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_folder, tmp_path / "mine")
    stderr = run("card", folder, "--license", licence).stderr
    note = (
        f"Note: {licence} is not a licence that the Hub names; if you mean {similar}, give `elmo-hf card {folder} "
        f"--license {similar}`.\n"
    )
    assert stderr == ("" if similar is None else note)
    assert ModelCard.load(folder / "README.md").data.license == licence.lower()


@pytest.mark.parametrize("name", ["model.safetensors", "part-00000.parquet"])
def test_check_names_a_file_that_is_missing_or_changed(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if name == "model.safetensors":
        shutil.copytree(tiny_folder, folder)
        decisive = sorted(path.name for path in folder.iterdir() if path.name not in ("README.md", "SHA256SUMS"))
        lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in decisive]
        assert (folder / "SHA256SUMS").read_text() == "".join(lines)  # as `sha256sum -c` reads it
    else:
        (tmp_path / "text.txt").write_text("A ferry\nYes\n")
        output_of("embed", tiny_folder, tmp_path / "text.txt", "-o", f"{folder}/")
    assert "nothing changed" in output_of("check", folder)
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
    assert (
        dict(describe_environment(cpu_facts=facts))["processor"]
        == f"Fast: 3 GHz, {torch.backends.cpu.get_cpu_capability()}"
    )
    for multiplies, said in ((True, "fast"), (False, "slower than float32")):
        assert dict(describe_environment(ProcessorKernels(multiplies_bfloat16=multiplies)))["bfloat16"] == said


def test_convert_takes_every_file_and_option_and_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    files = {"options": TINY_LM / "options.json", "weights": TINY_LM / "weights.hdf5"}
    files |= {"vocabulary": TINY_LM / "vocab.txt", "softmax": write_datasets(tmp_path / "softmax.hdf5", arrays)}
    labels = {"license": "cc-by-4.0", "language": "en", "source": "org/elmo", "word-splitter": "whitespace"}
    options = chain.from_iterable((f"--{name}", value) for name, value in (files | labels).items())
    printed = output_of("convert", tmp_path / "to", "--check", *options)
    match = re.search(r"^Largest difference from the checkpoint, all layers: (\S+) \(float32", printed, re.MULTILINE)
    assert match is not None
    assert float(match[1]) < 1e-5
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert (tokenizer.num_word_classes, tokenizer.tokenize("Don't go.")) == (28, ["Don't", "go."])
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("cc-by-4.0", ["en"], "org/elmo")
    monkeypatch.chdir(tmp_path)
    printed = output_of("convert", "to", "back", "--to", "allennlp")
    written = "Wrote back/options.json, back/softmax.hdf5, back/vocab.txt and back/weights.hdf5."
    assert printed.splitlines()[-1] == written
    assert bits(read_datasets(Path("back/softmax.hdf5"))) == bits(arrays)
    assert bits(read_datasets(Path("back/weights.hdf5"))) == bits(read_datasets(files["weights"]))


def test_files_of_the_user_keep_the_facts_of_the_published_model(tmp_path: Path) -> None:
    facts = {"ja": "Japanese", "crosslingual-it": "Wikipedia in", "nlpl-218": "wiki.nlpl.eu"}
    for name, fact in facts.items():
        own = [BASE / "weights.hdf5", "--options", BASE / "options.json"] if name == "nlpl-218" else [BASE]
        output_of("convert", "--model", name, tmp_path / name, "--from", *own)
        text = (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert f"converted from the published {name} model by" in text
        assert fact in text
    data = [ModelCard.load(tmp_path / name / "README.md").data for name in facts]
    assert [each.language for each in data] == [["ja"], ["it"], ["no"]]
    assert [each.license for each in data] == ["unknown", "mit", "cc-by-4.0"]
    larger = run("convert", "--model", "5.5B", tmp_path / "5.5B", "--from", BASE)
    assert_fails(larger, 1, "published model, 4096/512 in each direction, but has 32/8, so it is another model. If")


SPLIT = {"whitespace": ["Don't", "go."], "ptb": ["Do", "n't", "go", "."]}


@pytest.mark.parametrize(
    ("options", "splitter"),
    [
        (["--language", "pt"], "whitespace"),
        (["--language", "pt", "--language", "en-GB"], "ptb"),
        (["--language", "pt", "--word-splitter", "ptb"], "ptb"),
        (["--model", "pt", "--from", str(BASE)], "whitespace"),
    ],
    ids=str,
)
def test_a_model_of_another_language_does_not_split_by_english_rules(
    options: list[str], splitter: str, tmp_path: Path
) -> None:
    source = [] if "--model" in options else [BASE]
    printed = output_of("convert", *source, tmp_path / "to", *options)
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == SPLIT[splitter]
    notes = [line for line in printed.splitlines() if "`word_splitter` to `ptb`" in line]
    assert len(notes) == (splitter == "whitespace")
    assert f'word_splitter="{splitter}"' in (tmp_path / "to" / "README.md").read_text(encoding="utf-8")


def test_publish_takes_what_has_a_licence_and_ends_with_a_table(
    online: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    licensed = [name for name, each in PUBLISHED.items() if each.weights and each.licence != "unknown"]
    for name in licensed:
        online.add(f"org/elmo-{name}", {"SHA256SUMS": b""})
    header, *rows = [line.split() for line in output_of("publish", "org").splitlines()]
    assert header == ["name", "converted", "difference", "pushed", "error"]
    assert rows == [[name, "-", "-", "before", "-"] for name in licensed]
    result = run("publish", "org", "embeddia-hr", "small", "bioelmo")
    assert_fails(result, 1, "not published: embeddia-hr, bioelmo.")
    assert_fails(result, 1, "run `elmo-hf convert --model NAME elmo-NAME --check --from FILE_OR_URL` first.")
    assert result.stdout.splitlines()[1].split()[:6] == ["embeddia-hr", "-", "-", "-", "the", "published"]


def test_convert_says_which_of_its_options_an_error_advises(tmp_path: Path) -> None:
    destination = tmp_path / "to"
    without_address = run("convert", "--model", "embeddia-hr", destination)
    assert_fails(without_address, 1, "give their folder, their archive or its address with --from.")
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "model.safetensors").touch()
    converted_already = run("convert", tmp_path / "done", destination)
    assert_fails(converted_already, 1, "In this command, `folder_to_allennlp` is --to allennlp.")
    assert not destination.exists()
