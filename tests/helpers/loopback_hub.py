"""A Hub on this machine, as much of one as pushing and loading a model needs.

It imitates, as seen from `huggingface_hub` 2.4: repositories with commits, private ones too, and the error codes that
clients act on. Every file is sent inside a commit. Everything is in memory.

It does not imitate large files (git LFS and Xet, which `huggingface_hub` chooses by itself), branches, pull requests,
gated repositories, deletions of folders, pagination, resumed downloads, rate limits or the check of a card's metadata.
Whether the real Hub agrees, only the real Hub can tell.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import ModelCard

TOKEN = "hf_loopback"
NAMESPACE = "org"
Answer = tuple[int, Any, dict[str, str]]


def oid_of(content: bytes) -> str:
    """Git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Commits by their hashes, each the whole content; `main` is the last one."""

    is_private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes]) -> str:
        listing = sorted((path, oid_of(content)) for path, content in files.items())
        oid = hashlib.sha1(f"{len(self.commits)} {listing}".encode()).hexdigest()
        self.commits[oid] = files
        return oid

    def at(self, revision: str = "main") -> tuple[str, dict[str, bytes]]:
        oid = [*self.commits][-1] if revision == "main" else revision
        if oid not in self.commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid, self.commits[oid]


class Refusal(Exception):
    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.status, self.message = status, message
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | headers


class LoopbackHub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}  # by `namespace/name`
        self.private_by_default = False  # where a request does not decide it
        self.asked: list[tuple[str, str]] = []  # method and path of every request
        self.lock = threading.Lock()

    def environment(self) -> dict[str, str]:
        """What a process must have in its environment before it imports `huggingface_hub`."""
        proxies = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return {"HF_ENDPOINT": self.url, "HF_TOKEN": TOKEN, "HF_HUB_OFFLINE": "0"} | proxies

    def add(self, name: str, files: dict[str, bytes], is_private: bool = False) -> Repository:
        repository = self.repositories[name] = Repository(is_private)
        repository.commit(files)
        return repository

    def files(self, name: str) -> dict[str, bytes]:
        return self.repositories[name].at()[1]


class Handler(BaseHTTPRequestHandler):
    server: LoopbackHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_request(self) -> None:
        path, length = urlsplit(self.path).path, int(self.headers.get("Content-Length") or 0)
        self.server.asked.append((self.command, path))
        body = self.rfile.read(length)
        try:
            self.send(*self.answer(path, body))
        except Refusal as refusal:
            self.send(refusal.status, {"error": refusal.message}, refusal.headers)

    do_GET = do_HEAD = do_POST = handle_request

    def answer(self, path: str, body: bytes) -> Answer:
        for method, pattern, route in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method.split():
                with self.server.lock:
                    return route(self, body, *(unquote(group or "") for group in match.groups()))
        raise Refusal(404, f"this Hub has no {self.command} {path}")

    def send(self, status: int, content: Any, headers: dict[str, str]) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def repository(self, name: str, is_written: bool = False) -> Repository:
        """The repository, if whoever asks may do so; a private one is as good as absent to strangers."""
        repository = self.server.repositories.get(name)
        is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if not is_known and (is_written or repository is None or repository.is_private):
            raise Refusal(401, "Invalid username or password.", "RepoNotFound")
        if repository is None:
            raise Refusal(404, "Repository not found", "RepoNotFound")
        return repository

    def create(self, body: bytes) -> Answer:
        request = json.loads(body)
        name = f"{request.get('organization') or NAMESPACE}/{request['name']}"
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "Invalid username or password.")
        if not name.startswith(f"{NAMESPACE}/"):
            raise Refusal(403, f"You don't have the rights to create a model under the namespace of {name}")
        is_new = name not in self.server.repositories
        if is_new:
            default = "private" if self.server.private_by_default else "public"
            is_private = request.get("visibility", default) == "private" or request.get("private") is True
            self.server.add(name, {".gitattributes": b"*.safetensors filter=lfs\n"}, is_private)
        return 200 if is_new else 409, {"url": f"{self.server.url}/{name}"}, {}

    def validate_card(self, body: bytes) -> Answer:
        return 200, {}, {}

    def preupload(self, body: bytes, name: str, revision: str) -> Answer:
        _, present = self.repository(name, is_written=True).at(revision)
        answers = []
        for path in (file["path"] for file in json.loads(body)["files"]):
            oid = oid_of(present[path]) if path in present else None
            answers.append({"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid})
        return 200, {"files": answers}, {}

    def commit(self, body: bytes, name: str, revision: str) -> Answer:
        repository = self.repository(name, is_written=True)
        _, files = repository.at(revision)
        items = [json.loads(line) for line in body.splitlines()]
        added = [item["value"] for item in items if item["key"] == "file"]
        removed = {item["value"]["path"] for item in items if item["key"] == "deletedFile"}
        left = {path: content for path, content in files.items() if path not in removed}
        files = left | {value["path"]: base64.b64decode(value["content"]) for value in added}
        oid = repository.commit(files)
        return 200, {"commitUrl": f"{self.server.url}/{name}/commit/{oid}", "commitOid": oid}, {}

    def info(self, body: bytes, name: str, revision: str = "main") -> Answer:
        repository = self.repository(name)
        oid, files = repository.at(revision)
        metadata = ModelCard(files.get("README.md", b"").decode()).data
        about = {key: metadata.get(key) for key in ("tags", "pipeline_tag", "library_name")}
        siblings = [{"rfilename": path} for path in files]
        return 200, about | {"id": name, "sha": oid, "private": repository.is_private, "siblings": siblings}, {}

    def tree(self, body: bytes, name: str, revision: str, folder: str) -> Answer:
        _, files = self.repository(name).at(revision)
        if folder:  # a model has none
            raise Refusal(404, "Entry not found", "EntryNotFound")
        items = [{"type": "file", "path": path, "size": len(each), "oid": oid_of(each)} for path, each in files.items()]
        return 200, items, {}

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> Answer:
        oid, files = self.repository(name).at(revision)
        if path not in files:
            raise Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": oid})
        return 200, files[path], {"X-Repo-Commit": oid, "ETag": f'"{oid_of(files[path])}"'}


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate_card),
    ("POST", f"/api/models/{NAME}/preupload/([^/]+)", Handler.preupload),
    ("POST", f"/api/models/{NAME}/commit/([^/]+)", Handler.commit),
    ("GET", f"/api/models/{NAME}", Handler.info),
    ("GET", f"/api/models/{NAME}/revision/([^/]+)", Handler.info),
    ("GET", f"/api/models/{NAME}/tree/([^/]+)(/.*)?", Handler.tree),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]


def talk_to(hub: LoopbackHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process, which imported `huggingface_hub` long ago, talks to a loopback Hub and waits between no tries.

    Args:
        hub: the Hub.
        folder: the folder for what is downloaded from it.
        monkeypatch: replaces the constants that have another address.
    """
    constants = {"ENDPOINT": hub.url, "HF_HUB_OFFLINE": False, "HF_TOKEN_PATH": str(folder / "none")}
    constants["HUGGINGFACE_CO_URL_TEMPLATE"] = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    constants["HF_HUB_CACHE"] = str(folder / "cache")
    values = {f"huggingface_hub.constants.{name}": value for name, value in constants.items()}
    values |= {"time.sleep": lambda seconds: None, "transformers.utils.hub._hf_api": None}  # it keeps its address
    for name, value in values.items():
        monkeypatch.setattr(name, value, raising=False)
    for name, value in hub.environment().items():
        monkeypatch.setenv(name, value)
