"""Every packing of a checkpoint becomes the same folder: the witness's numbers, and the digest of what was given."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from archives import (
    archive_files,
    golden_state,
    manylangs_files,
    nlpl_files,
    state_bytes,
    write_files,
    write_tar,
    write_zip,
)
from checkpoints import BASE, SAVES, VOCABULARY, bits, converted
from hub_modules import LOGITS, SCALE, files_of, saved_by_tensorflow_2, variables_of, write_module
from language_models import state_of

Maker = Callable[[Path], Path]
Files = dict[str, bytes]


def plain(files: Files, source: str = "") -> Maker:
    """Files in a folder; the SOURCE is the folder, or what is called so in it."""
    return lambda work: write_files(work, files) / source


def tarred(files: Files, name: str = "x.tar.gz") -> Maker:
    return lambda work: write_tar(work / name, files, name.rpartition(".")[2])


def zipped(files: Files, compression: int = zipfile.ZIP_DEFLATED) -> Maker:
    return lambda work: write_zip(work / "x.zip", files, compression)


def below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}


def of_one_storage(content: bytes) -> bytes:
    """A state dict whose tensors are parts of one."""
    state = torch.load(io.BytesIO(content), weights_only=True)
    parts = torch.cat([tensor.flatten() for tensor in state.values()]).split([each.numel() for each in state.values()])
    views = {name: part.view(state[name].shape) for name, part in zip(state, parts, strict=True)}
    return state_bytes(views)


def in_cache(work: Path) -> Path:
    """A module as TF-Hub's cache holds it."""
    write_module(work / "9bb74bc86f9caffc8c47dd7b33ec4bb354d9602d", GOOGLE)
    (work / "9bb74bc86f9caffc8c47dd7b33ec4bb354d9602d.descriptor.txt").write_text("Module: https://tfhub.dev/google")
    return work


NLPL, TRAINED, MANY = nlpl_files(BASE.name), archive_files(BASE.name), manylangs_files()
NEWER = {
    name: state_bytes(torch.load(io.BytesIO(MANY[name]), weights_only=True), as_zip=True)
    for name in ("token_embedder.pkl", "encoder.pkl")
}
OPTIONS = {"options.json": (SAVES / "bi_char_1layer" / "options.json").read_bytes()}
OPTIONS["vocab.txt"] = "".join(f"{word}\n" for word in VOCABULARY).encode()
SAVE = {path.name: path.read_bytes() for path in (SAVES / "bi_char_1layer").iterdir()} | OPTIONS
INDEX = {name: content for name, content in SAVE.items() if name not in OPTIONS}
OF_ANOTHER = {"checkpoint": b'model_checkpoint_path: "model.ckpt-7"'}
GOOGLE = variables_of("google")
BEHIND = {f"module/{name}": array for name, array in GOOGLE.items()}
FORMATS: dict[str, dict[str, Maker]] = {
    "options and weights of AllenNLP, bilm-tf or simple_elmo": {
        "folder": plain(NLPL),
        "stored": zipped(NLPL, zipfile.ZIP_STORED),
        "deflated": zipped(NLPL),
        "beside a program, no module": plain(NLPL | {"saved_model.pb": b"x", "tf/saved_model.pb": b"x"}),
    },
    "a trained AllenNLP model": {
        "gz": tarred(TRAINED),
        "bz2": tarred(TRAINED, "x.tar.bz2"),
        "inside": tarred(below("./m/n", TRAINED)),
        "folder": plain(TRAINED),
        "training, options given": plain({"best.th": TRAINED["weights.th"], "config.json": TRAINED["config.json"]}),
        "alone, options given": plain({"one.th": state_bytes(golden_state(BASE.name), as_zip=True)}, "one.th"),
        "tar, options given": tarred({name: each for name, each in TRAINED.items() if name[:4] != "fta/"}),
    },
    "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)": {
        "folder": plain(SAVE),
        "zip": zipped(SAVE),
        # An index that is named is taken, whatever the record beside it says.
        "index": plain(SAVE | OF_ANOTHER, "model.ckpt-6.index"),
        # DeepPavlov packs checkpoints one folder down.
        "below": plain(OPTIONS | below("saves", INDEX) | {"README.md": b"x"}),
        "tar of below": tarred(OPTIONS | below("saves", INDEX)),
        "all below": plain(below("saves", SAVE)),
    },
    "an ELMoForManyLangs model": {
        "folder": plain(MANY),
        "zip": zipped(MANY),
        "zip of a folder": zipped(below("136", MANY)),
        "torch's newer files": plain(MANY | NEWER),
        "one storage": plain(MANY | {"encoder.pkl": of_one_storage(MANY["encoder.pkl"])}),
    },
    "a TensorFlow Hub module": {
        "folder": lambda work: write_module(work / "elmo", GOOGLE),
        "two shards": lambda work: write_module(work / "elmo", GOOGLE, num_shards=2),
        "variables alone": lambda work: write_module(work / "elmo", GOOGLE) / "variables",
        "cache": in_cache,
        "tar of a cache": lambda work: write_tar(work / "x.tar.gz", files_of(in_cache(work / "made"))),
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
        digested = re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", (to / "README.md").read_text(), re.MULTILINE)
        if source.name.startswith("x."):
            assert digested == [source.name, *(path.name for path in given.values())]
    first, *others = found.values()
    assert all(other == first for other in others), found.keys()
    if name == "a TensorFlow Hub module":
        mix = {"scalar_mixes.0.logits": LOGITS, "scalar_mixes.0.scale": np.array(SCALE)}
        assert first[0] == bits(state_of(tiny_folder) | mix)
