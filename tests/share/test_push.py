"""`elmo-hf push` against a Hub on this machine: what is sent, tried again and refused, and the messages."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import assert_fails, run
from hostile_folders import fields, holding, weights
from loopback_hub import TOKEN, Fault, LoopbackHub


@pytest.fixture
def online(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoopbackHub:
    """This process, which imported `huggingface_hub` long ago, talks to the loopback Hub and waits between no tries."""
    constants = {"ENDPOINT": hub.url, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    constants["HF_TOKEN_PATH"] = str(tmp_path / "none")
    values = {f"huggingface_hub.constants.{name}": value for name, value in constants.items()}
    for name, value in (values | {"time.sleep": lambda seconds: None}).items():
        monkeypatch.setattr(name, value)
    for name, value in hub.environment().items():
        monkeypatch.setenv(name, value)
    return hub


@pytest.fixture
def tiny_folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy, because a push writes into the card."""
    return shutil.copytree(tiny_folder, tmp_path / "tiny")


def test_a_folder_becomes_one_commit_which_its_message_names(online: LoopbackHub, tiny_folder: Path) -> None:
    online.part_size = 20_000
    result = run("push", tiny_folder, "org/elmo")
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
    # Large files go to the LFS store in parts, others with the commit.
    assert [path for path, file in repository.commits[oid].items() if file.is_lfs] == ["model.safetensors"]
    assert online.requests("PUT", "/lfs/") == -(-len(pushed["model.safetensors"]) // 20_000) > 2


def test_the_snippet_of_the_card_loads_the_repository_that_was_pushed_to(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    snippet = 'from_pretrained("{}", trust_remote_code=True)'
    assert (tiny_folder / "README.md").read_text(encoding="utf-8").count(snippet.format("tiny")) == 2
    for given, name in (("org/elmo", "org/elmo"), ("other", "org/other")):  # a name alone is in the user's namespace
        assert run("push", tiny_folder, given).exit_code == 0
        assert online.files(name)["README.md"].decode().count(snippet.format(name)) == 2
    text = 'model = AutoModel.from_pretrained("bert")\n'
    (tiny_folder / "README.md").write_text(text, encoding="utf-8")
    assert run("push", tiny_folder, "org/elmo").exit_code == 0
    assert online.files("org/elmo")["README.md"] == text.encode()


def test_a_repository_is_private_if_asked_or_if_the_organisation_decides_so(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    assert run("push", tiny_folder, "org/secret", "--private").exit_code == 0
    online.private_by_default = True
    assert run("push", tiny_folder, "org/other").exit_code == 0
    assert online.repositories["org/secret"].is_private
    assert online.repositories["org/other"].is_private


def test_an_upload_is_tried_again_and_what_breaks_off_for_good_changes_nothing(
    online: LoopbackHub, tiny_folder: Path
) -> None:
    online.faults = [Fault("PUT", "/lfs/"), Fault("POST", "/commit/")]
    failed = run("push", tiny_folder, "org/elmo")
    assert_fails(failed, 1, f"pushing to org/elmo at {online.url} failed. ")
    assert "whole commit or nothing" in failed.stderr
    assert list(online.files("org/elmo")) == [".gitattributes"]
    assert online.requests("PUT", "/lfs/") == 2
    assert run("push", tiny_folder, "org/elmo").exit_code == 0
    assert online.requests("PUT", "/lfs/") == 2  # only what is missing is sent
    assert online.files("org/elmo")["model.safetensors"] == (tiny_folder / "model.safetensors").read_bytes()


def test_checkpoints_and_hidden_files_stay_at_home(online: LoopbackHub, tiny_folder: Path) -> None:
    (tiny_folder / "checkpoint-3").mkdir()
    for name in ("checkpoint-3/optimizer.pt", ".env", "_notes.txt"):
        (tiny_folder / name).write_text("private", encoding="utf-8")
    assert run("push", tiny_folder, "org/elmo").exit_code == 0
    assert b"private" not in online.files("org/elmo").values()


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


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


REFUSALS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no folder": (shutil.rmtree, "org/elmo", "no folder"),
    "no tokenizer": (without("tokenizer_config.json"), "org/elmo", "tokenizer_config.json"),
    "no code": (without("scan_elmo.py"), "org/elmo", "scan_elmo.py"),
    "no card": (without("README.md"), "org/elmo", "elmo-hf card"),
    "a card of bytes": (holding("README.md", b"\xff"), "org/elmo", "README.md"),
    "a weight": (weights(lambda each: each.popitem()), "org/elmo", "random"),
    "another size": (fields("config.json", cell_size=99), "org/elmo", "config.json"),
    "a damaged tokenizer": (holding("tokenizer.json", b"{"), "org/elmo", "tokenizer.json"),
    **{f"named {name}": (lambda folder: None, name, name) for name in ("org/elmo/small", "org/el mo", "org/--elmo")},
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_folder_or_name_is_refused_before_anything_is_sent(case: str, online: LoopbackHub, tiny_folder: Path) -> None:
    change, name, word = REFUSALS[case]
    change(tiny_folder)
    assert_fails(run("push", tiny_folder, name), 1, word)
    assert online.asked == []
