"""`elmo-hf check` names a file that is missing, or changed since it was written."""

import hashlib
import shutil
from pathlib import Path

import pytest
from commands import assert_fails, run


@pytest.mark.parametrize("name", ["model.safetensors", "part-00000.parquet"])
def test_a_changed_file_is_named(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if name == "model.safetensors":
        shutil.copytree(tiny_folder, folder)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert (folder / "SHA256SUMS").read_text() == f"{digest}  {name}\n"  # as `sha256sum -c` reads it
    else:
        (tmp_path / "text.txt").write_text("A ferry\nYes\n")
        run("embed", tiny_folder, tmp_path / "text.txt", "-o", f"{folder}/")
    result = run("check", folder)
    assert (result.exit_code, "1 file" in result.stdout) == (0, True)
    content = bytearray((folder / name).read_bytes())
    content[-9] ^= 1
    (folder / name).write_bytes(content)
    assert_fails(run("check", folder), 1, name)
    (folder / name).unlink()
    assert_fails(run("check", folder), 1, name)
    assert_fails(run("check", tmp_path), 1, "SHA256SUMS")
