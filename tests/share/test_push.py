"""`elmo-hf push` against a Hub on this machine: what is sent, tried again and refused, and the messages."""

import json
import re
import shutil
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
        push(tiny_folder, "org/elmo"), f"pushing to org/elmo at {online.url} broke off: .* whole commit or nothing"
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


def test_without_a_token_the_error_says_how_to_get_one(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert_refused(push(tiny_folder, "org/elmo"), "pushing needs a token: run `hf auth login`, or set HF_TOKEN")
    assert online.asked == []


def test_a_wrong_token_is_named_as_the_reason(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN + "x")
    assert_refused(push(tiny_folder, "org/elmo"), "the Hub does not let this token write to org/elmo: Invalid username")
    assert online.repositories == {}


def test_anothers_organisation_is_named_as_the_reason(online: LoopbackHub, tiny_folder: Path) -> None:
    assert_refused(
        push(tiny_folder, "other/elmo"), ".* write to other/elmo: You don't have the rights .* access to other"
    )


def test_a_hub_out_of_reach_is_named(online: LoopbackHub, tiny_folder: Path) -> None:
    online.shutdown()
    online.server_close()
    assert_refused(push(tiny_folder, "org/elmo"), f"pushing to org/elmo at {online.url} broke off: ")


def test_offline_mode_is_named_as_the_reason(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_refused(push(tiny_folder, "org/elmo"), "HF_HUB_OFFLINE is set, so nothing can be pushed; unset it.")


@pytest.mark.parametrize("name", ["elmo", "org/elmo/small", "org/el mo", "org/--elmo"])
def test_a_name_that_is_none_is_refused(name: str, online: LoopbackHub, tiny_folder: Path) -> None:
    assert_refused(push(tiny_folder, name), f"a Hub repository is called org/name, found '{name}'")
    assert online.repositories == {}


@pytest.mark.parametrize("name", ["tokenizer_config.json", "modeling_elmo.py", "scan_elmo.py", "configuration_elmo.py"])
def test_a_folder_that_would_not_load_elsewhere_is_refused_with_what_it_lacks(
    name: str, online: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_folder, tmp_path / "folder")
    (tmp_path / "folder" / name).unlink()
    assert_refused(
        push(tmp_path / "folder", "org/elmo"), f"{tmp_path}/folder lacks {name}. `model.save_pretrained` writes"
    )
    assert online.asked == []


def test_a_folder_that_lacks_weights_is_refused(online: LoopbackHub, tiny_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_folder, tmp_path / "folder")
    path = tmp_path / "folder" / "model.safetensors"
    weights = load_file(path)
    del weights["token_encoder.projection.bias"]
    save_file(weights, path, metadata={"format": "pt"})
    assert_refused(push(tmp_path / "folder", "org/elmo"), ".*lack `token_encoder.projection.bias`")
    assert online.asked == []


@pytest.mark.parametrize(
    ("name", "field", "named"),
    [
        ("config.json", "auto_map", {"AutoModel": "mine.ElmoModel"}),
        ("config.json", "auto_map", {"AutoModel": "modeling_elmo.Mine"}),
        ("config.json", "auto_map", {"AutoModel": "org/other--modeling_elmo.ElmoModel"}),
        ("config.json", "custom_pipelines", {"feature-extraction": {"impl": "mine.Pipeline"}}),
        ("config.json", "custom_pipelines", {"feature-extraction": {}}),
        ("tokenizer_config.json", "auto_map", {"AutoTokenizer": ["mine.ElmoTokenizer", None]}),
        ("tokenizer_config.json", "auto_map", ["tokenization_elmo.ElmoModel", None]),
    ],
)
def test_a_config_that_names_other_code_is_refused(
    name: str, field: str, named: object, online: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(tiny_folder, folder)
    (folder / "mine.py").write_text("class ElmoModel: pass\n", encoding="utf-8")
    config = json.loads((folder / name).read_text(encoding="utf-8")) | {field: named}
    (folder / name).write_text(json.dumps(config), encoding="utf-8")
    message = f"{folder}/{name}: `{field}` may name only classes that `save_pretrained` writes, such as modeling_elmo"
    assert_refused(push(folder, "org/elmo"), message)
    assert online.asked == []


def test_a_folder_with_a_damaged_tokenizer_or_an_index_of_files_outside_is_refused(
    online: LoopbackHub, tiny_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(tiny_folder, folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert_refused(push(folder, "org/elmo"), f"{folder}/tokenizer.json: `model` must hold an object `vocab`")
    (folder / "model.safetensors").rename(tmp_path / "x.safetensors")
    index = {"metadata": {}, "weight_map": {"x": "../x.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert_refused(
        push(folder, "org/elmo"), ".*index.json: `x` must be in a .safetensors file beside it, found '../x.safetensors'"
    )
    assert online.asked == []


def test_a_folder_that_is_not_there_is_named(online: LoopbackHub) -> None:
    assert_refused(push("org/elmo", "org/elmo"), "there is no folder org/elmo.")


def test_an_organisation_decides_whether_a_repository_is_private(
    online: LoopbackHub, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(HfApi, "create_repo", lambda self, name, **options: asked.update(options))
    push(tiny_folder, "org/elmo")
    assert asked["private"] is None
