"""`elmo-hf push` against a Hub on this machine: what is sent, tried again and refused, and the messages."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants
from loopback_hub import TOKEN, Fault, LoopbackHub
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from elmo_hf.cli import app


@pytest.fixture
def online(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> LoopbackHub:
    """This process, which imported `huggingface_hub` long ago, talks to the loopback Hub."""
    for name, value in hub.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between two tries
    return hub


@pytest.fixture
def tiny_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy, because a push writes into the card."""
    return shutil.copytree(tiny_folder, tmp_path / "tiny")


def push(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["push", *map(str, arguments)])


def assert_refused(result: Result, text: str) -> None:
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 1
    assert re.search(f"^Error: {text}", result.stderr, re.MULTILINE | re.DOTALL), result.stderr


def test_a_folder_becomes_one_commit_which_its_message_names(online: LoopbackHub, tiny_folder: Path) -> None:
    result = push(tiny_folder, "org/elmo")
    assert result.exit_code == 0, result.output
    repository = online.repositories["org/elmo"]
    assert not repository.is_private
    assert len(repository.commits) == 2
    pushed = online.files("org/elmo")
    del pushed[".gitattributes"]
    assert pushed == {path.name: path.read_bytes() for path in tiny_folder.iterdir()}
    oid = [*repository.commits][1]
    assert result.stdout.splitlines() == [
        f"Wrote {online.url}/org/elmo, commit {oid}.",
        f"Load it: AutoModel.from_pretrained('org/elmo', revision='{oid}', trust_remote_code=True)",
    ]


