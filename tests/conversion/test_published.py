"""Downloads of a published checkpoint, from a server on this machine."""

import gzip
import hashlib
import io
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest

from elmo_hf.conversion import published as published_module
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.publish import COLUMNS, convert_published, publish_model
from elmo_hf.conversion.published import (
    CACHE,
    PUBLISHED,
    DownloadOptions,
    Files,
    Published,
    SecureRedirects,
    fetch,
    find_download,
    name_of,
    reachable,
)
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.archives import write_tar, write_zip
from tests.helpers.checkpoints import BASE, TINY_LM, bits
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.file_server import FAULTS, LARGE, TOO_LARGE, UNANNOUNCED, FileServer, serving
from tests.helpers.language_models import state_of
from tests.helpers.loopback_hub import LoopbackHub

SMALL = "2x1024_128_2048cnn_1xhighway"
LICENCES = ("mit", "apache-2.0", "bsd-2-clause", "lgpl-3.0", "cc-by-4.0")
SIZE_OF_BASE = "32/8"
OPTIONS, WEIGHTS = f"elmo_{SMALL}_options.json", f"elmo_{SMALL}_weights.hdf5"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that has a golden case under the paths of the small model."""
    monkeypatch.setenv("no_proxy", "*")
    files = {OPTIONS: "options.json", WEIGHTS: "weights.hdf5"}
    with serving({f"/elmo/{SMALL}/{name}": (BASE / ours).read_bytes() for name, ours in files.items()}) as server:
        yield server


def download(
    name: str,
    base_url: str | None = None,
    folder: Path | None = None,
    published: Mapping[str, Published] = PUBLISHED,
    origin: str | None = None,
) -> Files:
    """Downloads whatever the server has, without reading it."""
    return published_module.download(
        name, lambda row, files: None, DownloadOptions(base_url, folder, published, origin)
    )


def test_files_and_a_record_of_their_checksums_are_kept(server: FileServer, tmp_path: Path) -> None:
    folder = tmp_path / "small"
    weights, given = download("small", server.url, folder)
    assert (weights, given) == (folder / WEIGHTS, {"options": folder / OPTIONS})
    assert server.asked == [f"/elmo/{SMALL}/{OPTIONS}", f"/elmo/{SMALL}/{WEIGHTS}"]
    digests = [hashlib.sha256((BASE / name).read_bytes()).hexdigest() for name in ("options.json", "weights.hdf5")]
    record = (folder / "SHA256SUMS").read_text(encoding="utf-8")
    assert record == f"{digests[0]}  {OPTIONS}\n{digests[1]}  {WEIGHTS}\n"  # as sha256sum writes it
    assert weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    for left in (tmp_path / ".small.lock", folder / f".{WEIGHTS}.lock"):  # by a process that was killed at the end
        left.touch()
    assert download("small", server.url, folder)[0] == weights
    assert fetch([server.url + WEIGHTS], weights) == weights
    assert [*tmp_path.rglob(".*")] == []
    assert len(server.asked) == 2
    weights.write_bytes(b"something else")
    with pytest.raises(ConversionError, match=f"SHA256SUMS lists. .* delete there SHA256SUMS, {OPTIONS}, {WEIGHTS}"):
        download("small", server.url, folder)
    for name in ("SHA256SUMS", OPTIONS, WEIGHTS):
        (folder / name).unlink()
    assert download("small", server.url, folder)[0].read_bytes() == (BASE / "weights.hdf5").read_bytes()


def test_a_download_of_which_a_file_is_missing_leaves_nothing_and_the_same_call_works_later(
    server: FileServer, tmp_path: Path
) -> None:
    folder = tmp_path / "small"
    weights = server.contents.pop(f"/elmo/{SMALL}/{WEIGHTS}")
    with pytest.raises(ConversionError) as refusal:
        download("small", server.url, folder)
    assert all(text in str(refusal.value) for text in ("404", PUBLISHED["small"].source, "as `origin`"))
    assert list(tmp_path.iterdir()) == []
    server.contents[f"/elmo/{SMALL}/{WEIGHTS}"] = weights
    assert download("small", server.url, folder)[0].read_bytes() == weights


def test_files_of_a_process_that_was_killed_are_not_taken_for_those_of_the_server(
    server: FileServer, tmp_path: Path
) -> None:
    folder, partial = tmp_path / "small", tmp_path / ".small.partial"
    partial.mkdir()
    for name in (OPTIONS, "model.ckpt.index"):
        (partial / name).write_bytes(b"half")
    assert download("small", server.url, folder)[1]["options"].read_bytes() == (BASE / "options.json").read_bytes()
    assert {path.name for path in folder.iterdir()} == {OPTIONS, WEIGHTS, "SHA256SUMS"}
    assert [*tmp_path.iterdir()] == [folder]


def refuse_half(row: Published, files: Files) -> None:
    """Reads files as the conversion does, which refuses b"half"."""
    if files[0].read_bytes() == b"half":
        raise ConversionError(f"{files[0]} is half.")


def test_a_folder_of_the_user_gets_what_it_lacks_and_loses_nothing(server: FileServer, tmp_path: Path) -> None:
    options = DownloadOptions(server.url, tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"of mine")
    (tmp_path / OPTIONS).write_bytes(b"copied by hand")
    (tmp_path / "SHA256SUMS").write_text("0  notes.txt\n", encoding="utf-8")
    mine = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    weights = server.contents[f"/elmo/{SMALL}/{WEIGHTS}"]
    server.contents[f"/elmo/{SMALL}/{WEIGHTS}"] = b"half"
    with pytest.raises(ConversionError, match=f"what a server sent for .* nothing was kept: {WEIGHTS} is half"):
        published_module.download("small", refuse_half, options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == mine
    server.contents[f"/elmo/{SMALL}/{WEIGHTS}"] = weights
    published_module.download("small", refuse_half, options)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == mine | {WEIGHTS: weights}
    assert server.asked == [f"/elmo/{SMALL}/{WEIGHTS}"] * 2


def test_files_that_were_copied_by_hand_need_no_network_and_stay_if_they_are_not_the_model(tmp_path: Path) -> None:
    options = DownloadOptions("http://127.0.0.1:1/", tmp_path)
    for name in (OPTIONS, WEIGHTS):
        (tmp_path / name).write_bytes(b"whole")
    files = published_module.download("small", refuse_half, options)
    assert files == (tmp_path / WEIGHTS, {"options": tmp_path / OPTIONS})
    (tmp_path / WEIGHTS).write_bytes(b"half")
    with pytest.raises(ConversionError, match=f"{WEIGHTS} in {tmp_path}, which were copied there, .* Remove them"):
        published_module.download("small", refuse_half, options)
    assert (tmp_path / WEIGHTS).read_bytes() == b"half"


def test_downloads_from_another_address_have_a_folder_of_their_own() -> None:
    def folder_of(origin: str | None) -> Path:
        return find_download("small", DownloadOptions(origin=origin)).folder

    origins = (None, "https://a.org/files", "https://b.org/files")
    assert folder_of(None) == CACHE / "small"
    assert len({folder_of(origin) for origin in origins}) == 3
    assert {folder_of(origin).parent for origin in origins} == {CACHE}
    assert folder_of("files") == CACHE / "small"  # the record of checksums of the user's own files


@pytest.mark.parametrize("fault", FAULTS)
def test_a_download_that_fails_is_named_and_not_kept(fault: str, server: FileServer, tmp_path: Path) -> None:
    server.fault = fault
    if fault == "no network":
        server.stop()
    with pytest.raises(ConversionError, match=re.escape(f"{server.url}{SMALL}/{OPTIONS}")):
        fetch([f"{server.url}{SMALL}/{OPTIONS}"], tmp_path / OPTIONS, seconds=0.5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", ["", UNANNOUNCED], ids=["announced", "unannounced"])
def test_a_file_that_is_larger_than_any_checkpoint_is_not_taken(fault: str, server: FileServer, tmp_path: Path) -> None:
    url, path = f"{server.url}{SMALL}/{OPTIONS}", tmp_path / OPTIONS
    size = len(server.contents[f"/elmo/{SMALL}/{OPTIONS}"])
    server.fault = fault
    with pytest.raises(ConversionError, match=rf"it must send at most {size - 2:,} bytes, but sends [\d,]+ or more"):
        fetch([url], path, most_bytes=size - 2)
    assert list(tmp_path.iterdir()) == []
    assert fetch([url], path, most_bytes=size).stat().st_size == size


def test_a_file_of_which_a_server_announces_too_large_a_size_is_refused_before_the_download(
    server: FileServer, tmp_path: Path
) -> None:
    server.fault = TOO_LARGE
    with pytest.raises(ConversionError, match=rf"but sends {LARGE:,} or more"):
        fetch([f"{server.url}{SMALL}/{OPTIONS}"], tmp_path / OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_each_address_that_fails_is_named_once_and_the_advice_comes_last(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    urls = [f"{server.url}first.json", f"{server.url}second.json"]
    with pytest.raises(ConversionError, match=r" Look elsewhere\.$") as refusal:
        fetch(urls, tmp_path / OPTIONS, "Look elsewhere.")
    printed = capsys.readouterr().err + str(refusal.value)
    assert [printed.count(text) for text in (*urls, "404")] == [1, 1, 2]


ELSEWHERE = "https://example.org/options.json"


def test_offline_only_addresses_of_this_machine_are_asked(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / OPTIONS
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConversionError, match=f"^HF_HUB_OFFLINE is set, so nothing .* Look elsewhere. The file is at {ELSEWHERE}$"
    ):
        fetch([ELSEWHERE], path, "Look elsewhere.")
    assert not path.exists()
    fetch([ELSEWHERE, f"{server.url}{SMALL}/{OPTIONS}"], path)
    assert path.read_bytes() == (BASE / "options.json").read_bytes()
    assert fetch([ELSEWHERE], path) == path
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert reachable([ELSEWHERE, server.url]) == [ELSEWHERE, server.url]


@pytest.mark.parametrize("origin", [[], ["--from", "https://example.org/files"]])
def test_offline_a_conversion_by_name_downloads_nothing(
    origin: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(published_module, "CACHE", tmp_path / "cache")
    monkeypatch.delenv("ELMO_HF_BASE_URL", raising=False)
    result = run("convert", "--model", "small", tmp_path / "small", *origin)
    assert_fails(result, 1, "HF_HUB_OFFLINE is set, so nothing is downloaded; unset it where there is a network.")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_a_server_may_call_a_packed_file_an_encoding(server: FileServer, tmp_path: Path) -> None:
    server.contents["/elmo/a.tar.gz"] = b"archive"
    server.fault = "gzip"  # the server packs it and says so
    assert gzip.decompress(fetch([f"{server.url}a.tar.gz"], tmp_path / "a.tar.gz").read_bytes()) == b"archive"


def test_no_redirect_leaves_https() -> None:
    def follow(begin: str, end: str) -> str | None:
        request = SecureRedirects().redirect_request(Request(begin), io.BytesIO(), 302, "Found", {}, end)
        return request and request.full_url

    assert [follow(f"{begin}://a/x", "https://b/x") for begin in ("http", "https")] == ["https://b/x"] * 2
    assert follow("http://a/x", "http://b/x") == "http://b/x"
    with pytest.raises(URLError, match="without encryption"):
        follow("https://a/x", "http://b/x")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("large", "there is no published model 'large'; the names are small, "),
        ("orignal", r"there is no published model 'orignal'; .* more\. Did you mean `original`\?$"),
        ("embeddia-hr", "model embeddia-hr has no known address, .* `origin`"),
    ],
)
def test_a_name_without_an_address_is_refused_before_anything_is_fetched(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=text):
        download(name, folder=tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_files_come_from_their_mirrors_or_from_another_address(server: FileServer, tmp_path: Path) -> None:
    row = Published("none.json mirror/options.json", "none/w.hdf5 mirror/weights.hdf5 none.hdf5")
    server.contents = {f"/elmo/mirror/{name}": (BASE / name).read_bytes() for name in ("options.json", "weights.hdf5")}
    weights, given = download("a", server.url, tmp_path / "mirror", {"a": row})
    assert (weights.name, given["options"].name) == ("w.hdf5", "none.json")
    assert weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    assert len(server.asked) == 4
    row = Published("far/options.json", "far/weights.hdf5 far/other.hdf5")
    weights, _ = download("a", "http://127.0.0.1:1/", tmp_path / "moved", {"a": row}, f"{server.url}mirror")
    assert weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    server.contents = {"/elmo/copy.zip": b"archive"}
    for number, archive in enumerate(("far/a.zip", "")):
        address, folder = f"{server.url}copy.zip?download=1", tmp_path / str(number)
        weights, _ = download("a", folder=folder, published={"a": Published("", archive)}, origin=address)
        assert (weights.name, weights.read_bytes()) == ("copy.zip" if not archive else "a.zip", b"archive")


def md5_of(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["options.json", "weights.hdf5"])
@pytest.mark.parametrize("place", ["server", "address", "copied", "downloaded", "folder", "renamed", "zip", "tgz"])
def test_files_with_another_md5_than_the_published_one_are_refused_wherever_they_are(
    place: str, name: str, server: FileServer, tmp_path: Path
) -> None:
    right = {file: md5_of(BASE / file) for file in ("options.json", "weights.hdf5")}
    row = Published(f"{SMALL}/{OPTIONS}", f"{SMALL}/{WEIGHTS}", language="zxx", licence="mit", source="https://a.org")
    table = {"a": replace(row, md5=" ".join(right.values()))}
    files = {f"inner/{file}": (BASE / file).read_bytes() for file in right}
    folder = tmp_path / "files"
    options = DownloadOptions(server.url, folder, table)
    match place:
        case "address":
            options = replace(options, base_url="http://127.0.0.1:1/", origin=f"{server.url}{SMALL}")
        case "copied":
            copy_as_published(folder)
        case "downloaded":
            published_module.download("a", lambda row, files: None, options)
        case "folder":
            copy_as_published(tmp_path / "own")
            options = replace(options, origin=str(tmp_path / "own"))
        case "renamed":
            options = replace(options, origin=str(BASE))
        case "zip":
            options = replace(options, origin=str(write_zip(tmp_path / "a.zip", files)))
        case "tgz":
            options = replace(options, origin=str(write_tar(tmp_path / "a.tar.gz", files)))
    wrong = hashlib.md5(b"another").hexdigest()
    other = replace(options, published={"a": replace(row, md5=" ".join((right | {name: wrong}).values()))})
    fault = f"with the MD5 {wrong}, but what was read has .*{right[name]}"
    with pytest.raises(ConversionError, match=fault) as refusal:
        convert_published("a", tmp_path / "converted", download_options=other)
    is_local = place in ("folder", "renamed", "zip", "tgz")
    assert ("If you mean this model, convert it without" in str(refusal.value)) == is_local
    assert not (tmp_path / "converted").exists()
    convert_published("a", tmp_path / "converted", download_options=options)


def copy_as_published(folder: Path) -> None:
    """Copies a golden case under the names of the small model's files."""
    folder.mkdir()
    shutil.copy(BASE / "options.json", folder / OPTIONS)
    shutil.copy(BASE / "weights.hdf5", folder / WEIGHTS)


