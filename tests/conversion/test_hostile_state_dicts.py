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


def pickled(operations: bytes) -> bytes:
    return zip_of({"a/data.pkl": b"\x80\x02" + operations, "a/data/0": bytes(16)})


def tensor(
    kind: str = "torch.FloatStorage",
    key: str = "0",
    count: int = 4,
    start: int = 0,
    shape: tuple[int, ...] = (2, 2),
    strides: tuple[int, ...] = (2, 1),
    learns: bytes = b"\x89",
) -> Callable[[], bytes]:
    """A state dict of one tensor of four numbers, described in any way."""

    def make() -> bytes:
        module, _, name = kind.rpartition(".")
        storage = b"(U\x07storagec%b\n%b\nU\x01%bU\x03cpuK%ctQ" % (module.encode(), name.encode(), key.encode(), count)
        lengths = [b"(%bt" % b"".join(b"J" + struct.pack("<i", size) for size in sizes) for sizes in (shape, strides)]
        place = b"K%c%b%b" % (start, *lengths)
        return pickled(b"}U\x01wctorch._utils\n_rebuild_tensor_v2\n(%b%b%b}tRs." % (storage, place, learns))

    return make


NO_STATES = {
    "tar": (torch_tar, "is not a file that torch.save wrote: it begins with b'pick'"),
    "text": (lambda: b"<html>404", "is not a file that torch.save wrote: it begins with b'<htm'"),
    "empty": (lambda: b"", "is not a file that torch.save wrote: it begins with b''"),
    "list": (lambda: state_bytes([torch.ones(2)]), "must hold tensors by name, found list."),
    "nothing": (lambda: state_bytes({}), "must hold tensors by name, found dict."),
    "numbers": (lambda: state_bytes({3: torch.ones(2)}), "must hold tensors by name, found dict."),
    "nested": (lambda: state_bytes({"model": {"w": torch.ones(2)}}), "`model` must be a dense tensor, found dict."),
    "negative view": (
        lambda: state_bytes({"w": torch.ones(2, dtype=torch.complex64).conj().imag}),
        "`w` is a view with the metadata {'neg': True}",
    ),
    "learns five": (tensor(learns=b"K\x05"), "`w` must say by true or false whether it learns, found 5"),
    "sparse": (
        lambda: state_bytes({"w": torch.eye(3).to_sparse()}),
        "task.th holds torch._utils._rebuild_sparse_tensor, which is not a tensor. A pickle can run code, so it is not",
    ),
    "program": (script, "is a TorchScript program, which is code; give its state dict."),
    "compressed": (
        lambda: zip_of({"a/data.pkl": b"x" * 99, "a/version": b"3"}, zipfile.ZIP_DEFLATED),
        "is a compressed zip file; torch.save writes uncompressed ones.",
    ),
    "torn zip": (lambda: zip_of({"a/data.pkl": b"x" * 99})[:-30], "is a damaged zip file, it may be truncated: "),
    "two pickles": (lambda: zip_of({"a/data.pkl": b"x", "b/data.pkl": b"x"}), "it must hold one `data.pkl`, and every"),
    "big-endian": (
        lambda: zip_of({"a/data.pkl": b"x", "a/byteorder": b"big"}),
        "task.th comes from a big-endian machine; save it on another.",
    ),
    "shifted": (tensor(start=4), "`w` lies outside of its numbers. Get it again."),
    "backwards": (tensor(strides=(-2, 1)), "`w` has the shape (2, 2) and the strides (-2, 1). Get it again."),
    "strides of fewer axes": (tensor(strides=(1,)), "`w` has the shape (2, 2) and the strides (1,). Get it again."),
    "more than there is": (tensor(shape=(9, 2)), "`w` has shape (9, 2), more numbers than the file holds."),
    "more than stored": (tensor(count=5), "a/data/0 must have 20 bytes. Get it again."),
    "lost": (tensor(key="1"), "There is no item named 'a/data/1' in the archive"),
    "unknown type": (tensor(kind="torch.QInt8Storage"), "it describes a storage of the type QInt8. Get it again."),
    "no storage": (tensor(kind="collections.OrderedDict"), "it describes a storage of the type OrderedDict."),
    "other call": (
        lambda: pickled(b"}U\x01wccollections\nOrderedDict\nK\x01\x85Rs."),
        "task.th cannot be read, it may be truncated: it is no pickle of tensors alone. Get it again.",
    ),
    "loop": (lambda: pickled(b"]q\x00h\x00a\x8a\x01\x00."), "it is no pickle of tensors alone."),
    "wrong checksum": (
        lambda: zip_of({"a/data.pkl": b"x" * 99}).replace(b"xxx", b"xyx", 1),
        "task.th cannot be read, it may be truncated: Bad CRC-32 for file 'a/data.pkl'. Get it again.",
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
