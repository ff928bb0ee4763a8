"""What is pushed to a Hub on this machine, by `elmo-hf push` and by a Trainer: the files, the card, the messages."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from transformers import Trainer

from elmo_hf import ElmoModel
from elmo_hf.folder.listed_files import compare_with_list
from elmo_hf.share.saved_card import label_card
from elmo_hf.share.training_card import ElmoTrainer
from tests.helpers.checkpoints import run_online
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.fresh_process import without
from tests.helpers.hostile_folders import fields, holding, weights
from tests.helpers.loopback_hub import TOKEN, LoopbackHub
from tests.helpers.task_models import IOB_LABELS, LSTM, make_task_model
from tests.helpers.task_training import make_trainer
from tests.helpers.tiny_lm import tiny_lm


@pytest.fixture
def copied(tiny_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_folder, tmp_path / "tiny")


def test_a_folder_becomes_one_commit_under_the_name_of_the_repository(online: LoopbackHub, tiny_folder: Path) -> None:
    for given, name in (("org/elmo", "org/elmo"), ("other", "org/other")):  # a name alone is in the user's namespace
        first, _, line = output_of("push", tiny_folder, given).splitlines()
        repository = online.repositories[name]
        _, oid = repository.commits
        assert first == f"Wrote {online.url}/{name}, commit {oid}."
        assert f'"{name}", dict(revision="{oid}", ' in line
        pushed = dict(online.files(name))
        own = (tiny_folder / "README.md").read_text(encoding="utf-8")
        assert own.count('from_pretrained("tiny", trust_remote_code=True)') == 2
        assert "\nNot given: licence, language, source." in own
        card = own.replace('"tiny"', f'"{name}"').replace("# tiny", f"# {given.split('/')[-1]}")
        card = re.sub("## Licence, language, source.*?(?=## )", "", card, flags=re.DOTALL)
        assert pushed.pop("README.md").decode() == card
        del pushed[".gitattributes"]
        assert pushed == {path.name: path.read_bytes() for path in tiny_folder.iterdir() if path.name != "README.md"}


def test_what_is_no_part_of_a_model_stays_at_home_unless_it_is_asked_for(online: LoopbackHub, copied: Path) -> None:
    complete = {path.name for path in copied.iterdir()}
    others = [".env", "mine.py", "notes.png", "run.bin", "secret.safetensors", "secret_results.json", "vocab.tsv"]
    others += ["logo.png", "a.png", "d.png", "e.png", "f.png"]
    shown = {"my map.svg", "b.jpeg", "a b.png", "c.png"}
    for name in ("checkpoint-3/optimizer.pt", *others, "LICENSE", "docs/a.md", "docs/b.txt"):
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_text(name, encoding="utf-8")
    for name in ("curve.png", "eval_results.json", *shown):
        (copied / name).write_text("{}", encoding="utf-8")
    with (copied / "README.md").open("a", encoding="utf-8") as card:
        card.write("\n![A map](my%20map.svg) ![A link](linked.png)\n")
        card.write('<img width="9" src="./b.jpeg"> ![with a blank](<a b.png>) ![](c.png "A title")\n')
        card.write("![elsewhere](https://host/logo.png) ![within](plots/a.png), and notes.png is of mine\n")
        card.write("[no picture](d.png) <img src='//host/e.png'> <img data-src='f.png'>\n")
    (copied / "linked.png").symlink_to(copied / ".env")
    output = output_of("push", copied, "org/elmo", "--include", "LICENSE", "--include", "docs/*.md")
    sent = complete | shown | {"curve.png", "eval_results.json", "LICENSE", "docs/a.md", ".gitattributes"}
    assert online.files("org/elmo").keys() == sent
    left_out = ", ".join(sorted({*others, "checkpoint-3", "linked.png"}))
    assert f"Left out, unless --include names it: {left_out}." in output.splitlines()


def test_a_push_removes_what_the_repository_has_of_an_earlier_model_and_leaves_other_files(
    online: LoopbackHub, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    index, shard = "model.safetensors.index.json", "model-00001-of-00002.safetensors"
    stale = ["vector_words.txt", "generation_config.json", index, shard]
    others = ["LICENSE", "mine.safetensors", "docs/config.json", "log.json"]
    online.add("org/elmo", dict.fromkeys([*stale, *others], b"{}"))
    output_of("push", copied, "org/elmo")
    assert online.files("org/elmo").keys() == {*others, *(path.name for path in copied.iterdir())}
    assert len(online.repositories["org/elmo"].commits) == 2
    output_of("push", copied, "org/elmo")
    (message,) = [message for message in caplog.messages if "Removed" in message]
    assert all(name in message for name in stale)


def test_a_push_leaves_what_the_folder_has_as_a_link(
    online: LoopbackHub, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    online.add("org/elmo", {"vocab.txt": b"a\n"})
    (copied / "vocab.txt").symlink_to("tokenizer.json")
    output_of("push", copied, "org/elmo")
    assert online.files("org/elmo")["vocab.txt"] == b"a\n"
    assert not any("Removed" in record.getMessage() for record in caplog.records)


def test_weights_beside_those_of_the_model_are_not_sent(online: LoopbackHub, copied: Path, tmp_path: Path) -> None:
    model = ElmoModel.from_pretrained(copied)
    (copied / "model.safetensors").rename(copied / "old.safetensors")
    model.save_pretrained(copied, max_shard_size="2KB")
    output_of("push", copied, "org/shards")
    index = json.loads((copied / "model.safetensors.index.json").read_text(encoding="utf-8"))
    shards = {*index["weight_map"].values()}
    assert len(shards) > 1
    assert {name for name in online.files("org/shards") if name.endswith(".safetensors")} == shards
    (copied / "old.safetensors").rename(copied / "model.safetensors")  # which is read in place of the shards
    output_of("push", copied, "org/file")
    assert {name for name in online.files("org/file") if "safetensors" in name} == {"model.safetensors"}


def test_a_repository_is_private_by_request_or_by_default(online: LoopbackHub, tiny_folder: Path) -> None:
    for name, options, default in (("org/a", (), False), ("org/b", ("--private",), False), ("org/c", (), True)):
        online.private_by_default = default  # as an organisation may decide
        output_of("push", tiny_folder, name, *options)
        assert online.repositories[name].is_private == (default or bool(options))


def test_a_token_that_may_not_write_and_a_hub_out_of_reach_are_named(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_fails(run("push", tiny_folder, "other/elmo"), 1, "You don't have the rights")
    for token in ("", TOKEN + "x"):
        monkeypatch.setenv("HF_TOKEN", token)
        assert_fails(run("push", tiny_folder, "org/elmo"), 1, "`hf auth login`")
    assert online.repositories == {}
    online.shutdown()
    online.server_close()
    assert_fails(run("push", tiny_folder, "org/elmo"), 1, f"pushing to org/elmo at {online.url} failed. ")


def headless(folder: Path) -> None:
    model = make_task_model("labelling")
    model.save_pretrained(folder)
    fields("tokenizer_config.json", max_word_length=model.config.max_word_length)(folder)
    weights(lambda each: each.pop("classifier.bias"))(folder)


def linked(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "model.safetensors")


REFUSALS: dict[str, tuple[Callable[[Path], object], tuple[str, ...], str]] = {
    "no folder": (shutil.rmtree, (), "no folder"),
    "no tokenizer": (lambda folder: (folder / "tokenizer_config.json").unlink(), (), "tokenizer_config.json"),
    "no code": (lambda folder: (folder / "scan_elmo.py").unlink(), (), "scan_elmo.py"),
    "no card": (lambda folder: (folder / "README.md").unlink(), (), "elmo-hf card"),
    "a card of bytes": (holding("README.md", b"\xff"), (), "README.md"),
    "a large field": (fields("tokenizer_config.json", max_word_length=10**6), (), "max_word_length"),
    "a weight": (weights(lambda each: each.popitem()), (), "random"),
    "a weight of a head": (headless, (), "`classifier.bias`"),
    "other weights": (weights(lambda each: next(iter(each.values())).add_(1)), (), "SHA256SUMS, found model.saf"),
    "a link": (linked, (), "model.safetensors, as files and not as links"),
    "nothing to include": (lambda folder: None, ("--include", "*.md5"), "'*.md5'"),
}


@pytest.mark.parametrize("case", [*REFUSALS, "org/elmo/small", "org/--elmo"])
def test_a_folder_or_name_is_refused_before_anything_is_sent(case: str, online: LoopbackHub, copied: Path) -> None:
    change, options, word = REFUSALS.get(case, (lambda folder: None, (), case))
    change(copied)
    assert_fails(run("push", copied, "org/elmo" if case in REFUSALS else case, *options), 1, word)
    assert online.asked == []


def test_the_list_that_is_pushed_is_true_of_edited_files_and_of_a_folder_without_a_list(
    online: LoopbackHub, copied: Path
) -> None:
    (copied / "modeling_elmo.py").write_text("# mine\n" + (copied / "modeling_elmo.py").read_text(encoding="utf-8"))
    output_of("push", copied, "org/edited")
    (copied / "SHA256SUMS").unlink()
    output_of("push", copied, "org/saved")
    for name in ("org/edited", "org/saved"):
        pushed = copied.parent / name
        for file, content in online.files(name).items():
            (pushed / file).parent.mkdir(parents=True, exist_ok=True)
            (pushed / file).write_bytes(content)
        assert compare_with_list(pushed).faults == []


def test_a_note_names_the_code_and_settings_that_differ_from_the_list(
    online: LoopbackHub, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    label_card(copied / "README.md", {"license": "mit"})
    output_of("push", copied, "org/whole")
    assert caplog.messages == []
    with (copied / "heads_elmo.py").open("a", encoding="utf-8") as file:
        file.write("# mine\n")
    (copied / "tokenizer.json").unlink()
    with (copied / "README.md").open("a", encoding="utf-8") as file:
        file.write("A card may be edited.\n")
    output_of("push", copied, "org/edited")
    (message,) = caplog.messages
    assert message.startswith(f"Note: heads_elmo.py, tokenizer.json changed or went missing since {copied}/SHA256SUMS")


@pytest.mark.parametrize("name", ["elmo", "org/elmo"])
@pytest.mark.parametrize("licence", [None, "mit"])
def test_notes_before_anything_is_sent_name_a_missing_licence_and_owner(
    licence: str | None, name: str, online: LoopbackHub, copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if licence is not None:
        label_card(copied / "README.md", {"license": licence})
    online.shutdown()
    online.server_close()
    assert_fails(run("push", copied, name), 1, f"pushing to {name} at {online.url} failed. ")
    expected = []
    if licence is None:
        expected.append(
            f"Note: {copied}/README.md names no licence, so nobody knows whether they may use the model. `elmo-hf card "
            f"{copied} --license NAME` writes it into the card; then push again."
        )
    if name == "elmo":
        expected.append("Note: elmo names no organisation or user, so the repository is in the account of your token.")
    assert caplog.messages == expected


def test_a_pushed_language_model_has_its_softmax_in_a_shard_of_its_own(online: LoopbackHub) -> None:
    """So a first load of `ElmoModel` needs not download it; a size that the user gives wins."""
    model = tiny_lm()
    model.push_to_hub("org/bilm")
    weights = json.loads(online.files("org/bilm")["model.safetensors.index.json"])["weight_map"]
    is_of_softmax = {name.startswith("softmax."): shard for name, shard in weights.items()}
    assert len(set(weights.values())) == 2
    assert {name.startswith("softmax.") for name, shard in weights.items() if shard == is_of_softmax[True]} == {True}
    model.push_to_hub("org/one", max_shard_size="50GB")
    assert "model.safetensors" in online.files("org/one")


def test_what_is_pushed_is_what_was_saved_with_the_same_arguments(online: LoopbackHub, tmp_path: Path) -> None:
    model = tiny_lm()
    others = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    saving = {"state_dict": others, "max_shard_size": "1KB"}
    options = {"push_to_hub": True, "repo_id": "org/elmo", "commit_description": "All plus one.", "tags": ["plus"]}
    model.save_pretrained(tmp_path / "saved", **saving, **options)
    pushed = online.files("org/elmo")
    saved = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    assert len([name for name in saved if name.endswith(".safetensors")]) > 2
    assert {name: pushed.get(name) for name in saved} == saved
    assert "- plus" in pushed["README.md"].decode()
    model.save_pretrained(tmp_path / "other", push_to_hub=True, repo_id="org/none", is_main_process=False)
    with pytest.raises(ValueError, match=r"`variant` must be None with `push_to_hub=True`.*, found 'half'"):
        model.save_pretrained(tmp_path / "other", push_to_hub=True, repo_id="org/none", variant="half")
    assert "org/none" not in online.repositories


# By the name of the repository: a model, the dataset of a task, the Auto class that loads it, and its labels.
RUNS: dict[str, tuple[Callable[[], Any], str, str, str | None]] = {
    "classifier": (lambda: make_task_model("pairs"), "pairs", "SequenceClassification", "LABEL_0, LABEL_1, LABEL_2"),
    "tagger": (lambda: make_task_model("crf"), "crf", "TokenClassification", ", ".join(IOB_LABELS.values())),
    "reader": (lambda: make_task_model("questions"), "questions", "QuestionAnswering", None),
    "bilm": (tiny_lm, "labelling", "PreTraining", None),
}
CODE = """
import json

