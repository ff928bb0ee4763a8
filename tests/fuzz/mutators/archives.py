"""Changes archives: a member by its own format, the list of members, or the archive's bytes."""

import bz2
import gzip
import io
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable

from .dice import Dice
from .raw import change_bytes

Members = list[tuple[str, bytes]]
ChangeByName = Callable[[str, bytes, Dice], bytes]

HOSTILE_NAMES = (
    "../evil",
    "/evil",
    "a/../../evil",
    "..",
    ".",
    "",
    "a\\b",
    "C:/evil",
    "C:evil",
    "\\\\host\\evil",
    "a//b",
    "./config.json",
    "NUL",
    "x" * 300,
    "a/" * 200 + "b",
    "é日本",
    "new\nline",
    "\x1b[31m",
    "a:b",
    "config.json/",
    "fta/x/y",
    "~/evil",
)
MANY = 20_000
# Errors of Python's modules for archives on damaged bytes.
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError)


def change_members(members: Members, dice: Dice, change: ChangeByName) -> Members:
    """Changes one member, or the list."""
    if not members:
        return [("x", b"")]
    place = dice.randrange(len(members))
    name, content = members[place]
    kind = dice.choice(["content"] * 5 + ["renamed", "hostile", "lost", "twice", "folder", "bomb"])
    if kind == "bomb" and dice.random() < 0.2:
        kind = "many"
    dice.notes.append(kind)
    if kind == "content":
        dice.notes.append(name)
        members[place] = (name, change(name, content, dice))
    elif kind == "renamed":
        members[place] = (dice.choose(*HOSTILE_NAMES), content)
    elif kind == "hostile":
        members.insert(place, (dice.choose(*HOSTILE_NAMES), b"evil"))
    elif kind == "lost":
        del members[place]
    elif kind == "twice":
        members.insert(dice.randrange(len(members)), (name, dice.choice([content, b"{}"])))
    elif kind == "folder":
        return [(dice.choice(["a/", "a/b/", "é/"]) + name, content) for name, content in members]
    elif kind == "bomb":
        members.append((dice.choice(["x", name]), bytes(dice.choice([1 << 20, 40 << 20]))))
    else:
        members += [(f"{index}.txt", b"") for index in range(MANY)]
    return members


def change_zip(content: bytes, dice: Dice, change: ChangeByName) -> bytes:
    """Changes a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = change_members([(name, archive.read(name)) for name in archive.namelist()], dice, change)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, data in members:
            member = zipfile.ZipInfo("x")
            member.filename = name
            member.compress_type = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED])
            if dice.random() < 0.01:
                member.external_attr = dice.choice([0o120777, 0o010644, 0o020644, 0o040755]) << 16
                dice.notes.append("link or device")
            archive.writestr(member, data)
        _change_records(archive.filelist, dice)
    return packed.getvalue()


def _change_records(records: list[zipfile.ZipInfo], dice: Dice) -> None:
    """Makes the list at a zip file's end lie about a member."""
    if not records or dice.random() > 0.15:
        return
    member = dice.choice(records)
    field = dice.choose("file_size", "compress_size", "CRC", "flag_bits", "header_offset", "compress_type")
    # The largest that the record's format holds.
    most = 0xFFFF if field in ("flag_bits", "compress_type") else 0xFFFFFFFE
    setattr(member, field, dice.choice([0, 1, getattr(member, field) ^ 1, most]))


def change_tar(content: bytes, dice: Dice, change: ChangeByName, compression: str) -> bytes:
    """Changes a compressed tar file."""
    compress, decompress = {"gz": (gzip.compress, gzip.decompress), "bz2": (bz2.compress, bz2.decompress)}[compression]
    with tarfile.open(fileobj=io.BytesIO(decompress(content))) as archive:
        files = [member for member in archive if member.isreg()]
        members = [(member.name, archive.extractfile(member).read()) for member in files]  # type: ignore[union-attr]
    plain = io.BytesIO()
    form = dice.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=plain, mode="w", format=form) as archive:
        for name, data in change_members(members, dice, change):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if dice.random() < 0.01:
                member.type = dice.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
                member.linkname = dice.choice(["../outside", "/etc/passwd", name, "config.json"])
                dice.notes.append("link or device")
            archive.addfile(member, io.BytesIO(data))
    packed = plain.getvalue()
    if dice.random() < 0.15:
        dice.notes.append("in the tar")
        packed = change_bytes(packed, dice)
    return compress(packed)


def change_gzip(content: bytes, dice: Dice, end: str, change: ChangeByName) -> bytes:
    """Changes a compressed text, or how it is compressed."""
    plain = gzip.decompress(content)
    kind = dice.choose("inside", "inside", "two members", "rubbish behind", "not compressed", "twice compressed")
    if kind == "inside":
        return gzip.compress(change(f"x{end}", plain, dice))
    if kind == "two members":
        return content + gzip.compress(change(f"x{end}", plain, dice))
    if kind == "rubbish behind":
        return content + dice.choice([b"\0" * 100, b"rubbish", content[:50]])
    return plain if kind == "not compressed" else gzip.compress(content)
