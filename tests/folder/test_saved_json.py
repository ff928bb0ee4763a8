"""Errors of the system about files are one sentence that is true."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elmo_hf.folder.saved_json import one_line


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda: Path("none").read_bytes(), "there is no file or folder none."),
        (lambda: Path("none/file").write_bytes(b""), "there is no folder none."),
        (lambda: os.replace("file", "none/file"), "[Errno 2] No such file or directory: 'file' -> 'none/file'"),
    ],
    ids=["a file", "a folder", "one of two"],
)
def test_what_is_missing_is_named(
    act: Callable[[], object], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(FileNotFoundError) as caught:
        act()
    assert one_line(caught.value) == expected
