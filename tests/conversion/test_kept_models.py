"""A published name is a model: downloaded, converted and checked at its first use, and kept."""

import json
import logging
import re
import shutil
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

import pytest
import torch

import elmo_hf
from elmo_hf.conversion import kept_models, publish, published
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.kept_models import KeptModels
from elmo_hf.conversion.publish import convert_published
from elmo_hf.conversion.published import DownloadOptions, Published, other_origin
from elmo_hf.conversion.refusals import AnotherModelError, ConversionError
from elmo_hf.dropins import manylangs, simple_elmo
from elmo_hf.embedding.embedder import Embedder
from elmo_hf.folder.loading import load_for_pretraining
from elmo_hf.folder.model_names import TINY_FOLDER, ModelNames, is_missing, model_folder
from elmo_hf.share.saved_card import named_card
from elmo_hf.sklearn import ElmoVectorizer
from elmo_hf.tfhub import Module
from tests.helpers.checkpoints import BASE, TINY_LM, run_python
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.file_server import HTML, FileServer, serving

SENTENCE = ["The", "ferry", "left", "."]
TABLE = {
    "base": Published(
        "base/options.json",
        "base/weights.hdf5",
        language="en",
        size="32/8",
        licence="mit",
        text="random weights",
        source="https://example.org/base",
    ),
    "base-lm": Published(
        "lm/options.json",
        "lm/model.ckpt-1.index",
        vocabulary="lm/vocab.txt",
        language="en",
        size="24/8",
        licence="unknown",
        text="random weights; with softmax",
        source="https://example.org/lm",
    ),
    "by-hand": Published("", "", language="en", licence="unknown", text="?", source="https://example.org/hand"),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server of a golden case and of a language model."""
    monkeypatch.setenv("no_proxy", "*")
    contents = {f"/elmo/base/{name}": (BASE / name).read_bytes() for name in ("options.json", "weights.hdf5")}
    contents |= {f"/elmo/lm/{path.name}": path.read_bytes() for path in TINY_LM.iterdir()}
    with serving(contents) as server:
        yield server


@pytest.fixture
def kept(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptModels:
    """Nothing is kept yet; the package knows the names of `TABLE`, and the working directory is empty."""
    kept = KeptModels(TABLE, tmp_path / "cache" / "models", tmp_path / "cache", server.url)
    monkeypatch.setattr(ModelNames, "published", staticmethod(lambda: kept))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return kept


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_first_use_makes_the_folder_that_convert_makes_and_later_uses_need_no_network(
    kept: KeptModels, server: FileServer, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kept.folder_of("base")
    assert folder == kept.folder / "base"
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Downloading base (")]
    assert len(lines) == 1
    for fact in ("32/8", "licence mit", f"{server.url}base/weights.hdf5", str(folder)):
        assert fact in lines[0]
    assert server.asked == ["/elmo/base/options.json", "/elmo/base/weights.hdf5"]
    server.stop()
    (kept.folder / ".base.lock").touch()  # as a process leaves it that is killed at the end of the first use
    assert kept.folder_of("base") == folder
    assert capsys.readouterr().err == ""
    files, expected = contents(folder), contents(tiny_folder)
    for card in (files, expected):
        del card["README.md"]
    assert files == expected
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"largest.* \d\.\de-\d\d", card, re.DOTALL)  # the comparison with the witness
    assert [path.name for path in (kept.downloads).iterdir()] == ["models"]
    assert [path.name for path in kept.folder.iterdir()] == ["base"]


def test_whatever_takes_a_model_takes_a_published_name(kept: KeptModels, tiny_folder: Path, server: FileServer) -> None:
    model, tokenizer = elmo_hf.load("base")
    expected, _ = elmo_hf.load(tiny_folder)
    server.stop()
    inputs = tokenizer([SENTENCE], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        vectors = model(**inputs).last_hidden_state
        assert torch.equal(vectors, expected(**inputs).last_hidden_state)
    text = " ".join(SENTENCE)
    extract = elmo_hf.pipeline("feature-extraction", "base")
    assert torch.equal(torch.tensor(extract(text)), vectors)
    assert Embedder("base")({"text": [text]})["vectors"][0].shape == (4, 16)
    assert ElmoVectorizer("base").transform([text]).shape == (1, 16)
    assert Module("base")([text]).shape == (1, 16)
    assert manylangs.Embedder("base").sents2elmo([SENTENCE])[0].shape == (4, 16)
    old = simple_elmo.ElmoModel()
    old.load("base")
    assert old.get_elmo_vectors([SENTENCE]).shape == (1, 4, 16)
    Path("text.txt").write_text(f"{text}\n", encoding="utf-8")
    for command in (
        "embed base text.txt -o vectors.npz",
        "embed base text.txt --dry-run",
        "vectors base text.txt --nearest ferry --input-format text",
        "info base",
        "convert base back --to allennlp",
    ):
        output_of(*command.split())
    assert Path("back", "weights.hdf5").is_file()


def test_a_published_model_that_is_known_to_have_no_softmax_is_refused_before_the_download(
    kept: KeptModels, server: FileServer
) -> None:
    Path("text.txt").write_text("The ferry left .\n", encoding="utf-8")
    reason = (
        "base has no softmax over words, so it embeds text and cannot score it. The published model base-lm has both."
    )
    for command in (("score", "base", "text.txt"), ("fill", "base", "The ___ .")):
        assert_fails(run(*command), 1, reason)
    assert server.asked == []
    assert not kept.is_kept("base")
    lacking = {name for name, row in published.PUBLISHED.items() if row.lacks_softmax}
    assert {"small", "medium", "original", "5.5B", "seqvec", "pubmed"} <= lacking
    assert lacking.isdisjoint({"small-lm", "medium-lm", "original-lm", "5.5B-lm", "bioelmo", "clinical"})


def test_language_models_have_names_too(kept: KeptModels, server: FileServer) -> None:
    Path("text.txt").write_bytes((TINY_LM / "text.txt").read_bytes())
    assert "perplexity" in output_of("score", "base-lm", "text.txt")
    server.stop()
    output_of("fill", "base-lm", "the ___ .")
    model, _ = load_for_pretraining("base-lm", None)
    assert model.config.cell_size == 24


def answer_with(what: str, server: FileServer) -> None:
    """Makes the server send something else than the checkpoint."""
    other = {name.replace("/lm/", "/base/"): content for name, content in server.contents.items() if "/lm/" in name}
    match what:
        case "a page":
            server.contents = dict.fromkeys(server.contents, HTML)
        case "a page for the weights":
            server.contents["/elmo/base/weights.hdf5"] = HTML
        case "another model":
            server.contents = server.contents | other
        case "no weights":
            del server.contents["/elmo/base/weights.hdf5"]
        case fault:
            server.fault = fault


WRONG = ("a page", "a page for the weights", "another model", "no weights", "cut", "chunk cut", "no content", "gzip")


@pytest.mark.parametrize("what", [*WRONG, "no length"])
def test_what_is_not_the_checkpoint_is_named_and_leaves_nothing_and_later_the_same_call_works(
    what: str, kept: KeptModels, server: FileServer
) -> None:
    right = server.contents
    server.contents = dict(right)
    answer_with(what, server)
    with pytest.raises(ConversionError, match=re.escape(f"{server.url}base/")) as refusal:
        kept.folder_of("base")
    is_of_network = what in ("cut", "chunk cut")
    assert ("do the same again when this machine has a network" in str(refusal.value)) == is_of_network
    assert "convert them (docs/convert.md) and give the name of the new folder" in str(refusal.value)
    assert "rename" not in str(refusal.value)
    assert str(kept.folder / ".base") not in str(refusal.value)  # a folder that is gone
    assert list(kept.folder.iterdir()) == []
    server.contents, server.fault = right, ""
    assert kept.folder_of("base").is_dir()


@pytest.mark.parametrize("what", ["no weights", "another model", "a page"])
def test_after_a_wrong_answer_of_a_mirror_the_error_names_its_variable(
    what: str, kept: KeptModels, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(what, server)
    fault = "The address comes from ELMO_HF_BASE_URL; correct it or the server, and give the same command again."
    with pytest.raises(ConversionError) as refusal:
        kept.folder_of("base")
    assert fault not in str(refusal.value)
    monkeypatch.setenv("ELMO_HF_BASE_URL", server.url)
    with pytest.raises(ConversionError, match=fault):
        replace(kept, base_url=None).folder_of("base")
    monkeypatch.setenv("ELMO_HF_BASE_URL", "http://127.0.0.1:9/")  # where nothing answers
    with pytest.raises(ConversionError, match=fault):
        replace(kept, base_url=None).folder_of("base")
    monkeypatch.setenv("ELMO_HF_BASE_URL", "localhost:8123")
    with pytest.raises(ConversionError, match="ELMO_HF_BASE_URL must be an address such as http://localhost:8123, "):
        replace(kept, base_url=None).folder_of("base")
    monkeypatch.setenv("ELMO_HF_BASE_URL", server.url)
    far = {"base": replace(TABLE["base"], options=f"{server.url}none", weights=f"{server.url}none")}
    with pytest.raises(ConversionError) as refusal:
        replace(kept, base_url=None, published=far).folder_of("base")
    assert fault not in str(refusal.value)


def test_the_card_of_a_kept_folder_loads_its_path(kept: KeptModels) -> None:
    folder = kept.folder_of("base")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f'AutoModel.from_pretrained("{folder.as_posix()}", trust_remote_code=True)' in card
    pushed = named_card(card, "org/its")
    assert 'from_pretrained("org/its", trust_remote_code=True)' in pushed
    assert "# its" in pushed.splitlines()
    assert folder.as_posix() not in pushed


def test_a_card_has_the_origin_of_files_that_are_not_from_the_publisher(
    kept: KeptModels, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def origin_in_card(options: DownloadOptions) -> str | None:
        convert_published("base", Path("converted"), download_options=options)
        card = Path("converted", "README.md").read_text(encoding="utf-8")
        shutil.rmtree("converted")
        origin = re.search(r"^The files came from `(.*)`, not from an address of the publisher.", card, re.MULTILINE)
        is_told = "Their vectors were not compared with published vectors." in card
        assert is_told == (origin is not None)
        return None if origin is None else origin[1]

    folder = kept.downloads / "base"
    weights = f"{server.url}base/weights.hdf5"
    assert origin_in_card(DownloadOptions(published=TABLE, folder=folder, origin=str(BASE))) == BASE.name
    assert origin_in_card(DownloadOptions(published=TABLE, folder=folder, base_url=server.url)) == weights
    monkeypatch.setattr(published, "BASE_URL", server.url)
    assert origin_in_card(DownloadOptions(published=TABLE, folder=folder)) is None
    secret = f"{server.url}base?key=1".replace("http://", "http://me:word@")
    one_file = {"base": Published("", "a.zip")}
    assert other_origin("base", DownloadOptions(published=one_file, origin=secret)) == f"{server.url}base"


def test_another_model_of_the_same_kind_is_refused_by_its_sizes(kept: KeptModels) -> None:
    larger = replace(kept, published={"base": replace(TABLE["base"], size="64/8")})
    with pytest.raises(ConversionError, match=r"the published model, 64/8 in each direction, but has 32/8"):
        larger.folder_of("base")


def test_without_a_network_one_line_says_what_to_do(kept: KeptModels, server: FileServer) -> None:
    server.stop()
    Path("text.txt").write_text("Yes .\n", encoding="utf-8")
    result = run("embed", "base", "text.txt", "-o", "vectors.npz")
    advice = "convert them (docs/convert.md) and give the name of the new folder"
    assert_fails(result, 1, advice)
    assert not Path("vectors.npz").exists()
    by_hand = run("embed", "by-hand", "text.txt", "-o", "vectors.npz")
    assert_fails(by_hand, 1, "no known address, so it cannot be downloaded. If you have its files")


def test_info_of_a_published_model_downloads_nothing_and_says_what_does(
    kept: KeptModels, server: FileServer, tiny_folder: Path
) -> None:
    lines = output_of("info", "base").splitlines()
    assert [line.split() for line in lines[:3]] == [["name", "base"], ["language", "en"], ["size", "32/8"]]
    assert "`elmo-hf convert --model base NEW_FOLDER`" in lines[-1]
    assert "`elmo-hf convert --model by-hand NEW_FOLDER --from FILES`" in output_of("info", "by-hand")
    assert server.asked == []
    assert not kept.is_kept("base")
    shutil.copytree(tiny_folder, kept.folder / "base")
    described = output_of("info", "base")
    assert "ElmoModel" in described
    assert "Not here yet" not in described
    shutil.rmtree(kept.folder)
    assert is_missing("base")
    shutil.copytree(tiny_folder, "base")  # the folder of this name here is meant
    assert not is_missing("base")


def test_the_facts_of_a_published_model_name_the_file_with_its_perplexity_and_licence() -> None:
    facts = dict(KeptModels().facts("original-lm"))["facts"]
    text = Path(facts).read_text(encoding="utf-8")
    assert "\n## Licence\n" in text
    assert "perplexity of the language model" in text
    assert "facts" not in dict(KeptModels().facts("nlpl-210"))


def test_without_a_network_a_traceback_has_only_the_error_with_the_advice(kept: KeptModels, server: FileServer) -> None:
    server.stop()
    with pytest.raises(ConversionError) as refusal:
        elmo_hf.load("base")
    lines = "".join(traceback.format_exception(refusal.value)).splitlines()
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert "do the same again when this machine has a network" in lines[-1]


@pytest.mark.parametrize("moment", ["fetch", "_download", "convert_source"])
def test_ctrl_c_says_that_nothing_of_a_download_is_kept(
    moment: str, kept: KeptModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(publish if moment == "convert_source" else published, moment, stop)
    Path("text.txt").write_text("Yes .\n", encoding="utf-8")
    result = run("embed", "base", "text.txt", "-o", "vectors.npz")
    assert result.exit_code == 130
    line = "Stopped. A download is kept only after it was read and checked; the same command downloads it again."
    assert result.stderr.splitlines()[-1] == line
    assert list(kept.folder.iterdir()) == []
    assert not (kept.downloads / "base").exists()


@pytest.mark.parametrize("moment", ["read_checkpoint", "convert_source"])
def test_ctrl_c_says_nothing_of_files_that_were_here_before(
    moment: str, kept: KeptModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    shutil.copytree(BASE, kept.downloads / "base")
    monkeypatch.setattr(publish, moment, stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        kept.folder_of("base")
    assert stopped.value.args == ()


def test_offline_a_model_that_is_kept_works_and_no_other_is_downloaded(
    kept: KeptModels, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = kept.folder_of("base")
    elsewhere = replace(kept, base_url="https://example.org/")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    capsys.readouterr()
    assert elsewhere.folder_of("base") == folder
    with pytest.raises(ConversionError, match=r"^HF_HUB_OFFLINE is set, .* https://example\.org/lm/\S+$") as refusal:
        elsewhere.folder_of("base-lm")
    for advice in (str(kept.folder / "base-lm"), "https://example.org/lm)", "`tiny` is in the package and needs no"):
        assert advice in str(refusal.value)
    assert capsys.readouterr().err == ""
    assert [path.name for path in kept.folder.iterdir()] == ["base"]
    assert kept.folder_of("base-lm").is_dir()  # from an address of this machine


FIRST_USE = """
import json
import sys
from pathlib import Path
from elmo_hf.conversion.kept_models import KeptModels
from elmo_hf.conversion.published import Published

cache = Path(sys.argv[1])
row = Published(**json.loads(sys.argv[3]))
print(KeptModels({"base": row}, cache / "models", cache, sys.argv[2]).folder_of("base"))
"""


def test_of_two_first_uses_at_once_one_downloads_and_both_have_the_folder(kept: KeptModels, server: FileServer) -> None:
    places = [Path("first").absolute(), Path("second").absolute()]
    for place in places:
        place.mkdir()
    arguments = (kept.downloads, server.url, json.dumps(asdict(TABLE["base"])))
    with ThreadPoolExecutor(2) as threads:
        printed = [*threads.map(lambda place: run_python(FIRST_USE, place, *arguments), places)]
    assert [Path(line.strip()) for line in printed] == [kept.folder / "base"] * 2
    assert len(server.asked) == 2
    assert [path.name for path in kept.folder.iterdir()] == ["base"]


def test_files_that_were_downloaded_before_are_used(
    kept: KeptModels, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    options = DownloadOptions(server.url, kept.downloads / "base", TABLE)
    convert_published("base", Path("converted"), download_options=options)
    server.stop()
    capsys.readouterr()
    assert contents(kept.folder_of("base")).keys() == contents(Path("converted")).keys()
    assert "Downloading" not in capsys.readouterr().err


def test_files_that_were_copied_by_hand_are_used_without_a_network(
    kept: KeptModels, server: FileServer, tiny_folder: Path
) -> None:
    server.stop()
    shutil.copytree(BASE, kept.downloads / "base")
    before = contents(kept.downloads / "base")
    assert contents(kept.folder_of("base")).keys() == contents(tiny_folder).keys()
    assert contents(kept.downloads / "base") == before


def test_a_fault_in_the_users_options_is_found_before_anything_is_downloaded(
    kept: KeptModels, server: FileServer
) -> None:
    Path("broken.json").write_text('{"lstm": ', encoding="utf-8")
    options = DownloadOptions(server.url, kept.downloads / "base", TABLE)
    with pytest.raises(ConversionError, match=r"broken\.json is damaged"):
        convert_published("base", Path("converted"), NamedFiles(options=Path("broken.json")), download_options=options)
    assert server.asked == []


def test_a_download_stays_if_the_users_options_are_of_another_model(kept: KeptModels, server: FileServer) -> None:
    text = (BASE / "options.json").read_text(encoding="utf-8")
    other = json.loads(text)
    other["lstm"]["dim"] += 1
    Path("other.json").write_text(json.dumps(other), encoding="utf-8")
    options = DownloadOptions(server.url, kept.downloads / "base", TABLE)
    own_files = NamedFiles(options=Path("other.json"))
    for _ in range(2):
        with pytest.raises(ConversionError) as refusal:
            convert_published("base", Path("converted"), own_files, download_options=options)
        assert "server" not in str(refusal.value)
    assert (kept.downloads / "base" / "SHA256SUMS").is_file()
    assert len(server.asked) == 2


def test_another_model_by_the_users_options_is_their_fault_and_not_that_of_the_download(
    kept: KeptModels, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AnotherModelError("it has other numbers.")

    options = DownloadOptions(server.url, kept.downloads / "base", TABLE)
    own_files = NamedFiles(options=BASE / "options.json")
    monkeypatch.setattr(publish, "convert_source", refuse)
    with pytest.raises(AnotherModelError, match=r"^it has other numbers\.$"):
        convert_published("base", Path("converted"), own_files, download_options=options)
    assert (kept.downloads / "base" / "SHA256SUMS").is_file()


def test_a_download_that_turns_out_to_be_another_model_is_removed(kept: KeptModels, server: FileServer) -> None:
    """As if an earlier version had kept it, which compared no sizes."""
    unsized = {"base": replace(TABLE["base"], size="")}
    options = DownloadOptions(server.url, kept.downloads / "base", unsized)
    convert_published("base", Path("converted"), download_options=options)
    larger = replace(options, published={"base": replace(TABLE["base"], size="64/8")})
    with pytest.raises(
        ConversionError, match=re.escape(f"What {server.url}base/options.json, {server.url}base/weights")
    ):
        convert_published("base", Path("another"), download_options=larger)
    assert not (kept.downloads / "base").exists()
    own = replace(larger, origin=str(BASE))
    with pytest.raises(ConversionError, match="has 32/8, so it is another model"):
        convert_published("base", Path("another"), download_options=own)
    assert (BASE / "weights.hdf5").is_file()


def test_a_folder_here_is_meant_only_if_it_holds_a_model(kept: KeptModels, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    Path("base").mkdir()
    Path("base", "notes.txt").write_text("of mine\n", encoding="utf-8")
    for _ in range(2):
        assert model_folder("base") == kept.folder / "base"
    assert [record.getMessage() for record in caplog.records] == [
        "Note: base is the model that elmo-hf knows by this name; the file or folder of that name here holds no model."
    ]
    caplog.clear()
    Path("base", "weights.hdf5").write_bytes(b"")
    assert model_folder("base") == "base"
    assert [record.getMessage() for record in caplog.records] == [
        "Note: base is the folder of this name here, not the model that elmo-hf knows by it."
    ]
    assert model_folder("tiny") == TINY_FOLDER
    assert model_folder("other") == "other"


@pytest.mark.parametrize("name", ["tiny", "org/name", "./base", "C:\\base"])
def test_names_that_no_published_model_can_have_are_known_without_a_look_at_these(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise AssertionError("The published models were asked for.")

    monkeypatch.setattr(ModelNames, "published", staticmethod(refuse))
    assert model_folder(name) == (TINY_FOLDER if name == "tiny" else name)


def test_the_list_shows_what_is_here_and_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_models, "CACHE", tmp_path)
    folder = tmp_path / "models" / "small"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(2_600_000))
    lines = output_of("models").splitlines()
    assert max(map(len, lines)) <= 100
    here = {line.split()[0]: line for line in lines}
    assert "3 MB" in here["small"]
    assert "MB" not in here["medium"]
    assert str(folder) in output_of("models", "small")
    output_of("models", "--remove", "small")
    assert list((tmp_path / "models").iterdir()) == []
    assert_fails(run("models", "--remove", "small"), 1, f"kept in {tmp_path / 'models'}, so there is nothing to remove")
    assert_fails(run("models", "--remove", "smal"), 1, "there is no published model 'smal'; the names are small, ")
    assert_fails(run("models", "--remove", "smal"), 1, "Did you mean `small`?")
    incomplete = tmp_path / "models" / ".small.partial"
    (incomplete / "files").mkdir(parents=True)  # as a process leaves it that is killed in the first use
    assert f"incomplete  {incomplete}, of a first use that runs now or was killed" in output_of("models", "small")
    assert output_of("models", "--remove", "small") == f"Removed {incomplete}.\n"
    assert list((tmp_path / "models").iterdir()) == []
    assert_fails(run("models", "large"), 1, "there is no published model 'large'; the names are small, ")
