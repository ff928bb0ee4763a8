"""Files and folders appear whole or not at all; one process writes them; a full disk is named; checksums."""

import contextlib
import errno
import resource
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from safetensors import SafetensorError

from elmo_hf.disk.checksums import SUMS, sums_agree, write_sums
from elmo_hf.disk.guarded_file import GuardedFile
from elmo_hf.disk.whole_files import new_file, new_folder, only_writer, refuse_existing, workplace

LEFT = [".out.lock", ".out.partial"]
Make = Callable[[Path], AbstractContextManager[Path]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leave(folder: Path) -> None:
    """What a process that was killed while it wrote a folder leaves."""
    (folder / ".out.lock").touch()
    (folder / ".out.partial").mkdir()
    (folder / ".out.partial" / "half").touch()


def write_and_raise(place: AbstractContextManager[Path], error: Exception) -> None:
    with place as partial:
        (partial / "inside" if partial.is_dir() else partial).write_text("some of it")
        raise error


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_what_is_written_appears_in_the_end_and_nothing_stays_beside_it(make: Make, tmp_path: Path) -> None:
    leave(tmp_path)
    with make(tmp_path / "out") as partial:
        content = partial if make is new_file else partial / "inside"
        content.write_text("all of it")
        content.chmod(0o600)  # as safetensors writes
        assert names(tmp_path) == LEFT
    assert names(tmp_path) == ["out"]
    written = tmp_path / "out" / ("inside" if make is new_folder else "")
    assert written.read_text() == "all of it"
    (tmp_path / "plain").touch()
    assert written.stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("make", [new_file, new_folder])
def test_what_cannot_be_put_on_the_disk_does_not_get_its_name(make: Make, tmp_path: Path) -> None:
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


def test_a_second_writer_of_a_folder_is_refused(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out"), pytest.raises(BlockingIOError, match=r"/out "), new_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out"]


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


def test_a_file_that_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("first")
    with pytest.raises(FileExistsError, match="out was written by another"), new_file(tmp_path / "out", replaces=False):
        pass
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "first"


def test_a_lock_that_could_not_be_removed_is_not_published(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out") as folder:
        (folder / ".file.lock").touch()
        (folder / "file").touch()
    assert names(tmp_path / "out") == ["file"]


def test_a_folder_that_another_process_wrote_meanwhile_is_kept(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "out")
    (folder.__enter__() / "second").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "first").touch()
    with pytest.raises(OSError, match="not empty"):
        folder.__exit__(None, None, None)
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["first"]


def test_what_a_killed_process_left_beside_a_complete_folder_goes_and_what_a_living_one_writes_stays(
    tmp_path: Path,
) -> None:
    leave(tmp_path)
    (tmp_path / "out").mkdir()
    refuse_existing(tmp_path / "out")
    assert names(tmp_path) == [*LEFT, "out"]
    (tmp_path / "out" / "file").touch()
    for is_living in (False, True):
        with only_writer(tmp_path / "out") if is_living else contextlib.nullcontext():
            (tmp_path / ".out.partial").touch() if is_living else None
            with pytest.raises(FileExistsError):
                refuse_existing(tmp_path / "out")
            assert names(tmp_path) == [*(LEFT if is_living else []), "out"]


@pytest.mark.parametrize("make", [new_file, new_folder, workplace])
@pytest.mark.parametrize(
    ("error", "found"),
    [
        *((OSError(number, "no room"), "no room to write") for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "no room to write"),
        (SafetensorError("I/O error: Input/output error (os error 5)"), "out cannot be written: .*error 5"),
        (RuntimeError("open file failed because of errno 28 on fopen: No space left on device"), "no room to write"),
        (RuntimeError("open file failed with strerror: No space left on device"), "no room to write"),
        (RuntimeError("open file failed with strerror: Permission denied"), "out cannot be written: .*denied"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 662"), "no room to write"),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), "no room to write"),
        (RuntimeError("basic_ios::clear: iostream error"), "no room to write"),
        (PermissionError("not here"), "^not here$"),
    ],
    ids=repr,
)
def test_what_fails_leaves_nothing_and_a_full_disk_is_named(
    make: Make, error: Exception, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match=found):
        write_and_raise(make(Path("out")), error)
    assert names(tmp_path) == []


def test_what_cannot_be_removed_beside_a_complete_file_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with new_file(tmp_path / "out") as partial:
        partial.write_text("x")
        (tmp_path / ".out.lock").unlink()
        (tmp_path / ".out.lock").mkdir()
    assert names(tmp_path) == [".out.lock", "out"]
    assert ".out.lock is not needed" in caplog.text


def test_what_the_system_writes_in_parts_is_whole(tmp_path: Path) -> None:
    """A write that does not fit is done in part first; only the next one fails. What follows is dropped."""
    guarded, limits = GuardedFile(tmp_path / "out"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    try:
        assert guarded.write(b"more than 5") == 11
        with pytest.raises(OSError, match="File too large"):
            guarded.check()
        assert (guarded.write(b"again"), guarded.truncate(9)) == (5, 9)
        with pytest.raises(OSError, match="File too large"):
            guarded.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_list_is_what_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    for name in ("b", "a", "inside/c"):
        (tmp_path / name).write_text(name)
    assert not sums_agree(tmp_path)
    write_sums(tmp_path)
    assert sums_agree(tmp_path)
    (tmp_path / "inside" / "d").touch()
    assert not sums_agree(tmp_path)
    (tmp_path / "inside" / "d").unlink()
    checked = subprocess.run(["sha256sum", "-c", SUMS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert checked.stdout == "a: OK\nb: OK\ninside/c: OK\n"
    (tmp_path / SUMS).unlink()
    (tmp_path / "d").symlink_to("/proc/self/status")
    with pytest.raises(OSError, match="Invalid argument"):  # it is on no disk
        write_sums(tmp_path)
    assert not (tmp_path / SUMS).exists()