for name, pieces in json.loads(sys.argv[1]).items():
    for code in pieces:
        print(name)
        exec(code, names := {})
        models = [value for name, value in names.items() if name.endswith(("model", "models", "classify"))]
        print(*{type(getattr(model, "model", model)).__name__ for model in models})
"""


def rising() -> Callable[[Any], dict[str, float]]:
    """A metric that is 3 at the first evaluation, then 4."""
    sizes = count(3)
    return lambda found: {"mean_size": next(sizes)}


@pytest.mark.parametrize("trainer_class", [ElmoTrainer, Trainer])
def test_the_card_of_a_run_has_its_numbers_and_its_code_runs_as_printed(
    trainer_class: type[Trainer],
    online: LoopbackHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A stock Trainer writes a draft, which `elmo-hf push` completes; the other one pushes by itself."""
    monkeypatch.chdir(tmp_path)
    is_own, printed = trainer_class is ElmoTrainer, {}
    for number, (name, (make, task, _, labels)) in enumerate(RUNS.items()):
        options = {"learning_rate": 3e-4 + number * 1e-5, "per_device_train_batch_size": 1 + number, "max_steps": 4}
        options |= {"eval_strategy": "steps", "eval_steps": 2, "seed": 7 + number}
        if is_own:  # the scores are those of the best model, which is the first
            options |= {"push_to_hub": True, "hub_model_id": f"org/{name}", "hub_strategy": "end"}
            options |= {"save_strategy": "steps", "save_steps": 2, "load_best_model_at_end": True}
            options |= {"metric_for_best_model": "eval_mean_size", "greater_is_better": False}
        trainer = make_trainer(make(), task, tmp_path / "out", trainer_class, **options, compute_metrics=rising())
        if name == "bilm":  # its labels are words, boundaries too
            words = trainer.train_dataset.map(lambda row: {"labels": [max(label, 0) for label in row["labels"]]})
            trainer.train_dataset = trainer.eval_dataset = words
        trainer.train()
        facts = {"language": "en", "license": "mit", "dataset": "three ferries", "dataset_tags": "org/ferries"}
        if is_own:
            trainer.push_to_hub(**facts)
            output = capsys.readouterr().out
        else:
            trainer.save_model()
            trainer.create_model_card(**facts)
            output = output_of("push", tmp_path / "out", f"org/{name}")
            # Over the draft that the Trainer's own push leaves.
            pushed = online.files(f"org/{name}")["README.md"].decode()
            draft = {"path_or_fileobj": tmp_path / "out" / "README.md", "path_in_repo": "README.md"}
            HfApi().upload_file(**draft, repo_id=f"org/{name}")
            trainer.model.push_to_hub(f"org/{name}")
            card = online.files(f"org/{name}")["README.md"].decode()  # the model does not know its tokenizer
            assert card == re.sub(r"- \*\*Words\.\*\* Raw text .*\n.*\n", "", pushed)
        card = online.files(f"org/{name}")["README.md"].decode()
        assert f"# {name}" in card.splitlines()
        assert not re.search('Not given|information needed|proofread|fine-tuned version|from scratch|"out"', card)
        assert re.search(r" on (the )?three ferries( dataset)?\.$", card, flags=re.MULTILINE)
        # The card's tables of two columns, and the lists of a draft.
        rows = dict(re.findall(r"^(?:\| |- )(.+?)(?: \| |: )(.+?)(?: \|)?$", card, flags=re.MULTILINE))
        assert float(rows["learning_rate"]) == pytest.approx(options["learning_rate"], rel=1e-9)
        settings = [int(rows[each]) for each in ("train_batch_size", "training_steps", "seed")]
        assert settings == [1 + number, 4, 7 + number]
        assert rows.get("labels") == labels
        *_, first, last = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
        shown = first if is_own else last
        for title, key in (("Loss", "eval_loss"), ("Mean Size", "eval_mean_size")):
            assert float(rows[title]) == pytest.approx(shown[key], abs=1e-4)
        header, _, *history = re.findall(r"^\|.*\|$", card[card.index("| Training Loss") :], re.MULTILINE)[:4]
        assert [cell.strip() for cell in header.split("|")[1:4]] == ["Training Loss", "Epoch", "Step"]
        for line, entry in zip(history, (first, last), strict=True):
            cells = [float(cell) for cell in line.strip("|").split("|")]
            assert cells[2:4] == pytest.approx([entry["step"], entry["eval_loss"]], abs=1e-4)
        data = ModelCard(card).data
        assert ("".join(data.language), data.license, data.datasets) == ("en", "mit", ["org/ferries"])
        assert {"elmo", "bilm", "generated_from_trainer"} <= {*data.tags}
        if is_own:
            (result,) = data.eval_results
            assert (result.dataset_type, result.dataset_name) == ("org/ferries", "three ferries")
            assert (result.metric_type, result.metric_value) == ("mean_size", 3)
        printed[name] = [*re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL), output.splitlines()[-1]]
        shutil.rmtree(tmp_path / "out")
    # The second snippet of the biLM goes on with the inputs of the first.
    first, second, line = printed["bilm"]
    printed["bilm"] = [first, first + second, line]
    code = without("elmo_hf", "conversion") + CODE
    lines = run_online(code, online, tmp_path / "home", json.dumps(printed), HF_TOKEN="").splitlines()
    for name, (_, _, head, _) in RUNS.items():
        loaded = " ".join(lines[lines.index(name) :])
        assert f"ElmoFor{head}" in loaded, name
        assert f"AutoModelFor{head} as Model" in printed[name][-1]


