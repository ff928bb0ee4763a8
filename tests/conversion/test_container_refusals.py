"""Containers that a conversion refuses: archives, torch's pickles, TensorFlow's bundles (`refused_sources.py`)."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError
from tests.helpers.archives import PREFIX, golden_state, manylangs_files, state_bytes, write_files, write_tar, write_zip
from tests.helpers.hub_modules import LOGITS, saved_by_tensorflow_2, variables_of, write_module
from tests.helpers.refused_sources import (
    CASE,
    NLPL,
    ONES,
    TRAINED,
    UNPACKED,
    Files,
    Maker,
    Rows,
    assert_refused,
    changed,
    each_row,
    files,
    packed,
)
from tests.helpers.tensor_bundles import (
    field,
    header_message,
    index_file,
    masked_crc,
    table,
    tensor_message,
    varint,
    write_bundle,
)

MANY, GOOGLE, ZEROS = manylangs_files(), variables_of("google"), bytes(64 << 20)


def bundle(
    *names: str,
    header: bytes = header_message(),
    index: bytes | None = None,
    size: int = 4,
    more: bytes = b"",
    **facts: Any,
) -> Maker:
    """bilm-tf's save directory, whose index has other facts about one tensor, under names, or is another."""
    data = np.arange(size, dtype=np.float32)
    facts = {"dtype": 1, "shape": (size,), "offset": 0, "size": data.nbytes, "checksum": masked_crc(data)} | facts
    messages = {"": header} | dict.fromkeys(names or ["lm/x"], tensor_message(**facts) + more)

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": NLPL["options.json"]})
        write_bundle(folder / "model.ckpt-1", {"lm/x": data})
        (folder / "model.ckpt-1.index").write_bytes(index_file(messages) if index is None else index)
        return folder

    return make


def record(text: str) -> Maker:
    return files({"options.json": b"{}", "checkpoint": text.encode(), "model.ckpt-3.index": b""})


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


RESTART = struct.pack("<2I", 0, 1)
SAVE_DIRECTORIES: Rows = {
    "empty record": (record(""), "checkpoint", "model_checkpoint_path", "model.ckpt-3.index"),
    "another record": (record('model_checkpoint_path: "x/model.ckpt-7"'), "checkpoint", "model.ckpt-7"),
    "record of a folder": (record('model_checkpoint_path: ".."'), "checkpoint", "model_checkpoint_path"),
    "sliced": (bundle(more=field(7, field(1, b""))), "model.ckpt-1.data", "lm/x"),
    "text": (bundle(dtype=7), "model.ckpt-1.data", "lm/x"),
    "enormous shape": (bundle(shape=(2**62, 2**62)), "lm/x"),
    "offset": (bundle(offset=2**63), "model.ckpt-1.data"),
    "another checksum": (bundle(checksum=0), "lm/x", "checksum"),
    "empty axes": (bundle(shape=(0, 2**63), size=0, checksum=masked_crc(b"")), "model.ckpt-1.data"),
    "no data": (bundle(shard=3), "model.ckpt-1.data-00003"),
    "a shard of letters": (bundle(more=field(3, b"../x")), "model.ckpt-1"),
    "big-endian": (bundle(header=header_message(endianness=1)), "model.ckpt-1.index", "endianness"),
    "two of one name": (bundle("char_embed", "lm/char_embed"), "char_embed"),
    "many in one place": (bundle(*map(str, range(150)), size=1 << 18), "model.ckpt-1.data", UNPACKED),
} | {
    f"index, {name}": (bundle(index=content), "model.ckpt-1.index")
    for name, content in {
        "html": b"<html>404</html>" * 9,
        "endless number": raw_block(b"\xff" * 20 + RESTART),
        "many restarts": raw_block(struct.pack("<I", 2**32 - 1)),
        "block outside": index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
        "name": raw_block(varint(0) + b"\1\0\xff" + RESTART),
    }.items()
}


def module(changes: Mapping[str, Any], whole: Mapping[str, Any] = GOOGLE) -> Maker:
    return lambda folder: write_module(folder / "elmo", changed(whole, changes))


def several(folder: Path) -> Path:
    write_module(folder / "x" / "b2", GOOGLE)
    return write_module(folder / "x" / "a1", GOOGLE).parent


TF2 = saved_by_tensorflow_2(GOOGLE)
NO_LAYER = {"bilm/RNN_0/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/bias": None}
MODULES: Rows = {
    "a BERT": (module({"bert/embeddings/word_embeddings": ONES.numpy()}, {}), "bilm/char_embed", "bert/embeddings"),
    "two ELMos": (module({f"{place}/{name}": GOOGLE[name] for name in GOOGLE for place in "ab"}, {}), "'a/', 'b/'"),
    "no mix": (module({"aggregation/weights": None, "aggregation/scaling": None}), "aggregation/weights"),
    "two mixes": (module({"aggregation/elmo_output_ELMo_W": LOGITS}), "aggregation/elmo_output_ELMo_W"),
    "padding": (module({"bilm/char_embed": GOOGLE["bilm/char_embed"] + 1}), "bilm/char_embed"),
    "no lowest layer": (module(NO_LAYER), "variables.index", "Cell0/LSTMCell/B"),
    "one name twice": (module({"bilm/char_embed": LOGITS}, TF2), "variables.index", "bilm/char_embed"),
    "graph cut": (module({"_CHECKPOINTABLE_OBJECT_GRAPH": b"\x0a\x09"}, TF2), "variables.index"),
    "several": (several, "a1, b2"),
    "no variables": (files({"saved_model.pb": b"x"}), "variables.index", "saved_model.pb"),
}


def checksum(folder: Path) -> Path:
    path = write_tar(folder / "model.tar.gz", TRAINED)
    content = path.read_bytes()
    path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    return path


