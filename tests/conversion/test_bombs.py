"""Small files that claim or unpack to ten gigabytes take no memory and leave nothing."""

from pathlib import Path

from archives import nlpl_files, write_files
from checkpoints import run_python

BOMBS = """
import gc, resource, struct, sys, tarfile, tempfile, zipfile, zlib
from pathlib import Path
import h5py, numpy as np, torch
from elmo_hf.conversion.checkpoint import Given
from elmo_hf.conversion.errors import ConversionError
from elmo_hf.conversion.convert import convert_source

work, options = Path(sys.argv[1]), Path(sys.argv[2])
SIZE, BLOCK = 10 << 30, 1 << 20


def deflated(start, size):
    # After a full flush every block of zeros has the same bytes.
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    zeros = pack.compress(bytes(BLOCK)) + pack.flush(zlib.Z_FULL_FLUSH)
    return head + zeros * (size // BLOCK) + pack.flush(zlib.Z_FINISH)


def zip_bomb(name, declared=SIZE):
    with zipfile.ZipFile(work / name, "w", zipfile.ZIP_STORED) as archive:
        for file in ("options.json", "model.hdf5") if name.endswith(".zip") else ("a/version", "a/data.pkl"):
            archive.writestr(file, deflated(b"", SIZE if file in ("model.hdf5", "a/data.pkl") else BLOCK))
            archive.filelist[-1].compress_type = zipfile.ZIP_DEFLATED
            archive.filelist[-1].file_size = declared


def tar_bomb(name, start, size):
    header = bytes([31, 139, 8, 0, 0, 0, 0, 0, 2, 255])
    (work / name).write_bytes(header + deflated(start, size) + bytes(8))


def member(name, size, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


zip_bomb("declared.zip")
zip_bomb("lying.zip", BLOCK)
zip_bomb("torch.th")
tar_bomb("declared.tar.gz", member("weights.th", SIZE), SIZE)
tar_bomb("trailing.tar.gz", member("weights.th", 0), 2 << 30)
tar_bomb("header.tar.gz", member("x", 4 << 30, tarfile.XHDTYPE), 4 << 30)
with h5py.File(work / "unwritten.hdf5", "w") as file:
    file.create_dataset("char_embed", (1 << 31,), np.float32)
with h5py.File(work / "packed.hdf5", "w") as file:
    table = file.create_dataset("char_embed", (640, 4 << 20), np.float32, chunks=(1, 4 << 20), compression="gzip")
    packed = zlib.compress(bytes(16 << 20))
    for row in range(640):
        table.id.write_direct_chunk((row, 0), packed)
torch.save({"w": torch.ones(70000)}, work / "storage.th", _use_new_zipfile_serialization=False)
claim = (work / "storage.th").read_bytes().replace(struct.pack("<cI", b"J", 70000), struct.pack("<cI", b"J", 2**31 - 1))
(work / "storage.th").write_bytes(claim)
(work / "long.th").write_bytes(b"x" * 15)
tempfile.tempdir = str(work / "unpacked")
Path(tempfile.tempdir).mkdir()
gc.collect()

for path in sorted(work.glob("*.*")):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        convert_source(path, work / "DEST", Given(options) if path.suffix in (".th", ".hdf5") else Given())
    except ConversionError as error:
        message = str(error)
    left = [p.name for p in work.iterdir() if p.is_dir() and p.name != "unpacked"] + list((work / "unpacked").iterdir())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(path.name, grown, left, message.replace(chr(10), " "), sep="|")
"""
BOMB_MESSAGES = {
    "declared.tar.gz": "and would unpack to 10,737,418,240, as no checkpoint does; it is not unpacked.",
    "declared.zip": "as no checkpoint does; it is not unpacked.",
    "header.tar.gz": "has an entry with a header of 4,294,967,296 bytes; it is not unpacked.",
    "long.th": "is not a state dict that torch.save wrote",
    "lying.zip": "lying.zip cannot be unpacked, it may be truncated: ",
    "packed.hdf5": "and would unpack to 10,737,418,240, as no checkpoint does; it is not unpacked.",
    "storage.th": "storage.th is not a state dict that torch.save wrote, or is damaged: RuntimeError",
    "torch.th": "as no checkpoint does; it is not unpacked.",
    "trailing.tar.gz": "as no checkpoint does; it is not unpacked.",
    "unwritten.hdf5": "and would unpack to 8,589,934,592, as no checkpoint does; it is not unpacked.",
}


def test_bombs_of_ten_gigabytes_take_no_memory_and_leave_nothing(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    options = write_files(tmp_path, {"options.json": nlpl_files("base_2l_relu")["options.json"]}) / "options.json"
    lines = run_python(BOMBS, tmp_path, work, options).splitlines()
    found = {}
    for line in lines:
        name, grown, left, message = line.split("|", maxsplit=3)
        assert BOMB_MESSAGES[name] in message, line
        assert left == "[]", line
        found[name] = int(grown)
    assert found.keys() == BOMB_MESSAGES.keys()
    assert max(found.values()) < 100, found  # MiB
