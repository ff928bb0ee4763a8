"""The page's class for flair, with stand-ins for flair, which cannot be installed beside this transformers."""

import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from pages import blocks, read
from typer.testing import CliRunner

from elmo_hf.cli import app


def test_tokens_get_the_vectors_of_their_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = SimpleNamespace(TokenEmbeddings=object, register_embeddings=lambda found: found)
    for name in ("flair", "flair.embeddings", "flair.embeddings.base"):
        monkeypatch.setitem(sys.modules, name, base)
    (tmp_path / "a.txt").write_text("The ferry left .\nYes .\n", encoding="utf-8")
    file, options = str(tmp_path / "a.hdf5"), ["--layers", "concat", "--split-into-words"]
    assert CliRunner().invoke(app, ["embed", "tiny", str(tmp_path / "a.txt"), "-o", file, *options]).exit_code == 0
    exec(blocks(read("neighbours"), "py")[0], names := {})
    found = []
    tokens = [SimpleNamespace(text=text, set_embedding=lambda _, vector: found.append(vector)) for text in ("Yes", ".")]
    names["ELMoEmbeddings"](file)._add_embeddings_internal([tokens])
    with h5py.File(file) as vectors:
        np.testing.assert_array_equal(np.stack(found), vectors["1"][()])