@pytest.mark.parametrize("record", ["downloads", "own"])
def test_the_users_files_must_have_the_recorded_checksums(record: str, server: FileServer, tmp_path: Path) -> None:
    downloads, own = tmp_path / "downloads", tmp_path / "own"
    download("small", server.url, downloads)
    shutil.copytree(downloads, own)
    (own / "SHA256SUMS").unlink()
    if record == "own":
        (downloads / "SHA256SUMS").rename(own / "SHA256SUMS")
    assert download("small", folder=downloads, origin=str(own)) == (own / WEIGHTS, {"options": own / OPTIONS})
    (own / OPTIONS).rename(own / "options.json")
    assert download("small", folder=downloads, origin=str(own)) == (own, {})
    assert download("small", folder=downloads, origin=str(own / WEIGHTS)) == (own / WEIGHTS, {})
    (own / WEIGHTS).write_bytes(b"something else")
    for origin in (own, own / WEIGHTS):
        with pytest.raises(ConversionError, match=f"{WEIGHTS} .*SHA256SUMS"):
            download("small", folder=downloads, origin=str(origin))


def test_rows_of_the_table_are_whole_and_the_command_lists_them() -> None:
    for name, each in PUBLISHED.items():
        assert re.fullmatch(r"[a-z]{2,3} (\d+/\d+)?", f"{each.language} {each.size}"), name
        assert each.licence in ("no-restrictions", "unknown", *LICENCES), name
        assert each.text, name
        assert re.fullmatch(r"https?://\S+", each.source), name
        endings = (".hdf5", ".index") if each.options else (".zip", ".tar.gz")
        assert all(name_of(url).endswith(endings) for url in each.addresses.get("weights", [])), name
        assert re.fullmatch(r"([0-9a-f]{32} ?)*", each.md5), name
        assert len(each.md5.split()) in (0, len(each.addresses)), name
        assert bool(each.vocabulary) == name.endswith("-lm") == (";" in each.text and "softmax" in each.text), name
    languages = {name: each.language for name, each in PUBLISHED.items() if name.startswith("manylangs-")}
    assert all(name == f"manylangs-{language}" for name, language in languages.items())
    numbers = [int(Path(PUBLISHED[name].weights).stem) for name in languages]
    assert numbers == list(range(136, 180))
    assert (languages["manylangs-en"], PUBLISHED["manylangs-en"].weights[-7:]) == ("en", "144.zip")
    by_hand = [name for name, each in PUBLISHED.items() if not each.weights]
    embeddia = [f"embeddia-{language}" for language in ("hr", "et", "fi", "lv", "lt", "sv")]
    assert by_hand == ["bioelmo", *(f"nlpl-{number}" for number in (210, 211, 217, 218)), *embeddia]
    lines = {line.split()[0]: line for line in output_of("models").splitlines()[1:-1]}
    assert [*lines] == [*PUBLISHED]
    assert [name for name in lines if "by hand" in lines[name]] == by_hand


