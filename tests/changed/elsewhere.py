"""What is elsewhere: a Hub whose repositories are files of a case, and a published model whose server is its inputs.

Both are made in the process of a command, and end with it.
"""

import base64
import json
import threading
from pathlib import Path

import pytest

import elmo_hf.conversion.kept_models
import elmo_hf.conversion.published
from elmo_hf.conversion.published import PUBLISHED, Published
from tests.helpers.loopback_hub import LoopbackHub, Repository, oid_of, talk_to

# The published model, and what it is called on the Hub.
TOY, PUBLISHED_TOY = "toy", "org/elmo-toy"
REPOSITORIES = (PUBLISHED_TOY, "org/out")
# In the work of a case: the repositories of the Hub, and what is downloaded.
HUB, CACHE = "hub", "cache"


class StoredRepository(Repository):
    """A repository whose last commit is a file; a commit has the same name whatever was there before it."""

    def __init__(self, file: Path) -> None:
        """Reads the last commit, if there is one."""
        super().__init__(is_private=False)
        self._file = file
        if file.exists():
            stored = json.loads(file.read_text(encoding="utf-8"))
            files = {name: base64.b64decode(content) for name, content in stored["files"].items()}
            self.commits[stored["commit"]] = files

    def commit(self, files: dict[str, bytes]) -> str:
        """Writes the file as a whole, and the process that dies meanwhile leaves the last one."""
        stored = {name: base64.b64encode(content).decode() for name, content in sorted(files.items())}
        oid = oid_of(json.dumps(stored).encode())
        partial = self._file.parents[2] / f"{self._file.name}.partial"
        partial.write_text(json.dumps({"commit": oid, "files": stored}), encoding="utf-8")
        self._file.parent.mkdir(exist_ok=True)
        partial.rename(self._file)
        self.commits.pop(oid, None)  # the last commit is the last in this order
        self.commits[oid] = files
        return oid


class StoredHub(LoopbackHub):
    """A Hub whose repositories are files of a case."""

    def __init__(self, folder: Path) -> None:
        """Reads the repositories in the folder of a case."""
        super().__init__()
        self._folder = folder
        for name in REPOSITORIES:
            if file_of(folder, name).exists():
                self.repositories[name] = StoredRepository(file_of(folder, name))

    def add(self, name: str, files: dict[str, bytes], is_private: bool = False) -> Repository:
        """Makes a repository with one commit."""
        repository = self.repositories[name] = StoredRepository(file_of(self._folder, name))
        repository.commit(files)
        return repository


def file_of(folder: Path, repository: str) -> Path:
    """The file of a repository in the folder of a case."""
    return folder / "work" / HUB / f"{repository.rpartition('/')[2]}.json"


def go_online(folder: Path) -> None:
    """Starts the Hub of a case, to which this process then talks."""
    hub = StoredHub(folder)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    talk_to(hub, folder, pytest.MonkeyPatch())


def publish_toy(folder: Path) -> None:
    """Makes the checkpoint among the inputs of a case a published model, and keeps what is downloaded in its work."""
    server = (folder / "in" / "checkpoint").as_uri()
    PUBLISHED[TOY] = Published(
        f"{server}/options.json", f"{server}/weights.hdf5", language="en", licence="mit", source="https://example.org"
    )
    cache = folder / "work" / CACHE
    elmo_hf.conversion.published.CACHE = cache
    elmo_hf.conversion.kept_models.CACHE = cache