def test_the_snippet_of_the_card_loads_the_repository_that_was_pushed_to(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    card = (tiny_folder / "README.md").read_text(encoding="utf-8")
    snippet = 'from_pretrained("{}", trust_remote_code=True)'
    assert card.count(snippet.format("tiny")) == 2
    for name in ("org/elmo", "org/other"):
        assert push(tiny_folder, name).exit_code == 0
        assert online.files(name)["README.md"].decode().count(snippet.format(name)) == 2


def test_a_card_with_another_snippet_stays_as_it_is(online: LoopbackHub, tiny_folder: Path) -> None:
    text = 'model = AutoModel.from_pretrained("bert")\n'
    (tiny_folder / "README.md").write_text(text, encoding="utf-8")
    assert push(tiny_folder, "org/elmo").exit_code == 0
    assert online.files("org/elmo")["README.md"] == text.encode()


def test_large_files_go_to_the_lfs_store_in_parts_and_others_with_the_commit(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    online.part_size = 20_000
    assert push(tiny_folder, "org/elmo").exit_code == 0
    files = online.repositories["org/elmo"].commits[online.repositories["org/elmo"].branches["main"]]
    assert [path for path, file in files.items() if file.is_lfs] == ["model.safetensors"]
    weights = (tiny_folder / "model.safetensors").read_bytes()
    assert online.requests("PUT", "/lfs/") == -(-len(weights) // 20_000) > 2
    assert files["model.safetensors"].content == weights


def test_a_private_repository_is_made_private(online: LoopbackHub, tiny_folder: Path) -> None:
    assert push(tiny_folder, "org/secret", "--private").exit_code == 0
    assert online.repositories["org/secret"].is_private


@pytest.mark.parametrize("status", [None, 503], ids=["broken off halfway", "service unavailable"])
def test_an_interrupted_upload_is_tried_again_by_itself(
    status: int | None, online: LoopbackHub, tiny_folder: Path
) -> None:
    online.faults = [Fault("PUT", "/lfs/", status), Fault("PUT", "/lfs/", status)]
    assert push(tiny_folder, "org/elmo").exit_code == 0
    assert online.requests("PUT", "/lfs/") == 3
    assert online.files("org/elmo")["model.safetensors"] == (tiny_folder / "model.safetensors").read_bytes()


def test_what_breaks_off_for_good_changes_nothing_and_the_next_push_sends_only_what_is_missing(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    online.faults = [Fault("POST", "/commit/", None)]
    assert_refused(
        push(tiny_folder, "org/elmo"), f"pushing to org/elmo at {online.url} failed: .* whole commit or nothing"
    )
    assert list(online.files("org/elmo")) == [".gitattributes"]
    assert online.requests("PUT", "/lfs/") == 1
    assert push(tiny_folder, "org/elmo").exit_code == 0
    assert online.requests("PUT", "/lfs/") == 1
    assert "model.safetensors" in online.files("org/elmo")


def test_pushing_the_same_again_makes_no_commit(online: LoopbackHub, tiny_folder: Path) -> None:
    first, second = push(tiny_folder, "org/elmo"), push(tiny_folder, "org/elmo")
    assert second.exit_code == 0
    assert first.stdout == second.stdout
    assert online.requests("POST", "/commit/") == 1


def test_checkpoints_and_hidden_files_stay_at_home(online: LoopbackHub, tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "run")
    (tmp_path / "run" / "checkpoint-3").mkdir()
    for name in ("checkpoint-3/optimizer.pt", ".env", "_notes.txt"):
        (tmp_path / "run" / name).write_text("private", encoding="utf-8")
    assert push(tmp_path / "run", "org/elmo").exit_code == 0
    assert b"private" not in online.files("org/elmo").values()


def test_a_token_that_may_not_write_is_named_as_the_reason(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert_refused(push(tiny_folder, "other/elmo"), "pushing to other/elmo .* You don't have the rights .* other")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    for token in ("", TOKEN + "x"):
        monkeypatch.setenv("HF_TOKEN", token)
        assert_refused(push(tiny_folder, "org/elmo"), "pushing to org/elmo .*`hf auth login`")
    assert online.repositories == {}


def test_a_hub_out_of_reach_is_named(online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    online.shutdown()
    online.server_close()
    assert_refused(push(tiny_folder, "org/elmo"), f"pushing to org/elmo at {online.url} failed: ")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_refused(push(tiny_folder, "org/elmo"), "pushing to org/elmo .*HF_HUB_OFFLINE")


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def with_fields(name: str, **fields: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = json.loads((folder / name).read_text(encoding="utf-8")) | fields
        (folder / name).write_text(json.dumps(config), encoding="utf-8")

    return change


def without_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["token_encoder.projection.bias"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


MINE = {"feature-extraction": {"impl": "mine.Pipeline"}}
REFUSALS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no folder": (shutil.rmtree, "no folder"),
    "no tokenizer": (without("tokenizer_config.json"), "tokenizer_config.json"),
    "no code": (without("scan_elmo.py"), "scan_elmo.py"),
    "no card": (without("README.md"), "README.md.*`elmo-hf card"),
    "a card of bytes": (lambda folder: (folder / "README.md").write_bytes(b"\xff"), "README.md"),
    "a weight": (without_a_weight, "`token_encoder.projection.bias`"),
    "a damaged tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json"),
    "auto_map": (with_fields("config.json", auto_map={"AutoModel": "mine.ElmoModel"}), "config.json.*'mine.ElmoModel'"),
    "auto_map, class": (with_fields("config.json", auto_map={"AutoModel": "modeling_elmo.Mine"}), "config.json"),
    "auto_map, repository": (
        with_fields("config.json", auto_map={"AutoModel": "org/other--modeling_elmo.ElmoModel"}),
        "config.json",
    ),
    "pipelines": (with_fields("config.json", custom_pipelines=MINE), "config.json.*'mine.Pipeline'"),
    "pipelines, empty": (with_fields("config.json", custom_pipelines={"feature-extraction": {}}), "config.json"),
    "tokenizer": (with_fields("tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.X", None]}), "mine.X"),
    "tokenizer, list": (with_fields("tokenizer_config.json", auto_map=["tokenization_elmo.ElmoModel", None]), "Model"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_folder_is_refused_before_anything_is_sent(case: str, online: LoopbackHub, tiny_folder: Path) -> None:
    change, named = REFUSALS[case]
    (tiny_folder / "mine.py").write_text("class ElmoModel: pass\n", encoding="utf-8")
    change(tiny_folder)
    assert_refused(push(tiny_folder, "org/elmo"), f".*{named}")
    assert online.asked == []


@pytest.mark.parametrize("name", ["elmo", "org/elmo/small", "org/el mo", "org/--elmo"])
def test_a_name_that_is_none_is_refused(name: str, online: LoopbackHub, tiny_folder: Path) -> None:
    assert_refused(push(tiny_folder, name), f".*{name}")
    assert online.asked == []


def test_an_organisation_decides_whether_a_repository_is_private(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(HfApi, "create_repo", lambda self, name, **options: asked.update(options))
    push(tiny_folder, "org/elmo")
    assert asked["private"] is None
