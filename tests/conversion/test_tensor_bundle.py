"""TensorFlow's checkpoints: bits that the reader returns, and files that it refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from checkpoints import shared
from tensor_bundles import (
    index_file,
    masked_crc,
    tensor_message,
    write_bundle,
)

from elmo_hf.conversion.readers import protobuf
from elmo_hf.conversion.readers.tensor_bundle import TensorBundle, find_index
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import files_in

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
    bundle = TensorBundle(find_index(files_in(folder, "*"), folder).with_suffix(""))
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
    with pytest.raises(ConversionError, match=re.escape(f"{path}: `{damaged}`")):
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
        with pytest.raises(ConversionError, match="magic number 0xdb4775248b80fb57"):
            TensorBundle(prefix)


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
    other = tensor_message(dtype=7, shape=(4,), shard=5, offset=0, size=16, checksum=0)
    messages = write_bundle(prefix, {"x": np.ones(4, np.float32)}) | {"a/text": other}
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
    assert find_index(files_in(tmp_path, "*"), tmp_path) == tmp_path / f"{expected}.index"


def test_of_a_field_given_twice_the_last_number_counts() -> None:
    assert protobuf.Message(bytes([8, 3, 8, 5])).number(1) == 5
