"""A Hub on this machine, as much of one as pushing and loading a model needs.

It imitates, as seen from `huggingface_hub` 2.4 with `HF_HUB_DISABLE_XET=1`: repositories with branches and commits;
small files sent inside a commit (git), large ones before it to a store by their SHA-256 (git LFS), read back through a
redirect to another host; private repositories; and the error codes that clients act on. Everything is in memory.

It does not imitate Xet (the real Hub's own way for large files), uploads in parts, pull requests, gated repositories,
deletions, pagination, resumed downloads or rate limits; and of a card's metadata it checks only that it is a YAML
mapping. Whether the real Hub agrees, only the real Hub can tell.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

TOKEN = "hf_loopback"
NAMESPACE = "org"
LFS_SUFFIXES = (".safetensors", ".bin")
Answer = tuple[int, Any, dict[str, str]]


@dataclass(frozen=True)
class StoredFile:
    """One file of a commit."""

    content: bytes
    is_lfs: bool

    @property
    def oid(self) -> str:
        """The SHA-256 of an LFS file, git's SHA-1 of any other."""
        if self.is_lfs:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class Repository:
    """Commits by their hashes, each the whole content, and the newest of each branch."""

    is_private: bool
    commits: dict[str, dict[str, StoredFile]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, StoredFile]) -> str:
        """Makes `files` the content of the branch and returns the commit's hash."""
        listing = sorted((path, file.oid) for path, file in files.items())
        oid = hashlib.sha1(f"{len(self.commits)} {listing}".encode()).hexdigest()
        self.commits[oid] = files
        self.branches[branch] = oid
        return oid

    def resolve(self, revision: str) -> str:
        """The commit that a branch or a hash names."""
        oid = self.branches.get(revision, revision)
        if oid not in self.commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid


class Refusal(Exception):
    """An error answer."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        self.status, self.message = status, message
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | headers


class LoopbackHub(ThreadingHTTPServer):
    """The server.

    Attributes:
        repositories: by `namespace/name`.
        lfs: the store of large files, by their SHA-256.
        private_by_default: whether a repository is private whose request does not decide it.
        asked: method and path of every request.
        url: the endpoint.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.private_by_default = False
        self.asked: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        # A redirect to another host is not followed blindly, and no token goes there.
        self.store_url = f"http://localhost:{self.server_port}/lfs"

    def environment(self, token: str = TOKEN) -> dict[str, str]:
        """What a process must have in its environment before it imports `huggingface_hub`."""
        here = {"HF_ENDPOINT": self.url, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
        return here | {"HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """The content of a repository."""
        repository = self.repositories[name]
        return {path: file.content for path, file in repository.commits[repository.resolve(revision)].items()}


class Handler(BaseHTTPRequestHandler):
    """Finds the route of a request and answers it."""

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

    do_GET = do_HEAD = do_POST = do_PUT = handle_request

    def answer(self, path: str, body: bytes) -> Answer:
        for method, pattern, route in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method.split():
                with self.server.lock:
                    return route(self, body, *(unquote(group or "") for group in match.groups()))
        raise Refusal(404, f"this Hub has no {self.command} {path}")

    def send(self, status: int, content: Any, headers: dict[str, str]) -> None:
        """Sends bytes as they are and anything else as JSON."""
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
            repository = Repository(request.get("visibility", default) == "private" or request.get("private") is True)
            repository.commit("main", {".gitattributes": StoredFile(b"*.safetensors filter=lfs\n", False)})
            self.server.repositories[name] = repository
        return 200 if is_new else 409, {"url": f"{self.server.url}/{name}"}, {}

    def validate_card(self, body: bytes) -> Answer:
        try:
            card_metadata(json.loads(body)["content"])
        except (yaml.YAMLError, ValueError) as error:
            return 400, {"errors": [{"message": str(error)}]}, {}
        return 200, {}, {}

    def preupload(self, body: bytes, name: str, revision: str) -> Answer:
        repository = self.repository(name, is_written=True)
        present = repository.commits[repository.resolve(revision)]
        answers = []
        for path in (file["path"] for file in json.loads(body)["files"]):
            mode = "lfs" if path.endswith(LFS_SUFFIXES) else "regular"
            oid = present[path].oid if path in present else None
            answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return 200, {"files": answers}, {}

    def lfs_batch(self, body: bytes, name: str) -> Answer:
        self.repository(name, is_written=True)
        objects = json.loads(body)["objects"]
        for wanted in (wanted for wanted in objects if wanted["oid"] not in self.server.lfs):
            href = f"{self.server.store_url}/{wanted['oid']}"
            wanted["actions"] = {"upload": {"href": href, "header": {}}}
        return 200, {"objects": objects}, {}

    def store(self, body: bytes, oid: str) -> Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "the content has another SHA-256")
        self.server.lfs[oid] = body
        return 200, {}, {}

    def read_store(self, body: bytes, oid: str) -> Answer:
        return 200, self.server.lfs[oid], {}

    def commit(self, body: bytes, name: str, revision: str) -> Answer:
        repository = self.repository(name, is_written=True)
        files = dict(repository.commits[repository.resolve(revision)])
        for item in map(json.loads, body.splitlines()):
            value = item["value"]
            if item["key"] == "file":
                files[value["path"]] = StoredFile(base64.b64decode(value["content"]), is_lfs=False)
            elif item["key"] == "lfsFile":
                if value["oid"] not in self.server.lfs:
                    raise Refusal(400, f"LFS file {value['path']} was not uploaded")
                files[value["path"]] = StoredFile(self.server.lfs[value["oid"]], is_lfs=True)
        oid = repository.commit(revision, files)
        return 200, {"commitUrl": f"{self.server.url}/{name}/commit/{oid}", "commitOid": oid}, {}

    def info(self, body: bytes, name: str, revision: str = "main") -> Answer:
        repository = self.repository(name)
        oid = repository.resolve(revision)
        files = repository.commits[oid]
        metadata = card_metadata(files["README.md"].content.decode()) if "README.md" in files else {}
        about = {key: metadata.get(key) for key in ("tags", "pipeline_tag", "library_name")}
        siblings = [{"rfilename": path} for path in files]
        return 200, about | {"id": name, "sha": oid, "private": repository.is_private, "siblings": siblings}, {}

    def tree(self, body: bytes, name: str, revision: str, folder: str) -> Answer:
        repository = self.repository(name)
        files = repository.commits[repository.resolve(revision)]
        prefix = folder.strip("/") + "/" if folder else ""
        found = {path: file for path, file in files.items() if path.startswith(prefix)}
        if not found:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        items = [{"type": "file", "path": path, "size": len(f.content), "oid": f.oid} for path, f in found.items()]
        return 200, items, {}

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> Answer:
        repository = self.repository(name)
        oid = repository.resolve(revision)
        file = repository.commits[oid].get(path)
        if file is None:
            raise Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": oid})
        headers = {"X-Repo-Commit": oid, "ETag": f'"{file.oid}"'}
        if not file.is_lfs:
            return 200, file.content, headers
        headers |= {"X-Linked-Etag": f'"{file.oid}"', "X-Linked-Size": str(len(file.content))}
        return 302, b"", headers | {"Location": f"{self.server.store_url}/{file.oid}"}


def card_metadata(card: str) -> dict[str, Any]:
    """The YAML between the two lines of dashes; empty where there is none."""
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    metadata = yaml.safe_load(match.group(1)) if match else {}
    if not isinstance(metadata, dict):
        raise ValueError("the metadata of README.md must be a mapping")
    return metadata


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES: list[tuple[str, str, Callable[..., Answer]]] = [
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate_card),
    ("POST", f"/api/models/{NAME}/preupload/([^/]+)", Handler.preupload),
    ("POST", f"/{NAME}.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("PUT", r"/lfs/(\w+)", Handler.store),
    ("GET HEAD", r"/lfs/(\w+)", Handler.read_store),
    ("POST", f"/api/models/{NAME}/commit/([^/]+)", Handler.commit),
    ("GET", f"/api/models/{NAME}", Handler.info),
    ("GET", f"/api/models/{NAME}/revision/([^/]+)", Handler.info),
    ("GET", f"/api/models/{NAME}/tree/([^/]+)(/.*)?", Handler.tree),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
]
