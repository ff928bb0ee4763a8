"""Malicious pickles and files without a state dict: each raises a clear error, runs no code, writes nothing."""

import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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

from elmo_hf.conversion.readers.state_dicts import read_state_dict

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
    message = "is not a state dict that torch.save wrote"
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
    assert_source_refused(tmp_path / "task.th", "it holds torch.nn.modules.linear.Linear")


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


def pickled(operations: bytes) -> bytes:
    return zip_of({"a/data.pkl": b"\x80\x02" + operations, "a/data/0": bytes(16)})


def tensor(
    kind: str = "torch.FloatStorage",
    key: str = "0",
    count: int = 4,
    start: int = 0,
    shape: tuple[int, ...] = (2, 2),
    strides: tuple[int, ...] = (2, 1),
) -> Callable[[], bytes]:
    """A state dict of one tensor of four numbers, described in any way."""

    def make() -> bytes:
        module, _, name = kind.rpartition(".")
        storage = b"(U\x07storagec%b\n%b\nU\x01%bU\x03cpuK%ctQ" % (module.encode(), name.encode(), key.encode(), count)
        lengths = [b"(%bt" % b"".join(b"J" + struct.pack("<i", size) for size in sizes) for sizes in (shape, strides)]
        place = b"K%c%b%b" % (start, *lengths)
        return pickled(b"}U\x01wctorch._utils\n_rebuild_tensor_v2\n(%b%b%b}tRs." % (storage, place, b"\x89"))

    return make


def flipped(content: bytes) -> bytes:
    """The same with 2.75 in place of the first 2.5."""
    assert content.count(b"\x00\x00\x20\x40") > 1
    return content.replace(b"\x00\x00\x20\x40", b"\x00\x00\x30\x40", 1)


UNREADABLE = "task.th is not a state dict that torch.save wrote, or is damaged"
UNNAMED = "task.th must hold tensors by name"
NOT_DENSE = "`w` must be a dense tensor"
TOO_LARGE = "`w` has shape"
NO_STATES = {
    "tar": (torch_tar, UNREADABLE),
    "text": (lambda: b"<html>404", UNREADABLE),
    "empty": (lambda: b"", UNREADABLE),
    "list": (lambda: state_bytes([torch.ones(2)]), UNNAMED),
    "nothing": (lambda: state_bytes({}), UNNAMED),
    "numbers": (lambda: state_bytes({3: torch.ones(2)}), UNNAMED),
    "nested": (lambda: state_bytes({"w": {"w": torch.ones(2)}}), NOT_DENSE),
    "sparse": (lambda: state_bytes({"w": torch.eye(3).to_sparse()}), NOT_DENSE),
    "complex": (lambda: state_bytes({"w": torch.ones(2, dtype=torch.complex64)}), NOT_DENSE),
    "program": (script, UNREADABLE),
    "compressed": (lambda: zip_of({"a/data.pkl": b"x" * 99, "a/version": b"3"}, zipfile.ZIP_DEFLATED), UNREADABLE),
    "bomb": (lambda: zip_of({"a/data.pkl": bytes(1 << 25)}, zipfile.ZIP_DEFLATED), "would unpack to"),
    "torn zip": (lambda: zip_of({"a/data.pkl": b"x" * 99})[:-30], "task.th is a damaged zip file"),
    "shifted": (tensor(start=4), UNREADABLE),
    "backwards": (tensor(strides=(-2, 1)), UNREADABLE),
    "strides of fewer axes": (tensor(strides=(1,)), UNREADABLE),
    "more than there is": (tensor(shape=(9, 2)), UNREADABLE),
    "more than stored": (tensor(count=5), UNREADABLE),
    "lost": (tensor(key="1"), UNREADABLE),
    "no storage": (tensor(kind="collections.OrderedDict"), UNREADABLE),
    "loop": (lambda: pickled(b"]q\x00h\x00a\x8a\x01\x00."), UNREADABLE),
    "wrong checksum": (lambda: flipped(state_bytes({"w": torch.full((9,), 2.5)}, as_zip=True)), UNREADABLE),
    "cut pickle": (lambda: state_bytes({"w": torch.ones(2)}, as_zip=False)[:18], UNREADABLE),
    "without end": (lambda: state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}), TOO_LARGE),
}


@pytest.mark.parametrize(("content", "message"), NO_STATES.values(), ids=NO_STATES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_state_dict_is_refused(content: Callable[[], bytes], message: str, tmp_path: Path) -> None:
    (tmp_path / "task.th").write_bytes(content())
    assert_source_refused(tmp_path / "task.th", message)


@pytest.mark.parametrize("as_zip", [False, True], ids=["older form", "newer form"])
def test_every_tensor_is_what_torch_reads(as_zip: bool, tmp_path: Path) -> None:
    table = torch.arange(24.0).reshape(4, 6) / 7
    types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8)
    state = {str(kind): table.to(kind) for kind in (*types, torch.uint8, torch.bool)}
    state |= {"turned": table.T, "part": table[1:3, ::2], "number": torch.tensor(3.5), "empty": torch.zeros(0, 3)}
    state |= {"again": table, "parameter": torch.nn.Parameter(table[0])}
    path = tmp_path / "task.th"
    path.write_bytes(state_bytes(state, as_zip=as_zip))
    found, expected = read_state_dict(path), torch.load(path, weights_only=True)
    assert list(found) == list(expected)
    for name, value in expected.items():
        known = (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        assert (found[name].dtype, found[name].shape) == (known.dtype, known.shape), name
        np.testing.assert_array_equal(found[name], known)


def test_weights_of_a_gpu_are_read(tmp_path: Path) -> None:
    content = state_bytes({"w": torch.ones(9)})
    assert content.count(b"ctorch\nFloatStorage\n") == 1
    moved = content.replace(b"ctorch\nFloatStorage\n", b"ctorch.cuda\nFloatStorage\n").replace(b"cpu", b"gpu")
    (tmp_path / "task.th").write_bytes(moved)
    np.testing.assert_array_equal(read_state_dict(tmp_path / "task.th")["w"], np.ones(9, np.float32))