def test_a_run_that_pushes_nothing_loads_its_folder_and_names_no_folder_as_its_base(tmp_path: Path) -> None:
    trainer = make_trainer(make_task_model("crf"), "crf", tmp_path / "run", ElmoTrainer)
    (tmp_path / "models").mkdir()
    trainer.create_model_card(finetuned_from=str(tmp_path / "models"))
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert 'pipeline("token-classification", model="run", trust_remote_code=True)' in card.text
    assert "from the model `models` with" in card.text
    assert (card.data.pipeline_tag, card.data.base_model) == ("token-classification", None)
    assert "None" not in card.text
    trainer.create_model_card(finetuned_from="org/elmo-small")
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert "trained from [org/elmo-small](https://huggingface.co/org/elmo-small) with `elmo-hf`" in card.text
    assert card.data.base_model == "org/elmo-small"


@pytest.mark.parametrize("has_schedule", [False, True])
def test_a_card_has_the_rates_the_optimizer_and_the_schedule_that_a_trainer_was_given(
    has_schedule: bool, tmp_path: Path
) -> None:
    model = make_task_model("crf")
    (mix,) = model.scalar_mixes_of_all()
    others = [parameter for parameter in model.parameters() if parameter is not mix.logits]
    of_mix = {"params": [mix.logits], "lr": 0.25, "weight_decay": 0.5}
    optimizer = torch.optim.AdamW([of_mix, {"params": others, "lr": 0.125}])
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) if has_schedule else None
    trainer_class = partial(ElmoTrainer, optimizers=(optimizer, schedule))
    trainer = make_trainer(model, "crf", tmp_path / "run", trainer_class, max_steps=2, learning_rate=3.0)
    rows = {
        "learning_rate": "0.125; 0.25 for elmo.scalar_mixes.0.logits",
        "optimizer": "AdamW with betas=(0.9, 0.999), eps=1e-08, weight_decay=0.5 or 0.01",
        "lr_scheduler_type": "ExponentialLR" if has_schedule else "linear",
    }
    for _ in range(2):  # before training, and after the schedule has changed the rates
        trainer.create_model_card()
        card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
        for name, value in rows.items():
            assert f"\n| {name} | {value} |\n" in card
        trainer.train()


