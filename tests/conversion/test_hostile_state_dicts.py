"""Malicious pickles and files without a state dict: each raises a clear error, runs no code, writes nothing."""

import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import (
    archive_files,
    assert_source_refused,
    golden_state,
    manylangs_files,
    state_bytes,
    write_files,
    write_tar,
)

CASE = "base_2l_relu"
pytestmark = pytest.mark.usefixtures("temporary")


class Code:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
def test_pickles_with_code_are_not_run(form: str, tmp_path: Path) -> None:
    state: Any = golden_state(CASE)
    state["code"] = Code(tmp_path / "marker")
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    message = {
        "plain": "is not a file that torch.save wrote: it begins with b'\\x80\\x04",
    }.get(form, "holds posix.mkdir, which is not a tensor. A pickle can run code, so it is not read.")
    assert_source_refused(write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {"weights.th": content}), message)
    (tmp_path / "alone").mkdir()
    assert_source_refused(write_files(tmp_path / "alone", {"weights.th": content}) / "weights.th", message)
    for name in ("encoder.pkl", "token_embedder.pkl"):
        source = write_files(tmp_path / name / "source", manylangs_files() | {name: content})
        (source.parent / "temporary").mkdir()
        assert_source_refused(source, message)
    assert not (tmp_path / "marker").exists()


def test_whole_modules_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(state_bytes(torch.nn.Linear(2, 3)))
    assert_source_refused(tmp_path / "task.th", "task.th holds torch.nn.modules.linear.Linear, which is not a tensor.")


def torch_tar() -> bytes:
    """The form of files that torch wrote before 0.1.10, which old torch unpacks without care."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:") as archive:
        archive.addfile(tarfile.TarInfo("pickle"))
    return content.getvalue()


def script() -> bytes:
    content = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 3)), content)
    return content.getvalue()


def zip_of(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


NO_STATES = {
    "tar": (torch_tar, "is not a file that torch.save wrote: it begins with b'pick'"),
    "text": (lambda: b"<html>404", "is not a file that torch.save wrote: it begins with b'<htm'"),
    "empty": (lambda: b"", "is not a file that torch.save wrote: it begins with b''"),
    "list": (lambda: state_bytes([torch.ones(2)]), "must hold tensors by name, found list."),
    "nothing": (lambda: state_bytes({}), "must hold tensors by name, found dict."),
    "numbers": (lambda: state_bytes({3: torch.ones(2)}), "must hold tensors by name, found dict."),
    "nested": (lambda: state_bytes({"model": {"w": torch.ones(2)}}), "`model` must be a dense tensor, found dict."),
    "sparse": (lambda: state_bytes({"w": torch.eye(3).to_sparse()}), "`w` must be a dense tensor, found Tensor."),
    "program": (script, "is a TorchScript program, which is code; give its state dict."),
    "compressed": (
        lambda: zip_of({"a/data.pkl": b"x" * 99, "a/version": b"3"}, zipfile.ZIP_DEFLATED),
        "is a compressed zip file; torch.save writes uncompressed ones.",
    ),
    "torn zip": (lambda: zip_of({"a/data.pkl": b"x" * 99})[:-30], "is a damaged zip file, it may be truncated: "),
    "wrong checksum": (
        lambda: zip_of({"a/data.pkl": b"x" * 99}).replace(b"xxx", b"xyx", 1),
        "task.th is damaged: its member a/data.pkl is not what was written. Get it again.",
    ),
    "cut pickle": (lambda: state_bytes({"w": torch.ones(2)})[:18], "task.th cannot be read, it may be truncated: "),
    "no pickle of tensors": (
        lambda: state_bytes({"w": torch.ones(2)})[:21] + b"\x80\x02\xff.",
        "cannot be read, it may be truncated: it is no pickle of tensors alone. Get it again.",
    ),
    "no tensors": (lambda: zip_of({"a/data.pkl": b"x", "a/version": b"3"}), "cannot be read, it may be truncated: "),
    "without end": (
        lambda: state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}),
        "`w` has shape (1048576, 1048576), more numbers than the file holds.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), NO_STATES.values(), ids=NO_STATES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_state_dict_is_refused(content: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(content())
    assert_source_refused(tmp_path / "task.th", message)


def test_weights_that_torch_would_take_for_a_directory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "task.th"
    path.write_bytes(state_bytes({"w": torch.ones(9)}, as_zip=True))
    with zipfile.ZipFile(path, "a") as archive:
        (member,) = [member for member in archive.filelist if member.filename.endswith("/data/0")]
        member.external_attr |= 0x10
        archive.comment = b"written again"
    assert torch.load(path, weights_only=True)["w"].shape == (9,)
    assert_source_refused(
        path, f"task.th is damaged: its member {member.filename} is not what was written. Get it again."
    )
