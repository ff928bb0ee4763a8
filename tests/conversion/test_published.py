"""Downloads of a published checkpoint, from a server on this machine."""

import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from archives import manylangs_files, write_zip
from checkpoints import FIXTURES
from commands import run
from huggingface_hub import ModelCard
from transformers import AutoModelForPreTraining

from elmo_hf.conversion import published
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.published import PUBLISHED, Published, download
from elmo_hf.conversion.refusals import ConversionError

BASE = FIXTURES / "base_2l_relu"
SMALL = "2x1024_128_2048cnn_1xhighway"
OPTIONS, WEIGHTS = f"elmo_{SMALL}_options.json", f"elmo_{SMALL}_weights.hdf5"


class Server(ThreadingHTTPServer):
    """Serves `contents` by path, and remembers what was asked for.

    Attributes:
        contents: bytes by path.
        missing_bytes: how many bytes at the end of each file the server promises and does not send.
        asked: the paths of all requests.
        url: where the paths begin.
    """

    daemon_threads = True

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = contents
        self.missing_bytes = 0
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/elmo/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.contents.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - self.server.missing_bytes])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that has a golden case under the paths of the small model."""
    monkeypatch.setenv("no_proxy", "*")
    files = {OPTIONS: "options.json", WEIGHTS: "weights.hdf5"}
    server = Server({f"/elmo/{SMALL}/{name}": (BASE / ours).read_bytes() for name, ours in files.items()})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_and_a_record_of_their_checksums_are_kept(server: Server, tmp_path: Path) -> None:
    weights, given = download("small", server.url, tmp_path / "small")
    assert (weights, given) == (tmp_path / "small" / WEIGHTS, Given(options=tmp_path / "small" / OPTIONS))
    assert (tmp_path / "small" / OPTIONS).read_bytes() == (BASE / "options.json").read_bytes()
    assert weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    assert sorted(path.name for path in weights.parent.iterdir()) == sorted(["SHA256SUMS", OPTIONS, WEIGHTS])
    assert server.asked == [f"/elmo/{SMALL}/{OPTIONS}", f"/elmo/{SMALL}/{WEIGHTS}"]
    digests = [hashlib.sha256((BASE / name).read_bytes()).hexdigest() for name in ("options.json", "weights.hdf5")]
    record = (tmp_path / "small" / "SHA256SUMS").read_text(encoding="utf-8")
    assert record == f"{digests[0]}  {OPTIONS}\n{digests[1]}  {WEIGHTS}\n"  # as sha256sum writes it
    difference = convert_source(weights, tmp_path / "to", given, check=True)
    assert difference is not None
    assert difference < 1e-5
    assert f"| `{WEIGHTS}` | `{digests[1]}` |" in (tmp_path / "to" / "README.md").read_text().splitlines()


def test_files_lie_below_hf_home_unless_a_folder_is_given(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "HF_HOME", str(tmp_path / "home"))
    assert download("small", server.url)[0] == tmp_path / "home" / "elmo-hf" / "small" / WEIGHTS


def test_a_call_after_an_interrupted_one_fetches_what_is_missing(server: Server, tmp_path: Path) -> None:
    weights = server.contents.pop(f"/elmo/{SMALL}/{WEIGHTS}")
    with pytest.raises(ConversionError, match="404"):
        download("small", server.url, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [OPTIONS]
    server.contents[f"/elmo/{SMALL}/{WEIGHTS}"] = weights
    server.asked.clear()
    assert download("small", server.url, tmp_path)[0].read_bytes() == weights
    assert server.asked == [f"/elmo/{SMALL}/{WEIGHTS}"]
    assert download("small", server.url, tmp_path)[0].read_bytes() == weights
    assert len(server.asked) == 1


def test_files_that_changed_since_their_download_are_named(server: Server, tmp_path: Path) -> None:
    download("small", server.url, tmp_path)
    for name in (OPTIONS, WEIGHTS):
        (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(ConversionError, match=rf"SHA256SUMS .*{OPTIONS}, {WEIGHTS}\. Delete {tmp_path} "):
        download("small", server.url, tmp_path)


@pytest.mark.parametrize("fault", ["no file", "cut", "no network"])
def test_a_download_that_fails_is_named_and_not_kept(fault: str, server: Server, tmp_path: Path) -> None:
    if fault == "no file":
        server.contents.clear()
    elif fault == "cut":
        server.missing_bytes = 1
    else:
        server.shutdown()
        server.server_close()
    with pytest.raises(ConversionError, match=re.escape(f"{server.url}{SMALL}/{OPTIONS}")):
        download("small", server.url, tmp_path / "small")
    assert list((tmp_path / "small").iterdir()) == []


@pytest.mark.parametrize("name", ["large", "embeddia-hr"])
def test_a_name_without_an_address_is_refused_before_anything_is_fetched(
    name: str, server: Server, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=f"--model .*{name}"):
        download(name, server.url, tmp_path / name)
    assert server.asked == []
    assert list(tmp_path.iterdir()) == []


def test_files_that_lie_elsewhere_are_fetched_from_there(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {f"/elsewhere/{name}": (BASE / name).read_bytes() for name in ("options.json", "weights.hdf5")}
    server.contents = elsewhere
    address = server.url.replace("/elmo/", "/elsewhere/")
    monkeypatch.setitem(published.PUBLISHED, "far", Published(f"{address}options.json", f"{address}weights.hdf5"))
    assert download("far", server.url, tmp_path)[0].read_bytes() == (BASE / "weights.hdf5").read_bytes()
    assert server.asked == list(elsewhere)


def test_rows_of_the_table_are_whole() -> None:
    for name, each in PUBLISHED.items():
        assert re.fullmatch(r"[a-z]{2,3}", each.language), name
        assert re.fullmatch(r"(\d+/\d+)?", each.size), name
        assert each.licence in ("no-restrictions", "unknown", "mit", "apache-2.0", "bsd-2-clause"), name
        assert each.text, name
        assert re.fullmatch(r"https?://\S+", each.source), name
        assert each.options == "" or each.weights.endswith((".hdf5", ".index")), name
        assert each.options != "" or each.weights.endswith((".zip", ".tar.gz", "")), name
        assert bool(each.vocabulary) == name.endswith("-lm") == (";" in each.text and "softmax" in each.text), name
    languages = {name: each.language for name, each in PUBLISHED.items() if name.startswith("manylangs-")}
    assert all(name == f"manylangs-{language}" for name, language in languages.items())
    numbers = [int(Path(PUBLISHED[name].weights).stem) for name in languages]
    assert numbers == list(range(136, 180))
    assert (languages["manylangs-en"], PUBLISHED["manylangs-en"].weights[-7:]) == ("en", "144.zip")
    by_hand = [name for name, each in PUBLISHED.items() if not each.weights]
    assert by_hand == [f"embeddia-{language}" for language in ("hr", "et", "fi", "lv", "lt", "sv")]


@pytest.mark.parametrize("kind", ["hdf5", "checkpoint"])
def test_a_model_with_its_softmax_is_fetched_and_scores(
    kind: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FIXTURES / "bilm_tf_lm_tiny"
    names = {"options": "options.json", "weights": "model.ckpt-1.index", "vocabulary": "vocab.txt"}
    if kind == "hdf5":
        given = ("--options", source / "options.json", "--weights", source / "model.ckpt-1.index")
        assert run("convert", *given, "--vocabulary", source / "vocab.txt", tmp_path / "hub").exit_code == 0
        source = tmp_path / "back"
        assert run("convert", tmp_path / "hub", source, "--to", "allennlp").exit_code == 0
        names |= {"weights": "weights.hdf5", "softmax": "softmax.hdf5"}
    server.contents = {f"/lm/{path.name}": path.read_bytes() for path in source.iterdir()}
    address = server.url.replace("/elmo/", "/lm/")
    published_lm = Published(**{role: address + name for role, name in names.items()}, language="en")
    monkeypatch.setitem(published.PUBLISHED, "small-lm", published_lm)
    monkeypatch.setattr(published, "HF_HOME", str(tmp_path / "home"))
    result = run("convert", "--model", "small-lm", tmp_path / "lm")
    assert result.exit_code == 0, result.output
    lm = AutoModelForPreTraining.from_pretrained(tmp_path / "lm")
    assert lm.config.num_softmax_words == len((source / "vocab.txt").read_text(encoding="utf-8").split())
    assert len(server.asked) == len(names) + (kind == "checkpoint")


def test_an_archive_is_fetched_and_converted_with_its_labels(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_zip(tmp_path / "144.zip", manylangs_files())
    server.contents = {"/11/144.zip": (tmp_path / "144.zip").read_bytes()}
    row = replace(PUBLISHED["manylangs-en"], weights=server.url.replace("/elmo/", "/11/") + "144.zip")
    monkeypatch.setitem(published.PUBLISHED, "manylangs-en", row)
    monkeypatch.setattr(published, "HF_HOME", str(tmp_path / "home"))
    result = run("convert", "--model", "manylangs-en", tmp_path / "en", "--check", "--license", "apache-2.0")
    assert result.exit_code == 0, result.output
    data = ModelCard.load(tmp_path / "en" / "README.md").data
    assert (data.license, data.language) == ("apache-2.0", ["en"])
    assert "https://github.com/HIT-SCIR/ELMoForManyLangs" in (tmp_path / "en" / "README.md").read_text(encoding="utf-8")
    kept = tmp_path / "home" / "elmo-hf" / "manylangs-en"
    assert sorted(path.name for path in kept.iterdir()) == ["144.zip", "SHA256SUMS"]
    server.contents.clear()
    (kept / "144.zip").unlink()
    with pytest.raises(ConversionError, match=r"144\.zip"):
        download("manylangs-en")


def test_the_command_lists_every_model() -> None:
    header, *lines = run("models").stdout.splitlines()
    assert header.split() == ["name", "language", "size", "licence", "trained", "on", "source"]
    assert [line.split()[0] for line in lines] == list(PUBLISHED)
    original, pt, hr = (
        next(line for line in lines if line.startswith(f"{n} ")) for n in ("original", "pt", "embeddia-hr")
    )
    assert original.split()[1:4] == ["en", "4096/512", "no-restrictions"]
    assert pt.split()[1:] == ["pt", "-", "unknown", "Wikipedia", "https://github.com/allenai/allennlp/issues/2025"]
    assert hr.endswith("https://www.clarin.si/repository/xmlui/handle/11356/1277 (by hand)")


def test_the_name_of_a_file_ends_before_the_query_of_its_address(tmp_path: Path) -> None:
    (tmp_path / "weights.hdf5").write_bytes(b"x")
    assert published.fetch("https://nowhere.invalid/a/weights.hdf5?download=1", tmp_path) == tmp_path / "weights.hdf5"