@pytest.mark.parametrize("weights", ["weights.hdf5", "model.ckpt-1.index"])
def test_a_model_with_its_softmax_is_fetched_from_elsewhere(
    weights: str, tiny_lm_folder: Path, server: FileServer, tmp_path: Path
) -> None:
    source, names = TINY_LM, {"options": "options.json", "vocabulary": "vocab.txt", "weights": weights}
    if weights == "weights.hdf5":
        source, names["softmax"] = tmp_path / "back", "softmax.hdf5"
        folder_to_allennlp(tiny_lm_folder, source)
    server.contents = {f"/lm/{path.name}": path.read_bytes() for path in source.iterdir()}
    addresses = {role: f"{server.url}{name}?download=1".replace("/elmo/", "/lm/") for role, name in names.items()}
    addresses["weights"] = addresses["weights"].replace(".index?download=1", ".index")
    found, given = download("a-lm", server.url, tmp_path / "files", {"a-lm": Published(**addresses)})
    assert {name: path.name for name, path in given.items()} | {"weights": found.name} == names
    assert len(server.asked) == len(names) + (source == TINY_LM)
    convert_source(found, tmp_path / "lm", NamedFiles(**given))
    assert bits(state_of(tmp_path / "lm")) == bits(state_of(tiny_lm_folder))


