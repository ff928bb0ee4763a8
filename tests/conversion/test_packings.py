"""Every packing of a checkpoint becomes the same folder: the witness's numbers, and the digest of what was given."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source
from tests.helpers.archives import (
    archive_files,
    golden_state,
    manylangs_files,
    nlpl_files,
    read_files,
    state_bytes,
    write_files,
    write_tar,
    write_zip,
)
from tests.helpers.checkpoints import BASE, SAVES, VOCABULARY, bits, converted, digested
from tests.helpers.hub_modules import LOGITS, SCALE, saved_by_tensorflow_2, variables_of, write_module
from tests.helpers.language_models import state_of

Maker = Callable[[Path], Path]
Files = dict[str, bytes]


def pack(files: Files, name: str = "") -> Maker:
    """A folder of files as the SOURCE, or what has this name: a file in the folder, or the archive `x.*` of all."""

    def make(work: Path) -> Path:
        if name.startswith("x.tar."):
            return write_tar(work / name, files, name.rpartition(".")[2])
        return write_zip(work / name, files) if name == "x.zip" else write_files(work, files) / name

    return make


def below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}


def in_cache(work: Path) -> Path:
    """A module as TF-Hub's cache holds it."""
    write_module(work / "9bb74bc86f9caffc8c47dd7b33ec4bb354d9602d", GOOGLE)
    (work / "9bb74bc86f9caffc8c47dd7b33ec4bb354d9602d.descriptor.txt").write_text("Module: https://tfhub.dev/google")
    return work


NLPL, TRAINED, MANY = nlpl_files(BASE.name), archive_files(BASE.name), manylangs_files()
OPTIONS = {"options.json": (SAVES / "bi_char_1layer" / "options.json").read_bytes()}
OPTIONS["vocab.txt"] = "".join(f"{word}\n" for word in VOCABULARY).encode()
SAVE = {path.name: path.read_bytes() for path in (SAVES / "bi_char_1layer").iterdir()} | OPTIONS
INDEX = {name: content for name, content in SAVE.items() if name not in OPTIONS}
OF_ANOTHER = {"checkpoint": b'model_checkpoint_path: "model.ckpt-7"'}
GOOGLE = variables_of("google")
BEHIND = {f"module/{name}": array for name, array in GOOGLE.items()}
FORMATS: dict[str, dict[str, Maker]] = {
    "options and weights of AllenNLP, bilm-tf or simple_elmo": {
        "folder": pack(NLPL),
        "zip": pack(NLPL, "x.zip"),
        "beside a program, no module": pack(NLPL | {"saved_model.pb": b"x", "tf/saved_model.pb": b"x"}),
    },
    "a trained AllenNLP model": {
        "gz": pack(TRAINED, "x.tar.gz"),
        "bz2": pack(TRAINED, "x.tar.bz2"),
        "inside": pack(below("./m/n", TRAINED), "x.tar.gz"),
        "folder": pack(TRAINED),
        "training, options given": pack({"best.th": TRAINED["weights.th"], "config.json": TRAINED["config.json"]}),
        "alone, options given": pack({"one.th": state_bytes(golden_state(BASE.name), as_zip=True)}, "one.th"),
        "tar, options given": pack({name: each for name, each in TRAINED.items() if name[:4] != "fta/"}, "x.tar.gz"),
    },
    "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)": {
        "folder": pack(SAVE),
        "zip": pack(SAVE, "x.zip"),
        # An index that is named is taken, whatever the record beside it says.
        "index": pack(SAVE | OF_ANOTHER, "model.ckpt-6.index"),
        # DeepPavlov packs checkpoints one folder down.
        "below": pack(OPTIONS | below("saves", INDEX) | {"README.md": b"x"}),
        "tar of below": pack(OPTIONS | below("saves", INDEX), "x.tar.gz"),
        "all below": pack(below("saves", SAVE)),
    },
    "an ELMoForManyLangs model": {
        "folder": pack(MANY),
        "zip": pack(MANY, "x.zip"),
        "zip of a folder": pack(below("136", MANY), "x.zip"),
    },
    "a TensorFlow Hub module": {
        "folder": lambda work: write_module(work / "elmo", GOOGLE),
        "two shards": lambda work: write_module(work / "elmo", GOOGLE, num_shards=2),
        "variables alone": lambda work: write_module(work / "elmo", GOOGLE) / "variables",
        "cache": in_cache,
        "tar of a cache": lambda work: write_tar(work / "x.tar.gz", read_files(in_cache(work / "made"))),
        "behind module/": lambda work: write_module(work / "elmo", BEHIND),
        "TensorFlow 2": lambda work: write_module(work / "elmo", saved_by_tensorflow_2(BEHIND)),
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_packing_becomes_the_same_model(name: str, tiny_folder: Path, tmp_path: Path) -> None:
    found = {}
    for packing, make in FORMATS[name].items():
        (tmp_path / packing).mkdir()
        source, to = make(tmp_path / packing), tmp_path / f"{packing}.to"
        given = {"options": BASE / "options.json"} if packing.endswith("options given") else {}
        assert converted(source, to, **given)[0] == f"Found {name} in {source}."
        names = ("config.json", "tokenizer.json", "tokenizer_config.json", "words.txt")
        files = [(to / name).read_bytes() for name in names if (to / name).is_file()]
        found[packing] = bits(state_of(to)), files
        assert [*to.glob("elmo-hf-*")] == []  # where an archive is unpacked
        if source.name.startswith("x."):
            assert digested(to) == [source.name, *(path.name for path in given.values())]
    first, *others = found.values()
    assert all(other == first for other in others), found.keys()
    if name == "a TensorFlow Hub module":
        mix = {"scalar_mixes.0.logits": LOGITS, "scalar_mixes.0.scale": np.array([SCALE])}
        assert first[0] == bits(state_of(tiny_folder) | mix)


def test_a_folder_is_not_published_with_unpacked_files_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def fail_inside(path: str | Path, ignore_errors: bool = False, **options: Any) -> None:
        if not Path(path).name.startswith("elmo-hf-"):
            remove(path, ignore_errors, **options)
        elif not ignore_errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(shutil, "rmtree", fail_inside)
    with pytest.raises(OSError, match="Input/output error"):
        convert_source(write_zip(tmp_path / "x.zip", NLPL), tmp_path / "out", NamedFiles())
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]
