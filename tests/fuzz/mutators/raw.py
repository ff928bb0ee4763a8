"""Changes bytes without knowing what they mean: what a bad disk, a broken download or a careless editor does."""

from .dice import Dice

# Numbers that sizes and offsets are compared with.
EXTREMES = (0, 1, -1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63))


def change_bytes(content: bytes, dice: Dice) -> bytes:
    """Flips, cuts, copies, moves or overwrites."""
    data = bytearray(content)
    if not data:
        return dice.randbytes(dice.randrange(1, 64))
    start, end = dice.span(len(data))
    kind = dice.choose("flip", "flip", "truncate", "splice", "duplicate", "cut", "zero", "insert", "extreme", "append")
    if kind == "flip":
        for _ in range(dice.choice([1, 1, 2, 8])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == "truncate":
        del data[dice.choice([start, len(data) - dice.randrange(1, 1 + min(64, len(data))), 0]) :]
    elif kind == "splice":
        piece = data[start:end]
        place = dice.randrange(len(data))
        data[place : place + len(piece)] = piece
    elif kind == "duplicate":
        data[end:end] = data[start:end]
    elif kind == "cut":
        del data[start:end]
    elif kind == "zero":
        data[start:end] = bytes(end - start)
    elif kind == "insert":
        data[start:start] = dice.randbytes(dice.randrange(1, 100))
    elif kind == "append":
        data += dice.choice([b"\0" * 512, content[:100], dice.randbytes(50), b"\n"])
    else:
        overwrite_number(data, dice)
    return bytes(data)


def overwrite_number(data: bytearray, dice: Dice) -> None:
    """Puts an extreme number in place of some bytes."""
    size = dice.choice([2, 4, 8])
    number = dice.choice(EXTREMES) % 256**size
    place = dice.randrange(max(1, len(data) - size + 1))
    data[place : place + size] = number.to_bytes(size, dice.choice(["little", "little", "big"]))