def test_published_models_go_to_the_hub_and_another_run_goes_on(
    server: FileServer, online: LoopbackHub, tmp_path: Path
) -> None:
    names = ("small", "medium", "large")
    table = {name: replace(PUBLISHED[name], size=SIZE_OF_BASE) for name in ("small", "medium")}

    def outcomes() -> list[list[str]]:
        server.asked.clear()
        sources = (DownloadOptions(server.url, tmp_path / "files" / name, table) for name in names)
        pairs = zip(names, sources, strict=True)
        found = [publish_model(name, "org", tmp_path, download_options=source) for name, source in pairs]
        assert [list(each) for each in found] == [[*COLUMNS]] * 3
        return [[*each.values()] for each in found]

    small, medium, large = outcomes()
    commit, files = online.repositories["org/elmo-small"].at()
    assert [*small[:2], *small[3:]] == ["small", "now", commit, "-"]
    assert float(small[2]) < 1e-5
    card = files["README.md"].decode()
    assert all(text in card for text in ("the small English model", '"org/elmo-small", trust', "license: other"))
    assert files["model.safetensors"] == (tmp_path / "elmo-small" / "model.safetensors").read_bytes()
    assert medium[:4] == ["medium", "-", "-", "-"]
    assert "404" in medium[4]
    assert [*large[:4], large[4][:35]] == ["large", "-", "-", "-", "there is no published model 'large'"]
    for path, content in [*server.contents.items()]:
        server.contents[path.replace("2x1024_128", "2x2048_256")] = content
    small, medium, _ = outcomes()
    assert small == ["small", "-", "-", "before", "-"]
    assert medium[1::2] == ["now", online.repositories["org/elmo-medium"].at()[0]]
    assert len(server.asked) == 2
    del online.repositories["org/elmo-medium"]  # as if the push had broken off
    assert outcomes()[1] == ["medium", "before", "-", online.repositories["org/elmo-medium"].at()[0], "-"]
    assert server.asked == []
    (tmp_path / "elmo-medium" / "tokenizer.json").unlink()
    pushed = dict(online.repositories.pop("org/elmo-medium").at()[1])
    error = outcomes()[1][4]
    assert error.startswith(f"{tmp_path / 'elmo-medium'} is not as it was converted: tokenizer.json is ")
    (tmp_path / "elmo-medium" / "SHA256SUMS").unlink()
    assert "SHA256SUMS is missing. Delete the folder to convert the model again" in outcomes()[1][4]
    assert "org/elmo-medium" not in online.repositories
    shutil.rmtree(tmp_path / "elmo-medium")
    assert outcomes()[1][1] == "now"
    assert online.repositories["org/elmo-medium"].at()[1] == pushed
