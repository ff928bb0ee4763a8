"""TensorFlow checkpoints for tests, written from the format's description without the reader's code.

A test may replace any part: a message of the index, a checksum, the footer.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import google_crc32c
import numpy as np

DTYPE_NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}
RESTART_INTERVAL = 3


def masked_crc(data: bytes) -> int:
    crc = google_crc32c.value(data)
    rotated = ((crc >> 15) | (crc << 17)) % 2**32
    return (rotated + 0xA282EAD8) % 2**32


def varint(number: int) -> bytes:
    low, rest = number % 128, number // 128
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: int | bytes, *, is_fixed: bool = False) -> bytes:
    """One protobuf field: a varint, four fixed bytes, or a length and bytes."""
    if isinstance(value, bytes):
        return varint(8 * number + 2) + varint(len(value)) + value
    return varint(8 * number + 5) + struct.pack("<I", value) if is_fixed else varint(8 * number) + varint(value)


def tensor_message(
    *, dtype: int, shape: tuple[int, ...], offset: int, size: int, checksum: int, shard: int = 0
) -> bytes:
    """A `BundleEntryProto`; like protobuf, it leaves out zeros."""
    axes = b"".join(field(2, field(1, axis)) for axis in shape)
    message = field(1, dtype) + field(2, axes)
    for number, value in ((3, shard), (4, offset), (5, size)):
        message += field(number, value) if value else b""
    return message + field(6, checksum, is_fixed=True)


def header_message(num_shards: int = 1, endianness: int = 0) -> bytes:
    """A `BundleHeaderProto` with version 1."""
    return field(1, num_shards) + (field(2, endianness) if endianness else b"") + field(3, field(1, 1))


def block(entries: list[tuple[bytes, bytes]], *, compression: int = 0) -> bytes:
    """A block with its trailer; every third key is a restart, the others share prefixes."""
    content, restarts, last = b"", [], b""
    for index, (key, value) in enumerate(entries):
        shared = 0
        if index % RESTART_INTERVAL == 0:
            restarts.append(len(content))
        else:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        content += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    content += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts)) + bytes([compression])
    return content + struct.pack("<I", masked_crc(content))


def table(blocks: list[bytes], last_keys: list[bytes]) -> bytes:
    """An index file of finished blocks."""
    data, handles = b"", []
    for part in [*blocks, block([])]:
        handles.append(varint(len(data)) + varint(len(part) - 5))
        data += part
    index = block(list(zip(last_keys, handles[:-1], strict=True)))
    footer = handles[-1] + varint(len(data)) + varint(len(index) - 5)
    return data + index + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def index_file(messages: Mapping[str, bytes], *, keys_per_block: int = 4) -> bytes:
    """An index of messages by key; the header's key is ""."""
    entries = sorted((key.encode(), message) for key, message in messages.items())
    groups = [entries[start : start + keys_per_block] for start in range(0, len(entries), keys_per_block)]
    return table([block(group) for group in groups], [group[-1][0] for group in groups])


def string_value(string: bytes) -> tuple[bytes, int]:
    """The bytes of a tensor that is one string, and their checksum, in which the length has four bytes."""
    length = struct.pack("<I", len(string))
    checksum = struct.pack("<I", masked_crc(length))
    return varint(len(string)) + checksum + string, masked_crc(length + checksum + string)


def object_graph(names: Mapping[str, str]) -> bytes:
    """A `TrackableObjectGraph` that names the variables of keys: a node for each, and a root that has them."""
    children = b"".join(
        field(1, field(1, number) + field(2, f"v{number}".encode())) for number in range(1, len(names) + 1)
    )
    nodes = field(1, children)
    for key, name in names.items():
        attribute = field(1, b"VARIABLE_VALUE") + field(2, name.encode()) + field(3, key.encode())
        nodes += field(1, field(2, attribute))
    return nodes


def write_bundle(prefix: Path, arrays: Mapping[str, np.ndarray | bytes], *, num_shards: int = 1) -> dict[str, bytes]:
    """Writes a checkpoint, dealing tensors to the shards in turn; returns the messages of its index.

    Bytes become a tensor that is one string.
    """
    messages, shards = {"": header_message(num_shards)}, [b""] * num_shards
    for number, (name, array) in enumerate(arrays.items()):
        shard = number % num_shards
        if isinstance(array, bytes):
            dtype, shape, (data, checksum) = 7, (), string_value(array)
        else:
            dtype, shape, data = DTYPE_NUMBERS[str(array.dtype)], array.shape, array.tobytes()
            checksum = masked_crc(data)
        messages[name] = tensor_message(
            dtype=dtype, shape=shape, shard=shard, offset=len(shards[shard]), size=len(data), checksum=checksum
        )
        shards[shard] += data
    for shard, data in enumerate(shards):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}").write_bytes(data)
    prefix.with_name(f"{prefix.name}.index").write_bytes(index_file(messages))
    return messages
