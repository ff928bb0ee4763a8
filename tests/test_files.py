"""Files and folders appear whole or not at all; one process at a time writes them; a full disk is named."""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import h5py
import numpy as np
import pytest
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from elmo_hf.files import (
    NoRoomError,
    new_file,
    new_folder,
    only_writer,
    publish_last,
    refuse_existing,
    temporary_folder,
    workplace,
)
from elmo_hf.guarded_file import GuardedFile

LEFT = [".out.lock", ".out.partial"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leave(folder: Path) -> None:
    """What a process that was killed while it wrote `out` leaves."""
    (folder / ".out.lock").write_text("process 1 on nowhere")
    (folder / ".out.partial").mkdir()
    (folder / ".out.partial" / "half").write_text("half")


def write_and_raise(place: AbstractContextManager[Path], error: Exception) -> None:
    with place as partial:
        (partial / "inside" if partial.is_dir() else partial).write_text("some of it")
        raise error


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_what_is_written_appears_in_the_end_and_nothing_stays_beside_it(
    make: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    leave(tmp_path)
    with make(tmp_path / "out") as partial:
        content = partial if make is new_file else partial / "inside"
        content.write_text("all of it")
        content.chmod(0o600)  # as safetensors writes
        assert names(tmp_path) == LEFT
        assert (tmp_path / ".out.lock").read_text().startswith(f"process {os.getpid()} on ")
    assert names(tmp_path) == ["out"]
    written = tmp_path / "out" / ("inside" if make is new_folder else "")
    assert written.read_text() == "all of it"
    (tmp_path / "plain").touch()
    assert written.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("make", [new_file, new_folder, workplace])
def test_what_fails_leaves_nothing(make: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_and_raise(make(tmp_path / "out"), ZeroDivisionError())
    assert names(tmp_path) == []


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_what_cannot_be_put_on_the_disk_does_not_get_its_name(
    make: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    """As on a disk that fails when the system writes what it held in memory; a file of /proc is on no disk."""
    with pytest.raises(OSError, match="Invalid argument"), make(tmp_path / "out") as partial:
        (partial if make is new_file else partial / "inside").symlink_to("/proc/self/status")
    assert names(tmp_path) == []


class WatchedPath(type(Path())):
    """A path that notes, when the file of a lock is removed, whether another process could lock it."""

    is_free: list[bool] = []

    def unlink(self, missing_ok: bool = False) -> None:
        if self.suffix == ".lock":
            lock = FileLock(str(self), timeout=0)
            with contextlib.suppress(Timeout):
                lock.acquire()
            self.is_free.append(lock.is_locked)
            lock.release()
        super().unlink(missing_ok)


def test_the_file_of_a_lock_goes_before_the_lock(tmp_path: Path) -> None:
    """Two processes could write otherwise: one with a lock on the file that was removed, one on a new file."""
    with only_writer(WatchedPath(tmp_path / "out")):
        pass
    assert (WatchedPath.is_free, names(tmp_path)) == ([False], [])


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path: Path) -> None:
    message = rf"^{tmp_path}/out is being written by process {os.getpid()} on .+; wait until it ends, or choose "
    with new_folder(tmp_path / "out"), pytest.raises(BlockingIOError, match=message), new_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out"]


def test_the_working_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with only_writer(Path(".")) as partial:
        assert partial == tmp_path / ".here.partial"
        assert names(tmp_path) == [".here.lock", "here"]


def test_a_folder_that_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    message = rf"^{tmp_path}/out exists already; remove it or choose another place\. Nothing was written\.$"
    folder = new_folder(tmp_path / "out")
    (folder.__enter__() / "second").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "first").touch()
    with pytest.raises(FileExistsError, match=message):
        folder.__exit__(None, None, None)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["first"]


def test_what_a_killed_process_left_beside_a_complete_folder_goes(tmp_path: Path) -> None:
    leave(tmp_path)
    (tmp_path / "out").mkdir()
    refuse_existing(tmp_path / "out")
    assert names(tmp_path) == [*LEFT, "out"]
    (tmp_path / "out" / "file").touch()
    with pytest.raises(FileExistsError):
        refuse_existing(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with only_writer(tmp_path / "out"):
        (tmp_path / ".out.partial").touch()
        (tmp_path / "out").touch()
        with pytest.raises(FileExistsError):
            refuse_existing(tmp_path / "out")
        assert names(tmp_path) == [*LEFT, "out"]


def test_a_file_takes_its_place_and_its_folder_goes(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "out").write_text("all of it")
    (tmp_path / "out.partial" / "chunk").touch()
    publish_last(tmp_path / "out.partial" / "out", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "all of it"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EFBIG, "File too large"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 662"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'errno', '')}",
)
def test_a_full_disk_is_named(error: Exception, tmp_path: Path) -> None:
    message = (
        rf"^there is no room to write {tmp_path}/out: [\d,]+ MiB are free in {tmp_path}\."
        r" Make room and give the same command again; nothing incomplete has that name\.$"
    )
    with pytest.raises(NoRoomError, match=message):
        write_and_raise(new_file(tmp_path / "out"), error)
    assert names(tmp_path) == []


def test_a_folder_is_named_rather_than_a_file_in_it(tmp_path: Path) -> None:
    message = rf"^there is no room to write {tmp_path}/out: [\d,]+ MiB are free in {tmp_path}\."
    error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(NoRoomError, match=message), new_folder(tmp_path / "out") as partial:
        write_and_raise(new_file(partial / "inside"), error)


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match=r"^not here$"):
        write_and_raise(new_file(tmp_path / "out"), PermissionError("not here"))


class FullFile:
    """In place of the file inside a `GuardedFile`: has room for `room` bytes."""

    def __init__(self, file: object, room: int) -> None:
        self.file, self.room = file, room

    def write(self, data: memoryview) -> int:
        if len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return self.file.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def test_temporary_folders_of_killed_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for kind in ("killed", "living"):
        (tmp_path / f".elmo-hf-{kind}.partial").mkdir()
        (tmp_path / f".elmo-hf-{kind}.partial" / "file").touch()
    (tmp_path / ".elmo-hf-killed.lock").touch()
    with FileLock(tmp_path / ".elmo-hf-living.lock"), temporary_folder() as folder:
        (folder / "file").touch()
        assert folder.stat().st_mode & 0o777 == 0o700
        kept = {".elmo-hf-living.lock", ".elmo-hf-living.partial"}
        assert {*names(tmp_path)} == kept | {folder.name, folder.name.replace(".partial", ".lock")}
    assert {*names(tmp_path)} <= kept


def write_arrays(guarded: GuardedFile) -> None:
    with guarded, h5py.File(guarded, "w") as file:
        for index in range(100):
            file.create_dataset(str(index), data=np.full(1000, index, dtype=np.float32))
            guarded.check()


@pytest.mark.parametrize("room", [0, 100, 5_000, 50_000])
def test_hdf5_survives_a_full_disk(room: int, tmp_path: Path) -> None:
    guarded = GuardedFile(tmp_path / "out.hdf5")
    guarded._file = FullFile(guarded._file, room)
    with pytest.raises(OSError, match="No space left on device"):
        write_arrays(guarded)


def test_a_guarded_file_holds_what_hdf5_wrote(tmp_path: Path) -> None:
    write_arrays(GuardedFile(tmp_path / "out.hdf5"))
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert [file[str(index)][999] for index in range(100)] == list(range(100))


def test_a_new_file_waits_for_another_writer(tmp_path: Path) -> None:
    started = threading.Event()

    def write_first() -> None:
        with only_writer(tmp_path / "out"):
            started.set()
            time.sleep(0.3)

    thread = threading.Thread(target=write_first)
    thread.start()
    started.wait()
    with new_file(tmp_path / "out") as partial:
        partial.write_text("second")
    thread.join()
    assert (tmp_path / "out").read_text() == "second"
