"""The list of a folder's files and their checksums."""

import subprocess
from pathlib import Path

import pytest

from elmo_hf.disk.checksums import SUMS, sums_agree, write_sums


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
