"""Archives for tests: a trained AllenNLP model around a golden case, zips, and ELMoForManyLangs folders that vary."""

import io
import json
import re
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.helpers.checkpoints import FIXTURES, Arrays, read_datasets

MANYLANGS = FIXTURES / "efml_tiny"
PREFIX = "text_field_embedder.token_embedder_elmo._elmo."
OPTIONS_KEY = "model.text_field_embedder.token_embedders.elmo.options_file"
Mix = tuple[list[float], float]


def allennlp_state(arrays: Arrays, mixes: list[Mix]) -> OrderedDict[str, torch.Tensor]:
    """The state dict of AllenNLP's `Elmo` after loading hdf5 arrays, with a tagger's other parameters."""
    state: dict[str, np.ndarray] = {}
    token = f"{PREFIX}_elmo_lstm._token_embedder."
    table = arrays["char_embed"]
    state[f"{token}_char_embedding_weights"] = np.concatenate([np.zeros_like(table[:1]), table])
    for name, array in arrays.items():
        index = re.sub(r"\D", "", name)
        if name.startswith("CNN/W_cnn_"):
            state[f"{token}char_conv_{index}.weight"] = array.squeeze(0).transpose(2, 1, 0)
            state[f"{token}char_conv_{index}.bias"] = arrays[f"CNN/b_cnn_{index}"]
        elif name.endswith("/W_carry"):
            high = f"CNN_high_{index}"
            weights = [arrays[f"{high}/W_transform"].T, -1 * array.T]
            state[f"{token}_highways._layers.{index}.weight"] = np.concatenate(weights)
            biases = [arrays[f"{high}/b_transform"], -1 * arrays[f"{high}/b_carry"]]
            state[f"{token}_highways._layers.{index}.bias"] = np.concatenate(biases)
        elif cell := re.fullmatch(r"RNN_(\d)/RNN/MultiRNNCell/Cell(\d+)/LSTMCell/W_0", name):
            theirs = f"{PREFIX}_elmo_lstm._elmo_lstm.{('forward', 'backward')[int(cell[1])]}_layer_{cell[2]}."
            i, j, f, o = np.split(array.T, 4)
            kernel = np.concatenate([i, f, j, o])
            size = kernel.shape[1] // 2
            state[f"{theirs}input_linearity.weight"] = kernel[:, :size]
            state[f"{theirs}state_linearity.weight"] = kernel[:, size:]
            i, j, f, o = np.split(arrays[name.replace("W_0", "B")], 4)
            state[f"{theirs}state_linearity.bias"] = np.concatenate([i, f + np.float32(1), j, o])
            state[f"{theirs}state_projection.weight"] = arrays[name.replace("W_0", "W_P_0")].T
    state[f"{token}_projection.weight"] = arrays["CNN_proj/W_proj"].T
    state[f"{token}_projection.bias"] = arrays["CNN_proj/b_proj"]
    for index, (scalars, gamma) in enumerate(mixes):
        state[f"{PREFIX}scalar_mix_{index}.gamma"] = np.array([gamma], np.float32)
        for layer, scalar in enumerate(scalars):
            state[f"{PREFIX}scalar_mix_{index}.scalar_parameters.{layer}"] = np.array([scalar], np.float32)
    state["encoder._module.weight_ih_l0"] = np.ones((6, 4), np.float32)
    state["encoder._module.weight_hh_l0"] = np.ones((6, 2), np.float32)
    state["tag_projection_layer._module.weight"] = np.ones((3, 2), np.float32)
    return OrderedDict((name, torch.from_numpy(np.ascontiguousarray(array))) for name, array in state.items())


def golden_state(case: str, num_mixes: int = 3) -> OrderedDict[str, torch.Tensor]:
    """The golden case with its own mixes, the first `num_mixes` of three."""
    expected = np.load(FIXTURES / case / "expected.npz")
    pairs = zip(expected["mix_scalars"].tolist(), expected["mix_gammas"].tolist(), strict=True)
    return allennlp_state(read_datasets(FIXTURES / case / "weights.hdf5"), list(pairs)[:num_mixes])


def config_json(**elmo: Any) -> bytes:
    embedder = {"type": "elmo_token_embedder", "options_file": "/home/them/options.json", "weight_file": "w.hdf5"}
    model = {"type": "simple_tagger", "text_field_embedder": {"token_embedders": {"elmo": embedder | elmo}}}
    return json.dumps({"dataset_reader": {"type": "conll2003"}, "model": model}).encode()


def state_bytes(state: Any, *, as_zip: bool = False) -> bytes:
    """The bytes that torch.save writes, in its older or newer form."""
    content = io.BytesIO()
    torch.save(state, content, _use_new_zipfile_serialization=as_zip)
    return content.getvalue()


def archive_files(case: str, **elmo: Any) -> dict[str, bytes]:
    """The files of an archive with its options inside, as AllenNLP 0.9 made them."""
    return {
        "config.json": config_json(**elmo),
        "weights.th": state_bytes(golden_state(case)),
        "vocabulary/labels.txt": b"O\nI-PER\n",
        "files_to_archive.json": json.dumps({OPTIONS_KEY: "/home/them/options.json"}).encode(),
        f"fta/{OPTIONS_KEY}": (FIXTURES / case / "options.json").read_bytes(),
    }


def write_tar(path: Path, files: dict[str, bytes], compression: str = "gz") -> Path:
    with tarfile.open(path, f"w:{compression}") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def read_files(folder: Path) -> dict[str, bytes]:
    """The contents of a folder's files, those in folders included."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def nlpl_files(case: str) -> dict[str, bytes]:
    """A golden case as the NLPL repository packs its models."""
    folder = FIXTURES / case
    return {
        "model.hdf5": (folder / "weights.hdf5").read_bytes(),
        "options.json": (folder / "options.json").read_bytes(),
        "vocab.txt": b"<S>\n</S>\n<UNK>\nthe\n",
        "meta.json": b'{"corpus": ["none"]}',
    }


def manylangs_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in MANYLANGS.iterdir() if path.suffix != ".npz"}


def without_part(files: dict[str, bytes], part: str) -> dict[str, bytes]:
    """That model without its words, or without its characters."""
    name = "cnn_50_100_512_4096_sample.json"
    options = json.loads(files[name])
    token = torch.load(io.BytesIO(files["token_embedder.pkl"]), weights_only=True)
    width = options["token_embedder"]["word_dim"]
    options["token_embedder"][f"{part}_dim"] = 0
    weight = token["projection.weight"]
    token["projection.weight"] = (weight[:, width:] if part == "word" else weight[:, :width]).clone()
    gone = ("word_emb_layer",) if part == "word" else ("char_emb_layer", "convolutions", "highways")
    kept = OrderedDict((key, value) for key, value in token.items() if not key.startswith(gone))
    changed = {name: json.dumps(options).encode(), "token_embedder.pkl": state_bytes(kept)}
    return {key: value for key, value in (files | changed).items() if key != f"{part}.dic"}