def member(kind: bytes) -> Maker:
    """An archive with an entry that is no plain file."""
    info = tarfile.TarInfo("weights.th")
    info.type, info.linkname = kind, "/etc/passwd"
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        block[386:410] = b"%011o\0%011o\0" % (0, 0)
        block[483:495] = b"%011o\0" % (1 << 32)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return files({"model.tar.gz": gzip.compress(bytes(block) + bytes(1024))}, given="model.tar.gz")


LINK = zipfile.ZipInfo("options.json")
LINK.external_attr = 0o120777 << 16
ARCHIVES: Rows = {
    f"{write.__name__} {name[:20]}": (packed({name: b"evil"}, whole, write), name[:20])
    for name in ("../evil", "/evil", "a/../../evil", "a\\b", "C:x", "a/" * 30 + "b")
    for write, whole in ((write_zip, NLPL), (write_tar, TRAINED))
}
ARCHIVES |= {
    f"entry {kind!r}": (member(kind), "model.tar.gz", "weights.th")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)
}


def with_long_comments(folder: Path) -> Path:
    """A zip file of few entries, whose list of them is longer than that of 100,000 usual ones."""
    path = folder / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(130):
            entry = zipfile.ZipInfo(str(number))
            entry.comment = bytes(65_535)
            archive.writestr(entry, b"")
    return path


FOLDER = tarfile.TarInfo("folder")
FOLDER.type = tarfile.DIRTYPE
ARCHIVES |= {
    "link of a zip": (packed({LINK: b"/etc/passwd"}, {}, write_zip), "options.json"),
    "zip with a name in another case": (packed({"OPTIONS.json": b"{}"}, NLPL, write_zip), "OPTIONS.json` repeats"),
    "zip with a name twice": (packed({"./options.json": b"{}"}, NLPL, write_zip), "options.json` repeats"),
    "tar with a name in another case": (packed({"Weights.TH": b""}), "Weights.TH` repeats"),
    "tar with a name twice": (packed({"./weights.th": b""}), "weights.th` repeats"),
    "file and folder": (packed({"a": b"", "a/b": b""}, {}, write_zip), "model.zip"),
    "tar of folders": (
        files({"x.tgz": gzip.compress(FOLDER.tobuf() * 10_001)}, given="x.tgz"),
        "10,000 files and folders",
    ),
    "zip of folders": (packed({f"{n}/": b"" for n in range(10_001)}, {}, write_zip), "10,000 files and folders"),
    "zip with a long list": (with_long_comments, "model.zip has 8,52", "more than the 8,388,608 that are read"),
    "tar of zeros": (packed({"more": ZEROS}), "model.tar.gz", UNPACKED),
    "zip of zeros": (packed({"more": ZEROS}, NLPL, write_zip), "model.zip", UNPACKED),
    "checksum": (checksum, "model.tar.gz"),
}


def with_member(content: bytes, number: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A file of torch in which the first tensor has other numbers, as its checksum says."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(changed, "w", compression) as new:
        for member in old.filelist:
            is_first = member.filename.endswith("/data/0")
            new.writestr(member.filename, number if is_first else old.read(member.filename))
    return changed.getvalue()


STATE = state_bytes(golden_state(CASE), as_zip=True)
BIAS = f"{PREFIX}_elmo_lstm._token_embedder._projection.bias"
TORCH: Rows = {
    name: (files({"task.th": content}, given="task.th"), "task.th", *names)
    for name, (content, *names) in {
        "text": (b"<html>404",),
        "list": (state_bytes([ONES]), "list"),
        "nothing": (state_bytes({}),),
        "nested": (state_bytes({"w": {"w": ONES}}), "`w`", "dict"),
        "sparse": (state_bytes({"w": torch.eye(3).to_sparse()}),),
        "complex": (state_bytes(golden_state(CASE) | {"w": ONES, BIAS: ONES * 1j}), "_projection.bias"),
        "a whole module": (state_bytes(torch.nn.Linear(2, 3)), "torch.nn.modules.linear.Linear", ".state_dict(), "),
        "bytes": (
            state_bytes({"w": torch.full((9,), 2.5)}, as_zip=True).replace(b"\0\0 @", b"\0\0\x30@", 1),
            "do not fit their checksum",
        ),
        "a member that is short": (with_member(STATE, bytes(8)), "all numbers of its tensors"),
        "a member that is empty": (with_member(STATE, b""), "all numbers of its tensors"),
        "compressed members": (with_member(STATE, bytes(8), zipfile.ZIP_DEFLATED), "not compressed"),
        "without numbers": (state_bytes({"w": torch.empty(3, 3, device="meta")}, as_zip=True),),
        "without end": (state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}), "4,398,046,511,104"),
        "zip of zeros": (write_zip(io.BytesIO(), {"a/data.pkl": ZEROS}).getvalue(), UNPACKED),
    }.items()
}


@each_row({"save directory": SAVE_DIRECTORIES, "module": MODULES, "archive": ARCHIVES, "torch": TORCH})
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_converted_is_named_and_nothing_is_written(row: tuple[Any, ...], tmp_path: Path) -> None:
    assert_refused(row, tmp_path)


class Code:
    """A pickle that makes a folder when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("marker",)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
@pytest.mark.parametrize(("name", "make"), [("weights.th", packed), ("token_embedder.pkl", partial(files, whole=MANY))])
def test_pickles_with_code_are_not_run(
    name: str, make: Callable[[Files], Maker], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state: Any = golden_state(CASE) | {"code": Code()}
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    with pytest.raises(ConversionError, match="run code"):
        convert_source(make({name: content})(tmp_path), tmp_path / "DEST", NamedFiles())
    assert not (tmp_path / "marker").exists()
