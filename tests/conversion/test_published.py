"""Downloads of a published checkpoint, from a server on this machine."""

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from checkpoints import FIXTURES

from elmo_hf.conversion import published
from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.published import BASE_URL, PUBLISHED, Published, download

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


def test_both_files_and_a_record_are_kept(server: Server, tmp_path: Path) -> None:
    files = download("small", server.url, tmp_path / "small")
    assert files == AllenNlpFiles(tmp_path / "small" / OPTIONS, tmp_path / "small" / WEIGHTS)
    assert files.options.read_bytes() == (BASE / "options.json").read_bytes()
    assert files.weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    assert sorted(path.name for path in files.options.parent.iterdir()) == sorted(["SHA256SUMS", OPTIONS, WEIGHTS])
    assert server.asked == [f"/elmo/{SMALL}/{OPTIONS}", f"/elmo/{SMALL}/{WEIGHTS}"]


def test_record_is_what_sha256sum_writes(server: Server, tmp_path: Path) -> None:
    files = download("small", server.url, tmp_path)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (files.options, files.weights)]
    record = (tmp_path / "SHA256SUMS").read_text(encoding="utf-8")
    assert record == f"{digests[0]}  {OPTIONS}\n{digests[1]}  {WEIGHTS}\n"


def test_what_was_downloaded_can_be_converted(server: Server, tmp_path: Path) -> None:
    files = download("small", server.url, tmp_path / "small")
    difference = allennlp_to_folder(files, tmp_path / "to", source_name="AllenNLP's small model", check=True)
    assert difference is not None
    assert difference < 1e-5
    digest = hashlib.sha256((BASE / "weights.hdf5").read_bytes()).hexdigest()
    assert f"| `{WEIGHTS}` | `{digest}` |" in (tmp_path / "to" / "README.md").read_text(encoding="utf-8").splitlines()


def test_files_lie_below_hf_home_unless_a_folder_is_given(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "HF_HOME", str(tmp_path / "home"))
    assert download("small", server.url).weights == tmp_path / "home" / "elmo-hf" / "small" / WEIGHTS


def test_a_second_call_fetches_nothing(server: Server, tmp_path: Path) -> None:
    first = download("small", server.url, tmp_path)
    server.asked.clear()
    assert download("small", server.url, tmp_path) == first
    assert server.asked == []


def test_a_call_after_an_interrupted_one_fetches_what_is_missing(server: Server, tmp_path: Path) -> None:
    weights = server.contents.pop(f"/elmo/{SMALL}/{WEIGHTS}")
    with pytest.raises(ConversionError, match="404"):
        download("small", server.url, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [OPTIONS]
    server.contents[f"/elmo/{SMALL}/{WEIGHTS}"] = weights
    server.asked.clear()
    assert download("small", server.url, tmp_path).weights.read_bytes() == weights
    assert server.asked == [f"/elmo/{SMALL}/{WEIGHTS}"]


def test_a_file_that_changed_since_its_download_is_refused(server: Server, tmp_path: Path) -> None:
    files = download("small", server.url, tmp_path / "small")
    files.weights.write_bytes(b"something else")
    message = f"{WEIGHTS} in {tmp_path / 'small'} changed since SHA256SUMS was written; delete the folder"
    with pytest.raises(ConversionError, match="^" + re.escape(message)):
        download("small", server.url, tmp_path / "small")


def test_all_changed_files_are_named(server: Server, tmp_path: Path) -> None:
    files = download("small", server.url, tmp_path)
    for path in (files.options, files.weights):
        path.write_bytes(b"something else")
    with pytest.raises(ConversionError, match="^" + re.escape(f"{OPTIONS}, {WEIGHTS} in ")):
        download("small", server.url, tmp_path)


def test_a_file_that_the_server_lacks_is_named(server: Server, tmp_path: Path) -> None:
    server.contents.clear()
    message = f"cannot download {server.url}{SMALL}/{OPTIONS}: HTTP Error 404: Not Found."
    with pytest.raises(ConversionError, match="^" + re.escape(message)):
        download("small", server.url, tmp_path / "small")
    assert list((tmp_path / "small").iterdir()) == []


@pytest.mark.parametrize("missing_bytes", [1, 400])
def test_a_download_that_breaks_off_is_not_kept(missing_bytes: int, server: Server, tmp_path: Path) -> None:
    server.missing_bytes = missing_bytes
    with pytest.raises(ConversionError, match=r"^cannot download "):
        download("small", server.url, tmp_path / "small")
    assert list((tmp_path / "small").iterdir()) == []


def test_without_a_network_the_error_says_what_to_do(server: Server, tmp_path: Path) -> None:
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(ConversionError) as caught:
        download("small", url, tmp_path)
    assert str(caught.value).startswith(f"cannot download {url}{SMALL}/{OPTIONS}: ")
    assert str(caught.value).endswith(
        "Without a network, download the options and the weights file elsewhere and run "
        "`elmo-hf convert --options FILE --weights FILE DEST`."
    )


def test_an_unknown_name_is_refused_before_anything_is_fetched(server: Server, tmp_path: Path) -> None:
    message = "there is no published model 'large'; known are small, medium, original, 5.5B, pt, pt-wikipedia, "
    with pytest.raises(ConversionError, match=re.escape(message)):
        download("large", server.url, tmp_path / "large")
    assert server.asked == []
    assert list(tmp_path.iterdir()) == []


def test_addresses_are_those_of_allennlps_page_and_of_the_pages_it_links_to() -> None:
    assert BASE_URL == "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
    assert {name: files.weights for name, files in PUBLISHED.items()} == {
        "small": "2x1024_128_2048cnn_1xhighway/elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5",
        "medium": "2x2048_256_2048cnn_1xhighway/elmo_2x2048_256_2048cnn_1xhighway_weights.hdf5",
        "original": "2x4096_512_2048cnn_2xhighway/elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5",
        "5.5B": "2x4096_512_2048cnn_2xhighway_5.5B/elmo_2x4096_512_2048cnn_2xhighway_5.5B_weights.hdf5",
        "pt": "contributed/pt/elmo_pt_weights.hdf5",
        "pt-wikipedia": "contributed/pt/wikipedia/elmo_pt_weights.hdf5",
        "pt-brwac": "contributed/pt/brwac/elmo_pt_weights_dgx1.hdf5",
        "pubmed": "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
        "de": "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model/releases/download/files_1/weights.hdf5",
        "ja": "https://exawizardsallenlp.blob.core.windows.net/data/weights.hdf5",
        "eu": "https://schweter.eu/cloud/eu-elmo/weights.hdf5",
        "ta": "https://schweter.eu/cloud/ta-elmo/weights.hdf5",
    }
    named_alike = [files for name, files in PUBLISHED.items() if name in ("small", "medium", "original", "5.5B", "pt")]
    for files in named_alike:
        assert files.options.replace("_options.json", "_weights.hdf5") == files.weights


def test_files_that_lie_elsewhere_are_fetched_from_there(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {f"/elsewhere/{name}": (BASE / name).read_bytes() for name in ("options.json", "weights.hdf5")}
    server.contents = elsewhere
    address = server.url.replace("/elmo/", "/elsewhere/")
    monkeypatch.setitem(published.PUBLISHED, "far", Published(f"{address}options.json", f"{address}weights.hdf5"))
    assert download("far", server.url, tmp_path).weights.read_bytes() == (BASE / "weights.hdf5").read_bytes()
    assert server.asked == list(elsewhere)
