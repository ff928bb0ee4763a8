"""TensorFlow's checkpoints: bits that the reader returns, and files that it refuses."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints import shared
from tensor_bundles import (
    block,
    field,
    header_message,
    index_file,
    masked_crc,
    table,
    tensor_message,
    varint,
    write_bundle,
)

from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.readers import protobuf
from elmo_hf.conversion.readers.tensor_bundle import TensorBundle, find_checkpoint

ARRAYS = {
    "lm/CNN/W_cnn_0": np.arange(30, dtype=np.float32).reshape(1, 2, 3, 5),
    "lm/CNN/W_cnn_0/Adagrad": np.full((1, 2, 3, 5), 1.5, dtype=np.float32),
    "lm/CNN/b_cnn_0": np.array([np.nan, -0.0, np.inf, 1e-45, 3], dtype=np.float32),
    "lm/RNN_0/rnn/kernel": np.arange(14, dtype=np.float64).reshape(2, 7),
    "lm/empty": np.zeros((0, 4), dtype=np.float32),
    "lm/half": np.array([1, 65504], dtype=np.float16),
    "global_step": np.array(6, dtype=np.float32),
    "steps": np.array([2**40, -7], dtype=np.int64),
    "ids": np.array([[3], [-2]], dtype=np.int32),
}


def only_message(**changes: object) -> bytes:
    """The message of one tensor `x`, four numbers in the first 16 bytes, with changes."""
    data = np.arange(4, dtype=np.float32).tobytes()
    facts = {"dtype": 1, "shape": (4,), "offset": 0, "size": 16, "checksum": masked_crc(data)}
    return tensor_message(**(facts | changes))  # type: ignore[arg-type]


def write_one(folder: Path, message: bytes, header: bytes | None = None) -> Path:
    """A checkpoint of one tensor `x` with such a message."""
    prefix = folder / "model.ckpt-1"
    write_bundle(prefix, {"x": np.arange(4, dtype=np.float32)})
    messages = {"": header_message() if header is None else header, "x": message}
    prefix.with_name("model.ckpt-1.index").write_bytes(index_file(messages))
    return prefix


@pytest.mark.parametrize("num_shards", [1, 3])
def test_every_tensor_is_read_bit_by_bit(num_shards: int, tmp_path: Path) -> None:
    write_bundle(tmp_path / "model.ckpt-6", ARRAYS, num_shards=num_shards)
    bundle = TensorBundle(tmp_path / "model.ckpt-6")
    assert {name: entry.shape for name, entry in bundle.entries.items()} == {
        name: array.shape for name, array in ARRAYS.items()
    }
    for name, array in ARRAYS.items():
        found = bundle.read(name)
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_checksums_are_the_masked_castagnoli_ones() -> None:
    # Of "123456789" the CRC-32C is e3069283 (RFC 3720); the mask is LevelDB's.
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("case", ["full_char", "sampled_char", "full_word"])
def test_variables_of_bilm_tf_are_those_that_tensorflow_had(case: str) -> None:
    folder = shared("fixtures", "bilm_tf_steps", case)
    bundle = TensorBundle(find_checkpoint(folder))
    shapes = {name: tuple(shape) for name, shape in json.loads((folder / "variables.json").read_text(encoding="utf-8"))}
    assert {name: entry.shape for name, entry in bundle.entries.items()} == shapes
    with np.load(folder / "golden.npz") as golden:
        initial = {name.removeprefix("init/"): golden[name] for name in golden if name.startswith("init/")}
    assert {name for name in initial if name.startswith("lm/")} == {
        name for name in shapes if name.startswith("lm/") and not name.endswith("/Adagrad")
    }
    for name, array in initial.items():
        found = bundle.read(name)
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("place", [0, 17, 33, -1])
def test_a_flipped_bit_of_a_tensor_is_seen(place: int, tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32), "b": np.ones((2, 3), np.float32)})
    path = tmp_path / "model.ckpt-1.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    bundle = TensorBundle(prefix)
    damaged, whole = ("a", "b") if 0 <= place < 16 else ("b", "a")
    np.testing.assert_array_equal(bundle.read(whole), 1)
    message = f"{path} is damaged: the checksum of `{damaged}` of {prefix} is wrong. Copy it again."
    with pytest.raises(ConversionError, match=re.escape(message)):
        bundle.read(damaged)


def test_a_flipped_bit_of_the_index_is_seen_or_changes_nothing(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32), "b/c": np.ones((2, 3), np.float32)})
    path = tmp_path / "model.ckpt-1.index"
    content, entries, harmless = path.read_bytes(), TensorBundle(prefix).entries, set()
    for place in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert TensorBundle(prefix).entries == entries
                harmless.add(place)
            except ConversionError:
                pass
    # The zeros that fill the footer have no meaning, nor has a zero appended to the number before them.
    last = len(content) - 48 + len(content[-48:-8].rstrip(b"\0")) - 1
    assert harmless == set(range(last, len(content) - 8))


def test_every_truncated_index_is_refused(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32)})
    path = tmp_path / "model.ckpt-1.index"
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(ConversionError, match="it does not end with the magic number 0xdb4775248b80fb57"):
            TensorBundle(prefix)


def test_a_truncated_shard_is_refused(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32), "b": np.ones((2, 3), np.float32)})
    path = tmp_path / "model.ckpt-1.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:39])
    bundle = TensorBundle(prefix)
    assert bundle.read("a").shape == (4,)
    message = f"{path} is truncated: `b` of {prefix} ends at byte 40, the file at 39. Copy it again."
    with pytest.raises(ConversionError, match=re.escape(message)):
        bundle.read("b")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    write_bundle(prefix, {"a": np.ones(4, np.float32), "b": np.ones((2, 3), np.float32)}, num_shards=2)
    (tmp_path / "model.ckpt-1.data-00001-of-00002").unlink()
    bundle = TensorBundle(prefix)
    assert bundle.read("a").shape == (4,)
    message = "model.ckpt-1.data-00001-of-00002, which is not there; copy all files of the checkpoint."
    with pytest.raises(ConversionError, match=re.escape(message)):
        bundle.read("b")


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"there is no checkpoint index .*model\.ckpt-1\.index\."):
        TensorBundle(tmp_path / "model.ckpt-1")


def test_an_enormous_index_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "model.ckpt-1.index", "wb") as file:
        file.truncate(1 << 40)
    message = r"model\.ckpt-1\.index has 1,099,511,627,776 bytes; at most 1,048,576 are read\."
    with pytest.raises(ConversionError, match=message):
        TensorBundle(tmp_path / "model.ckpt-1")


SLICE = field(7, field(1, b""))
FAULTY_TENSORS = {
    "sliced": (only_message() + SLICE, "was saved in parts by a partitioner, which is not supported."),
    "text": (only_message(dtype=7), "has TensorFlow's type 7; supported: [1, 2, 3, 9, 19]."),
    "no type": (only_message(dtype=0), "has TensorFlow's type 0; supported:"),
    "shape too large": (only_message(shape=(2**62, 2**62)), f"has shape {(2**62, 2**62)} of float32, which are not"),
    "negative axis": (only_message(shape=(2**64 - 4,)), "of float32, which are not 16 bytes."),
    "size too large": (only_message(shape=(2**40,), size=2**42), "is truncated: `x` of"),
    "offset too large": (only_message(offset=2**63), "ends at byte 9223372036854775824, the file at 16."),
    "another offset": (only_message(shape=(2,), size=8, offset=8), "the checksum of `x` of"),
    "another shard": (only_message(shard=1), "data-00001-of-00001, which is not there"),
    "another checksum": (only_message(checksum=0), "the checksum of `x` of"),
    "enormous and empty": (
        only_message(shape=(0, 2**63), size=0, checksum=masked_crc(b"")),
        "has an illegal shape: ",
    ),
    "too many axes": (only_message(shape=(1,) * 99 + (4,)), "has 100 axes; at most 8 are read."),
}  # fmt: skip


@pytest.mark.parametrize(("tensor", "message"), FAULTY_TENSORS.values(), ids=FAULTY_TENSORS)
def test_faulty_tensor_is_named(tensor: bytes, message: str, tmp_path: Path) -> None:
    prefix = write_one(tmp_path, tensor)
    with pytest.raises(ConversionError, match=re.escape(message)) as caught:
        TensorBundle(prefix).read("x")
    assert "`x` of " in str(caught.value)


def test_an_unknown_name_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="lm/softmax/W"):
        TensorBundle(write_one(tmp_path, only_message())).read("lm/softmax/W")


def test_a_big_endian_checkpoint_is_refused(tmp_path: Path) -> None:
    prefix = write_one(tmp_path, only_message(), header_message(endianness=1))
    with pytest.raises(ConversionError, match="comes from a big-endian machine, whose checkpoints are not supported"):
        TensorBundle(prefix)


def one_block(entries: list[tuple[bytes, bytes]]) -> bytes:
    return table([block(entries)], [entries[-1][0]])


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


ONE_RESTART = struct.pack("<2I", 0, 1)
FAULTY_TABLES = {
    "html": (b"<html>404</html>" * 9, "it does not end with the magic number 0xdb4775248b80fb57"),
    "empty": (b"", "it does not end with the magic number 0xdb4775248b80fb57"),
    "compressed": (table([block([(b"", b"")], compression=1)], [b""]), "at byte 0 is compressed (type 1), which"),
    "keys twice": (one_block([(b"a", b""), (b"a", b"")]), "its keys must rise, found b'a' after b'a'"),
    "keys fall": (table([block([(b"b", b"")]), block([(b"a", b"")])], [b"b", b"a"]), "found b'a' after b'b'"),
    "shared too long": (raw_block(varint(1) + varint(1) + varint(0) + b"x" + ONE_RESTART), "a key of 1 + 1 bytes"),
    "key too long": (one_block([(b"x" * 1025, b"")]), "a key of 0 + 1025 bytes is longer than it can be"),
    "value cut": (raw_block(varint(0) + varint(1) + varint(9) + b"x" + ONE_RESTART), "9 bytes must follow, found 0"),
    "entry cut": (raw_block(varint(0) + ONE_RESTART), "1 bytes must follow, found 0"),
    "endless number": (raw_block(b"\xff" * 20 + ONE_RESTART), "a number has more than 64 bits"),
    "restarts too many": (raw_block(struct.pack("<I", 2**32 - 1)), "-17179869180 bytes must follow, found 4"),
    "block outside": (
        index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
        f"a block from byte {2**40} to {2**40 + 9} does not fit into",
    ),
    "name no utf-8": (one_block([(b"\xff", b"")]), "'utf-8' codec can't decode byte 0xff"),
    "group": (one_block([(b"x", varint(8 * 1 + 3))]), "a protobuf field has the unexpected wire type 3"),
    "number for a shape": (one_block([(b"x", field(2, 4))]), "protobuf field 2 must be a message"),
    "bytes for an offset": (one_block([(b"x", field(4, b"9"))]), "protobuf field 4 must be a number"),
    "message cut": (one_block([(b"x", varint(8 * 2 + 2) + varint(99))]), "99 bytes must follow, found 0"),
    "checksum cut": (one_block([(b"x", varint(8 * 6 + 5) + b"abc")]), "4 bytes must follow, found 3"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), FAULTY_TABLES.values(), ids=FAULTY_TABLES)
def test_faulty_index_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt-1.index"
    path.write_bytes(content)
    with pytest.raises(ConversionError, match=re.escape(message)) as caught:
        TensorBundle(tmp_path / "model.ckpt-1")
    assert f"{path} cannot be read as the index of a TensorFlow checkpoint: " in str(caught.value)
    assert "save checkpoints of TensorFlow's older V1 format again with TensorFlow." in str(caught.value)


def test_an_index_of_any_bytes_with_right_checksums_is_read_or_refused(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    messages = write_bundle(prefix, {"a": np.ones(4, np.float32), "b/c": np.ones((2, 3), np.float32)})
    generator = np.random.default_rng(11)
    outcomes = set()
    for _ in range(400):
        changed = {key: bytearray(message) for key, message in messages.items()}
        message = changed[str(generator.choice(list(changed)))]
        message[generator.integers(len(message))] = generator.choice([0, 1, 127, 128, 255, generator.integers(256)])
        prefix.with_name("model.ckpt-1.index").write_bytes(index_file({k: bytes(v) for k, v in changed.items()}))
        try:
            bundle = TensorBundle(prefix)
            for name in bundle.entries:
                bundle.read(name)
            outcomes.add("read")
        except ConversionError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_tensors_that_nobody_reads_may_be_of_any_kind(tmp_path: Path) -> None:
    prefix = tmp_path / "model.ckpt-1"
    messages = write_bundle(prefix, {"x": np.ones(4, np.float32)}) | {"a/text": only_message(dtype=7, shard=5)}
    prefix.with_name("model.ckpt-1.index").write_bytes(index_file(messages))
    np.testing.assert_array_equal(TensorBundle(prefix).read("x"), 1)


def checkpoint_line(name: str) -> str:
    return f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "model.ckpt-20"\n'


RECORDS: dict[str, tuple[str | None, str]] = {
    "none": (None, "model.ckpt-100"),
    "plain": (checkpoint_line("model.ckpt-20"), "model.ckpt-20"),
    "path of another machine": (checkpoint_line("/home/matt/elmo/model.ckpt-3"), "model.ckpt-3"),
    "path upwards": (checkpoint_line("../../other/model.ckpt-3"), "model.ckpt-3"),
    "path of Windows": (checkpoint_line("C:\\\\elmo\\\\model.ckpt-3"), "model.ckpt-3"),
    "another order": ('all_model_checkpoint_paths: "x"\n model_checkpoint_path:"model.ckpt-3"', "model.ckpt-3"),
}


@pytest.mark.parametrize(("record", "expected"), RECORDS.values(), ids=RECORDS)
def test_the_checkpoint_is_that_of_the_record_or_of_the_highest_step(
    record: str | None, expected: str, tmp_path: Path
) -> None:
    for name in ("model.ckpt-3", "model.ckpt-20", "model.ckpt-100", "model.ckpt"):
        (tmp_path / f"{name}.index").touch()
    if record is not None:
        (tmp_path / "checkpoint").write_text(record, encoding="utf-8")
    assert find_checkpoint(tmp_path) == tmp_path / expected


def write_text(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "checkpoint").write_text(text, encoding="utf-8")


FAULTY_RECORDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda folder: None, "holds no index of a TensorFlow checkpoint, such as `model.ckpt-1.index`."),
    "no path": (write_text("model.ckpt-1\n"), 'must name the checkpoint as `model_checkpoint_path: "model.ckpt-N"`.'),
    "bytes": (lambda folder: (folder / "checkpoint").write_bytes(b"\xff\0" * 99), "must name the checkpoint as"),
    "not there": (write_text(checkpoint_line("model.ckpt-7")), "names 'model.ckpt-7', but "),
    "empty": (write_text(checkpoint_line("elmo/")), "names '', but "),
    "folder above": (write_text(checkpoint_line("..")), "names '..', but "),
}


@pytest.mark.parametrize(("write", "message"), FAULTY_RECORDS.values(), ids=FAULTY_RECORDS)
def test_a_folder_without_the_checkpoint_is_refused(
    write: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    write(tmp_path)
    with pytest.raises(ConversionError, match=re.escape(message)):
        find_checkpoint(tmp_path)


def test_a_record_of_a_lost_checkpoint_names_those_that_are_there(tmp_path: Path) -> None:
    for name in ("model.ckpt-100", "model.ckpt-3"):
        (tmp_path / f"{name}.index").touch()
    (tmp_path / "checkpoint").write_text(checkpoint_line("/x/model.ckpt-7"), encoding="utf-8")
    message = (
        f"{tmp_path / 'checkpoint'} names 'model.ckpt-7', but {tmp_path} holds no model.ckpt-7.index; indexes found: "
        f"model.ckpt-3.index, model.ckpt-100.index. Copy the missing files, or delete {tmp_path / 'checkpoint'} to "
        "take the highest step."
    )
    with pytest.raises(ConversionError, match=re.escape(message)):
        find_checkpoint(tmp_path)


def test_of_a_field_given_twice_the_last_number_counts() -> None:
    assert protobuf.Message(bytes([8, 3, 8, 5])).number(1) == 5