@pytest.mark.parametrize(
    ("fields", "learns"),
    [
        ({}, "scalar_mixes, classifier"),
        ({"freeze_bilm": ["token_encoder", "layer_1"], **LSTM}, "layer_2, scalar_mixes, task_encoder, classifier"),
        ({"freeze_bilm": False, "layer_mix": "linear"}, "token_encoder, layer_1, layer_2, linear_mixes, classifier"),
    ],
    ids=["frozen", "in part", "all"],
)
def test_the_card_of_a_task_model_has_its_rows_what_learns_and_its_dropout(
    fields: dict[str, Any], learns: str, tmp_path: Path
) -> None:
    model = make_task_model("classification", pooling="max", classifier_dropout=0.25, num_softmax_words=9, **fields)
    trainer = make_trainer(model, "classification", tmp_path / "run", ElmoTrainer)
    trainer.eval_dataset = trainer.train_dataset.select([0, 2])
    trainer.create_model_card()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (.+) \| (.+) \|$", card, re.MULTILINE))
    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert rows["learns"] == f"{learns} ({learned:,} of {model.num_parameters():,} numbers)"
    assert (rows["training_rows"], rows["evaluation_rows"]) == ("3", "2")
    assert (rows["pooling"], rows["classifier_dropout"], rows["representation_dropout"]) == ("max", "0.25", "0.5")
    assert rows["task_encoder"] == fields.get("task_encoder", "none")
    assert "softmax" not in rows  # it is not saved with a model for a task


@pytest.mark.parametrize("given", [None, "de"])
def test_the_card_of_a_trained_model_has_the_languages_of_the_model_that_it_began_with(
    given: str | None, copied: Path, tmp_path: Path
) -> None:
    (copied / "README.md").write_text("---\nlanguage:\n- zxx\n---\n", encoding="utf-8")
    trainer = make_trainer(make_task_model("classification"), "classification", tmp_path / "run", ElmoTrainer)
    trainer.create_model_card(finetuned_from=str(copied), language=given)
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert ModelCard(card).data.language == (given or ["zxx"])
    assert ("S E Q W E N C E" in card) == (given is None)


def test_the_card_of_a_model_that_labels_words_has_no_pooling(tmp_path: Path) -> None:
    trainer = make_trainer(make_task_model("crf"), "crf", tmp_path / "run", ElmoTrainer)
    trainer.eval_dataset = None
    trainer.create_model_card()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "| training_rows | 3 |" in card
    assert "evaluation_rows" not in card
    assert "pooling" not in card


@pytest.mark.parametrize(
    ("best", "loss"),
    [("run/checkpoint-2", "| Loss | 1.25 |"), (None, "| Loss | 1.75 |"), ("run/checkpoint-3", "Loss | ")],
)
def test_the_scores_of_a_card_are_those_of_the_checkpoint_that_was_loaded(
    best: str | None, loss: str, tmp_path: Path
) -> None:
    trainer = make_trainer(make_task_model("crf"), "crf", tmp_path / "run", ElmoTrainer)
    trainer.args.load_best_model_at_end = True
    # The best score was after step 2, the last one after step 4; the best checkpoint may be gone, or never scored.
    trainer.state.global_step, trainer.state.best_global_step = 4, 2
    trainer.state.best_model_checkpoint = best
    losses = [{"loss": 2.0, "step": 1}, {"eval_loss": 1.25, "step": 2}, {"eval_loss": 1.75, "step": 4}]
    trainer.state.log_history = [*losses, {"train_runtime": 1.0, "step": 4}]
    trainer.create_model_card()
    lines = (tmp_path / "run" / "README.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in lines if line.startswith("| Loss | ")]
    assert shown == ([] if best == "run/checkpoint-3" else [loss])
