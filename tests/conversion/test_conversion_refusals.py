"""What a conversion refuses: one table of inputs, each with what the error must name; and nothing is written.

A row makes a SOURCE in an empty folder, alone or with what is given beside it. The sentence is not pinned.
"""

import gzip
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from archives import (
    MANYLANGS,
    OPTIONS_KEY,
    PREFIX,
    archive_files,
    config_json,
    golden_state,
    manylangs_files,
    nlpl_files,
    state_bytes,
    without_part,
    write_files,
    write_tar,
    write_zip,
)
from checkpoints import BASE, CELL, EDGES, TINY_LM, VOCABULARY, Arrays, base_checkpoint, write_datasets
from hub_modules import LOGITS, saved_by_tensorflow_2, variables_of, write_module
from language_models import WORDS, random_language_model, save_directory, words_file
from tensor_bundles import (
    block,
    field,
    header_message,
    index_file,
    masked_crc,
    table,
    tensor_message,
    varint,
    write_bundle,
)

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError

CASE = "base_2l_relu"
ABSENT = object()
Made = Path | tuple[Path, Given]
Maker = Callable[[Path], Made]
Rows = dict[str, tuple[Maker, tuple[str, ...]]]


def checkpoint(options: Any = None, arrays: Arrays | None = None) -> Maker:
    """The golden case as a folder, with other options (any value, or bytes) or other arrays."""

    def make(folder: Path) -> Path:
        own_options, own_arrays = base_checkpoint()
        text = options if isinstance(options, bytes) else json.dumps(own_options if options is None else options)
        write_files(folder, {"options.json": text.encode() if isinstance(text, str) else text})
        write_datasets(folder / "weights.hdf5", own_arrays if arrays is None else arrays)
        return folder

    return make


def with_option(path: str, value: Any, kind: Any = checkpoint) -> Maker:
    """The golden case with one value of its options replaced or removed."""
    options, _ = base_checkpoint()
    *parents, key = path.split(".")
    place = options
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ABSENT:
        del place[key]
    return kind(options)


def with_array(name: str, change: Callable[[Any], Any]) -> Maker:
    """The golden case with one array changed, added, or removed if None."""
    _, arrays = base_checkpoint()
    changed = change(arrays.pop(name, None))
    return checkpoint(arrays=arrays if changed is None else arrays | {name: changed})


def with_weights(write: Callable[[bytes], bytes]) -> Maker:
    """The golden case with the bytes of its weights changed."""
    return with_files({"model.hdf5": write((BASE / "weights.hdf5").read_bytes())})


def with_hdf5(write: Callable[[h5py.File], object], without: str = "char_embed") -> Maker:
    """The golden case, one of whose arrays a function writes."""

    def make(folder: Path) -> Path:
        _, arrays = base_checkpoint()
        del arrays[without]
        made = checkpoint(arrays=arrays)(folder)
        with h5py.File(folder / "weights.hdf5", "a") as file:
            write(file)
        assert isinstance(made, Path)
        return made

    return make


def with_files(changes: Mapping[str, bytes | None], files: Callable[[], dict[str, bytes]] | None = None) -> Maker:
    """A folder of files, those of the golden case or others, with changes; None removes one."""

    def make(folder: Path) -> Path:
        whole = (files or (lambda: nlpl_files(CASE)))() | changes
        return write_files(folder, {name: content for name, content in whole.items() if content is not None})

    return make


def trained(changes: Mapping[str, bytes | None]) -> Maker:
    """The archive of a trained model with changed files."""

    def make(folder: Path) -> Path:
        files = {name: data for name, data in (archive_files(CASE) | changes).items() if data is not None}
        return write_tar(folder / "model.tar.gz", files)

    return make


def with_state(change: Callable[[Any], object]) -> Maker:
    """The archive of a trained model with a changed state dict."""
    state = golden_state(CASE)
    change(state)
    return trained({"weights.th": state_bytes(state)})


def manylangs(name: str, change: Callable[[bytes], bytes | None]) -> Maker:
    """ELMoForManyLangs' folder with one file changed."""
    return with_files({name: change(manylangs_files()[name])}, manylangs_files)


def manylangs_option(section: str, key: str, value: Any) -> Maker:
    def change(content: bytes) -> bytes:
        options = json.loads(content)
        options[section][key] = value
        return json.dumps(options).encode()

    return manylangs(ARCHITECTURE, change)


def module(variables: Mapping[str, Any]) -> Maker:
    return lambda folder: write_module(folder / "elmo", variables)


def changed(**changes: np.ndarray | None) -> dict[str, Any]:
    """Google's variables with others, or without them; `__` stands for `/`."""
    variables = dict(variables_of("google")) | {name.replace("__", "/"): array for name, array in changes.items()}
    return {name: array for name, array in variables.items() if array is not None}


def task(content: bytes) -> Maker:
    """A `.th` file alone, with the options that it needs."""

    def make(folder: Path) -> Made:
        return write_files(folder, {"task.th": content}) / "task.th", Given(BASE / "options.json")

    return make


def packed(files: dict[str, bytes], write: Callable[[Path, dict[str, bytes]], Path], name: str) -> Maker:
    return lambda folder: write(folder / name, files)


def tar_of(member: tarfile.TarInfo) -> Maker:
    def make(folder: Path) -> Path:
        with tarfile.open(folder / "model.tar.gz", "w:gz") as archive:
            archive.addfile(member)
        return folder / "model.tar.gz"

    return make


def link(kind: bytes) -> Maker:
    member = tarfile.TarInfo("weights.th")
    member.type, member.linkname = kind, "/etc/passwd"
    return tar_of(member)


def sparse(folder: Path) -> Path:
    block = bytearray(tarfile.TarInfo("weights.th").tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[386:410] = b"%011o\0%011o\0" % (0, 0)
    block[483:495] = b"%011o\0" % (1 << 32)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (folder / "model.tar.gz").write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    return folder / "model.tar.gz"


def linked_zip(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        member = zipfile.ZipInfo("options.json")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "/etc/passwd")
    return folder / "model.zip"


def cut(write: Callable[[Path, dict[str, bytes]], Path], name: str, files: dict[str, bytes]) -> Maker:
    def make(folder: Path) -> Path:
        path = write(folder / name, files)
        path.write_bytes(path.read_bytes()[:-30])
        return path

    return make


def language_model(change: Callable[[Path], Given | None]) -> Maker:
    """A language model in a folder, changed."""

    def make(folder: Path) -> Made:
        random_language_model(0, folder / "lm")
        return folder / "lm", change(folder / "lm") or Given()

    return make


def lm_option(name: str, value: Any) -> Maker:
    def change(folder: Path) -> None:
        options = json.loads((folder / "options.json").read_text())
        (folder / "options.json").write_text(json.dumps(options | {name: value}))

    return language_model(change)


def softmax(**arrays: Any) -> Maker:
    return language_model(
        lambda folder: write_datasets(folder / "softmax.hdf5", {f"softmax/{n}": a for n, a in arrays.items()}) and None
    )


def shared_softmax(matrix: np.ndarray | None) -> Maker:
    """A model whose softmax is its word table, with another matrix, or without the option."""

    def make(folder: Path) -> Made:
        options, arrays = save_directory("bi_word_shared", folder).read()
        if matrix is None:
            del options["share_embedding_softmax"]
        checkpoint(options, arrays if matrix is None else arrays | {"softmax/W": matrix})(folder)
        return folder, Given(vocabulary=folder / "vocab.txt")

    return make


def word_input(words: list[str] | None) -> Maker:
    """A model that reads words, with a vocabulary."""

    def make(folder: Path) -> Made:
        return EDGES / "bi_word_2", Given(vocabulary=None if words is None else words_file(folder, words))

    return make


def dump(arrays: Arrays, words: list[str] | None = VOCABULARY[:7]) -> Maker:
    """The golden case with a dump of token vectors."""

    def make(folder: Path) -> Made:
        path = write_datasets(folder / "dump.hdf5", arrays)
        return BASE, Given(vocabulary=None if words is None else words_file(folder, words), token_embeddings=path)

    return make


def bundle(message: bytes | None = None, index: bytes | None = None, header: bytes | None = None) -> Maker:
    """bilm-tf's save directory whose one tensor has such a message, or with such an index."""

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": (BASE / "options.json").read_bytes()})
        write_bundle(folder / "model.ckpt-1", {"lm/x": np.arange(4, dtype=np.float32)})
        messages = {"": header_message() if header is None else header, "lm/x": message or tensor()}
        (folder / "model.ckpt-1.index").write_bytes(index_file(messages) if index is None else index)
        return folder

    return make


def tensor(**changes: Any) -> bytes:
    """The message of a tensor, four numbers in the first 16 bytes, with changes."""
    data = np.arange(4, dtype=np.float32).tobytes()
    return tensor_message(
        **{"dtype": 1, "shape": (4,), "offset": 0, "size": 16, "checksum": masked_crc(data)} | changes
    )


def record(text: str) -> Maker:
    def make(folder: Path) -> Path:
        return write_files(folder, {"options.json": b"{}", "checkpoint": text.encode(), "model.ckpt-3.index": b""})

    return make


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


def zip_bytes(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def never_written(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), np.float32, chunks=(261, 4))


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(BASE / "weights.hdf5", "char_embed", shape=(261, 4))
    file.create_virtual_dataset("char_embed", layout)


def external(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), np.float32, external=[(str(BASE / "weights.hdf5"), 0, 4176)])


ARCHITECTURE = "cnn_50_100_512_4096_sample.json"
LSTM = f"{PREFIX}_elmo_lstm._elmo_lstm."
PROJ = "state_projection.weight"
ONES, RESTART = torch.ones(2), struct.pack("<2I", 0, 1)
B, W = np.ones(11, np.float32), np.ones((11, 7), np.float32)

OPTIONS: dict[str, list[Any]] = {
    "lstm": [3, ABSENT],
    "lstm.projection_dim": [ABSENT, -8],
    "lstm.dim": [ABSENT, "32", 10**4000],
    "lstm.n_layers": [0, True, 10**9],
    "lstm.use_skip_connections": ["yes"],
    "lstm.cell_clip": [-3, float("inf"), 10**400, True],
    "lstm.proj_clip": [float("nan"), [3]],
    "lstm.layer_norm": [True],
    "char_cnn": [None],
    "char_cnn.embedding": [ABSENT, 4],
    "char_cnn.embedding.dim": [ABSENT],
    "char_cnn.filters": [ABSENT, 7, [["1", 4]], [[51, 4]], [[1, 4]] * 400],
    "char_cnn.activation": [ABSENT, "gelu"],
    "char_cnn.n_highway": ["two", 10**9],
    "char_cnn.max_characters_per_token": [2, 10**9],
    "char_cnn.dilation": [2],
}
NAMES = {"lstm.layer_norm": "layer_norm", "char_cnn.dilation": "dilation"}

ROWS: Rows = {
    f"{path} {str(value)[:20]}": (with_option(path, value), ("options.json", NAMES.get(path, path)))
    for path, values in OPTIONS.items()
    for value in values
}
ROWS |= {
    f"options, {name}": (checkpoint(content), ("options.json",))
    for name, content in {
        "html": b"<html>Not found</html>",
        "not UTF-8": b"\xff\xfe{\x00",
        "a list": b"[1, 2]",
        "endless": b"[" * 100_000 + b"]" * 100_000,
        "long": b"[" + b"[]," * (4 << 20) + b"[]]",
    }.items()
}
ROWS |= {
    "options of other sizes": (with_option("char_cnn.embedding.dim", 5), ("weights.hdf5", "char_embed", "(261, 5)")),
    "options of more layers": (with_option("lstm.n_layers", 3), ("weights.hdf5", "Cell2/LSTMCell/W_0")),
    "options of fewer layers": (with_option("lstm.n_layers", 1), ("weights.hdf5", "Cell1/LSTMCell/B")),
    "options of words": (with_option("char_cnn", ABSENT), ("options.json", "embedding")),
    "array missing": (with_array(f"{CELL}/B", lambda array: None), ("weights.hdf5", f"{CELL}/B", "(128,)")),
    "CNN projection missing": (with_array("CNN_proj/W_proj", lambda array: None), ("char_projection",)),
    "table missing": (with_array("char_embed", lambda array: None), ("char_embed",)),
    "array unknown": (with_array("CNN/W_cnn_4", lambda array: np.ones((1, 5, 4, 8), np.float32)), ("CNN/W_cnn_4",)),
    "array turned": (with_array(f"{CELL}/W_0", lambda array: array.T), (f"{CELL}/W_0", "(128, 16)")),
    "table short": (with_array("char_embed", lambda array: array[:260]), ("char_embed", "260")),
    "table scalar": (with_array("char_embed", lambda array: array[0, 0]), ("char_embed",)),
    "whole numbers": (with_array("CNN/b_cnn_0", lambda array: array.astype(int)), ("CNN/b_cnn_0", "int64")),
    "nan": (with_array("CNN_high_1/W_carry", lambda array: array * np.nan), ("CNN_high_1/W_carry", "NaN")),
    "hdf5, text": (with_weights(lambda _: b"<html>404\n" * 9), ("model.hdf5",)),
    "hdf5, half": (with_weights(lambda content: content[: len(content) // 2]), ("model.hdf5",)),
    "hdf5, cut": (with_weights(lambda content: content[:-1]), ("model.hdf5",)),
    "hdf5, a name": (with_weights(lambda content: content.replace(b"char_embed", b"char_\xffmbed")), ("model.hdf5",)),
    "hdf5, virtual": (with_hdf5(virtual), ("char_embed", "in the file itself")),
    "hdf5, external": (with_hdf5(external), ("char_embed", "in the file itself")),
    "hdf5, link": (
        with_hdf5(lambda file: file.__setitem__("char_embed", h5py.ExternalLink(BASE / "weights.hdf5", "char_embed"))),
        ("char_embed",),
    ),
    "hdf5, lost chunks": (with_hdf5(never_written), ("weights.hdf5", "char_embed", "chunks")),
    "hdf5, no shape": (with_hdf5(lambda f: f.create_dataset("char_embed", data=h5py.Empty("f"))), ("char_embed",)),
    "two weights": (with_files({"b.hdf5": b""}), ("b.hdf5, meta.json, model.hdf5",)),
    "no options": (with_files({"options.json": None}), ("meta.json, model.hdf5",)),
    "two options": (with_files({"options.json": None, "a_options.json": b"", "b_options.json": b""}), ("b_options",)),
    "nothing": (with_files({}, dict), ("holds nothing", "a trained AllenNLP model")),
    "something else": (with_files({f"{n:02}.txt": b"" for n in range(22)}, dict), ("19.txt, and 2 more",)),
    "an export beside its checkpoint": (lambda _: TINY_LM, ("weights.hdf5", "model.ckpt-1.index")),
    "a dump alone": (lambda _: (BASE / "weights.hdf5", Given(token_embeddings=BASE / "weights.hdf5")), ("embedding",)),
    "dump, another array": (dump({"vectors": np.ones((7, 8), np.float32)}), ("dump.hdf5", "embedding", "vectors")),
    "dump, another width": (dump({"embedding": np.ones((7, 9), np.float32)}), ("embedding", "(7, 9)")),
    "dump, fewer rows": (dump({"embedding": np.ones((6, 8), np.float32)}), ("vocab.txt", "7")),
    "dump without words": (dump({"embedding": np.ones((7, 8), np.float32)}, None), ("--vocabulary FILE",)),
    "words without a vocabulary": (word_input(None), ("--vocabulary FILE",)),
    "words, more than rows": (word_input([*VOCABULARY, "more"]), ("vocab.txt", "33")),
    "words without boundaries": (word_input(VOCABULARY[3:]), ("vocab.txt", "<S>, </S>, <UNK>")),
}
ROWS |= {
    "softmax missing": (
        lambda folder: (language_model(lambda _: None)(folder)[0], Given(softmax=folder / "x.hdf5")),  # type: ignore[index]
        ("x.hdf5",),
    ),
    "softmax, html": (
        language_model(lambda folder: (folder / "softmax.hdf5").write_bytes(b"<html>404") and None),
        ("softmax.hdf5",),
    ),
    "softmax, the biLM": (
        language_model(lambda folder: Given(softmax=folder / "weights.hdf5")),
        ("weights.hdf5", "softmax/W"),
    ),
    "softmax twice": (
        lambda folder: (
            write_files(folder, {p.name: p.read_bytes() for p in TINY_LM.iterdir() if p.suffix != ".hdf5"}),
            Given(softmax=write_datasets(folder / "another.hdf5", {"softmax/b": B, "softmax/W": W})),
        ),
        ("model.ckpt-1.index", "another.hdf5"),
    ),
    "softmax, more": (softmax(b=B, W=W, c=B), ("softmax.hdf5", "softmax/c")),
    "softmax without matrix": (softmax(b=B), ("softmax/W", "(11, 7)")),
    "softmax, a scalar": (softmax(b=np.float32(1), W=W), ("options.json", "n_tokens_vocab")),
    "softmax of other sizes": (lm_option("n_tokens_vocab", 12), ("options.json", "n_tokens_vocab", "11")),
    "sampling": (lm_option("sample_softmax", "yes"), ("options.json", "sample_softmax")),
    "samples": (lm_option("n_negative_samples_batch", 12), ("options.json", "n_negative_samples_batch")),
    "shared by characters": (lm_option("share_embedding_softmax", True), ("share_embedding_softmax",)),
    "more words": (language_model(lambda f: words_file(f, [*WORDS, "more"]) and None), ("vocab.txt", "12", "11")),
}
ROWS |= {
    f"save directory, {name}": (maker, names)
    for name, (maker, names) in {
        "no index": (with_files({"options.json": b"{}", "model.ckpt-1.meta": b""}, dict), ("model.ckpt-1.index",)),
        "no options": (with_files({"model.ckpt-1.index": b"", "model.ckpt-1.meta": b""}, dict), ("options.json",)),
        "empty record": (record(""), ("checkpoint", "model_checkpoint_path", "model.ckpt-3.index")),
        "another record": (record('model_checkpoint_path: "x/model.ckpt-7"'), ("checkpoint", "model.ckpt-7")),
        "record of a folder": (record('model_checkpoint_path: ".."'), ("checkpoint", "model_checkpoint_path")),
        "unknown tensor": (bundle(), ("options.json", "char_embed")),
        "sliced": (bundle(tensor() + field(7, field(1, b""))), ("model.ckpt-1.data", "lm/x")),
        "text": (bundle(tensor(dtype=7)), ("model.ckpt-1.data", "lm/x")),
        "enormous shape": (bundle(tensor(shape=(2**62, 2**62))), ("lm/x",)),
        "enormous size": (bundle(tensor(shape=(2**40,), size=2**42)), ("model.ckpt-1.data", "lm/x")),
        "offset": (bundle(tensor(offset=2**63)), ("model.ckpt-1.data", "lm/x")),
        "another checksum": (bundle(tensor(checksum=0)), ("lm/x", "checksum")),
        "empty axes": (bundle(tensor(shape=(0, 2**63), size=0, checksum=masked_crc(b""))), ("model.ckpt-1.data",)),
        "many axes": (bundle(tensor(shape=(1,) * 99 + (4,))), ("lm/x",)),
        "big-endian": (bundle(header=header_message(endianness=1)), ("model.ckpt-1.index", "endianness")),
        "two of one name": (
            bundle(index=index_file({"": header_message(), "char_embed": tensor(), "lm/char_embed": tensor()})),
            ("char_embed",),
        ),
    }.items()
}
ROWS |= {
    f"index, {name}": (bundle(index=content), ("model.ckpt-1.index",))
    for name, content in {
        "html": b"<html>404</html>" * 9,
        "enormous": bytes(2 << 20),
        "compressed": table([block([(b"", b"")], compression=1)], [b""]),
        "value cut": raw_block(varint(0) + varint(1) + varint(9) + b"x" + RESTART),
        "endless number": raw_block(b"\xff" * 20 + RESTART),
        "many restarts": raw_block(struct.pack("<I", 2**32 - 1)),
        "block outside": index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
        "name": table([block([(b"\xff", b"")])], [b"\xff"]),
        "group": table([block([(b"x", varint(8 * 1 + 3))])], [b"x"]),
        "number for a shape": table([block([(b"x", field(2, 4))])], [b"x"]),
    }.items()
}
ROWS |= {
    f"trained, {name}": (maker, ("model.tar.gz", *names))
    for name, (maker, names) in {
        "no options": (trained({f"fta/{OPTIONS_KEY}": None}), ("--options FILE", "/home/them/options.json")),
        "two options": (trained({"fta/other.options_file": b"{}"}), ("--options FILE",)),
        "words": (trained({f"fta/{OPTIONS_KEY}": b'{"lstm": {"dim": 4, "projection_dim": 3}}'}), ("char_cnn",)),
        "fewer highways": (
            with_option(
                "char_cnn.n_highway",
                ABSENT,
                lambda options: trained({f"fta/{OPTIONS_KEY}": json.dumps(options).encode()}),
            ),
            ("_highways._layers.0.weight",),
        ),
        "configuration": (trained({"config.json": b"{"}), ("config.json",)),
        "dropout": (trained({"config.json": config_json(dropout=2)}), ("config.json", "dropout")),
        "layer norm": (trained({"config.json": config_json(do_layer_norm="false")}), ("do_layer_norm",)),
        "no ELMo": (trained({"weights.th": state_bytes({"encoder.weight": ONES})}), ("encoder",)),
        "two ELMos": (
            with_state(lambda s: s.update({f"second.{k}": v for k, v in s.items()})),
            (PREFIX, "second."),
        ),
        "no mix": (
            with_state(lambda s: [s.pop(k) for k in list(s) if "gamma" in k]),
            ("num_output_representations",),
        ),
        "a mix too short": (
            with_state(lambda s: s.pop(f"{PREFIX}scalar_mix_1.scalar_parameters.2")),
            ("scalar_mix_1.scalar_parameters", "(2,)"),
        ),
        "shared weights": (
            with_state(lambda s: s.update({f"{LSTM}forward_layer_0.{PROJ}": s[f"{LSTM}backward_layer_0.{PROJ}"]})),
            (f"forward_layer_0.{PROJ}", f"backward_layer_0.{PROJ}"),
        ),
    }.items()
}
ROWS |= {
    f"ManyLangs, {name}": (maker, names)
    for name, (maker, names) in {
        "no encoder": (manylangs("encoder.pkl", lambda _: None), ("encoder.pkl",)),
        "no lexicon": (manylangs("word.dic", lambda _: None), ("word.dic",)),
        "config names nothing": (manylangs("config.json", lambda _: b"{}"), ("config.json", "config_path")),
        "unknown config": (
            manylangs("config.json", lambda _: b'{"config_path": "C:\\\\models\\\\other.json"}'),
            ("config.json", "other.json"),
        ),
        "architecture": (manylangs(ARCHITECTURE, lambda _: b"3"), (ARCHITECTURE,)),
        "plain LSTM": (manylangs_option("encoder", "name", "lstm"), (ARCHITECTURE, "encoder.name", "lstm")),
        "word_dim": (manylangs_option("token_embedder", "word_dim", -1), (ARCHITECTURE, "token_embedder.word_dim")),
        "no words": (manylangs_option("token_embedder", "word_dim", 0), ("token_embedder.word_emb_layer",)),
        "clip": (manylangs_option("encoder", "cell_clip", "three"), ("encoder.cell_clip",)),
        "row beyond": (manylangs("word.dic", lambda lines: lines + b"more\t14\n"), ("word.dic", "line 15", "14")),
        "no tab": (manylangs("char.dic", lambda lines: lines + b"x 3\n"), ("char.dic", "line 34")),
        "row twice": (manylangs("char.dic", lambda lines: lines + b"x\t3\n"), ("char.dic", "line 34")),
        "endless number": (manylangs("char.dic", lambda lines: lines + b"x\t" + b"9" * 9990), ("char.dic",)),
        "not UTF-8": (manylangs("word.dic", lambda lines: lines + b"\xff\t3\n"), ("word.dic",)),
        "no unknown": (manylangs("word.dic", lambda _: b"a\t0\n"), ("word.dic", "<oov>")),
        "no marks": (manylangs("char.dic", lambda _: b"<oov>\t0\n"), ("<bos>", "<eos>", "<pad>")),
        "no table": (
            manylangs("token_embedder.pkl", lambda _: state_bytes({"projection.weight": ONES})),
            ("token_embedder.pkl", "char_emb_layer.embedding.weight"),
        ),
        "nothing to read": (
            with_files({}, lambda: nothing_read()),
            (ARCHITECTURE, "char_dim", "word_dim"),
        ),
    }.items()
}


def nothing_read() -> dict[str, bytes]:
    files = without_part(manylangs_files(), "word")
    options = json.loads(files[ARCHITECTURE])
    options["token_embedder"]["char_dim"] = 0
    return files | {ARCHITECTURE: json.dumps(options).encode()}


GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
GOOGLE = variables_of("google")
ROWS |= {
    f"module, {name}": (maker, names)
    for name, (maker, names) in {
        "a BERT": (module({"bert/embeddings/word_embeddings": W}), ("bilm/char_embed", "bert/embeddings")),
        "two ELMos": (
            module({f"{prefix}{name}": array for name, array in GOOGLE.items() for prefix in ("a/", "b/")}),
            ("'a/', 'b/'",),
        ),
        "no mix": (module(changed(aggregation__weights=None, aggregation__scaling=None)), ("aggregation/weights",)),
        "two mixes": (module(changed(aggregation__elmo_output_ELMo_W=LOGITS)), ("aggregation/elmo_output_ELMo_W",)),
        "another mix": (module(changed(aggregation__bias=LOGITS)), ("aggregation/bias", "(3,)")),
        "padding": (module(changed(bilm__char_embed=GOOGLE["bilm/char_embed"] + 1)), ("bilm/char_embed",)),
        "no lowest layer": (
            module(changed(**{"bilm/RNN_0/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/bias": None})),
            ("variables.index", "(16, 128)"),
        ),
        "one name twice": (
            module(saved_by_tensorflow_2(GOOGLE) | {"bilm/char_embed": LOGITS}),
            ("variables.index", "bilm/char_embed"),
        ),
        "graph cut": (module(saved_by_tensorflow_2(GOOGLE) | {GRAPH: b"\x0a\x09"}), ("variables.index",)),
        "graph of numbers": (module(saved_by_tensorflow_2(GOOGLE) | {GRAPH: LOGITS}), (GRAPH,)),
        "several": (
            lambda folder: (
                (write_module(folder / "x" / "a1", GOOGLE), write_module(folder / "x" / "b2", GOOGLE))[0].parent
            ),
            ("a1, b2",),
        ),
        "no variables": (with_files({"saved_model.pb": b"x"}, dict), ("variables.index", "saved_model.pb")),
    }.items()
}
ROWS |= {
    f"torch, {name}": (task(content), ("task.th", *names))
    for name, (content, names) in {
        "text": (b"<html>404", ()),
        "list": (state_bytes([ONES]), ("list",)),
        "nothing": (state_bytes({}), ()),
        "numbers": (state_bytes({3: ONES}), ()),
        "nested": (state_bytes({"w": {"w": ONES}}), ("`w`", "dict")),
        "sparse": (state_bytes({"w": torch.eye(3).to_sparse()}), ("`w`",)),
        "complex": (
            state_bytes(
                golden_state(CASE) | {"w": ONES, f"{PREFIX}_elmo_lstm._token_embedder._projection.bias": ONES * 1j}
            ),
            ("_projection.bias",),
        ),
        "a whole module": (state_bytes(torch.nn.Linear(2, 3)), ("torch.nn.modules.linear.Linear",)),
        "checksum": (state_bytes({"w": torch.full((9,), 2.5)}, as_zip=True).replace(b"\0\0 @", b"\0\0\x30@", 1), ()),
        "torn": (zip_bytes({"a/data.pkl": b"x" * 99})[:-30], ()),
        "cut": (state_bytes({"w": ONES})[:18], ()),
        "without end": (state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}), ("4,398,046,511,104",)),
    }.items()
}
OUTSIDE = ["../evil", "/evil", "a/../../evil", "a\\b", "C:x", "a/" * 30 + "b"]
ROWS |= {
    f"{write.__name__}, {name[:20]}": (packed(files(CASE) | {name: b"evil"}, write, f"model.{suffix}"), (name[:20],))
    for name in OUTSIDE
    for write, files, suffix in ((write_zip, nlpl_files, "zip"), (write_tar, archive_files, "tar.gz"))
}
ROWS |= {
    f"archive, {name}": (maker, ("model.", *names))
    for name, (maker, names) in {
        "symlink": (link(tarfile.SYMTYPE), ("weights.th",)),
        "hard link": (link(tarfile.LNKTYPE), ("weights.th",)),
        "device": (link(tarfile.CHRTYPE), ("weights.th",)),
        "fifo": (link(tarfile.FIFOTYPE), ("weights.th",)),
        "sparse": (sparse, ("weights.th",)),
        "link of a zip": (linked_zip, ("options.json",)),
        "zip cut": (cut(write_zip, "model.zip", nlpl_files(CASE)), ()),
        "tar cut": (cut(write_tar, "model.tar.gz", archive_files(CASE)), ()),
        "file and folder": (packed({"a": b"", "a/b": b""}, write_zip, "model.zip"), ()),
    }.items()
}
UNCONVERTED: dict[str, dict[str, bytes]] = {
    "MindSpore": {"elmo.ckpt": b"\n\x2a\n\x05embed\x12\x21\x08\x02\x12\x07Float32\x1a\x04abcd"},
    "Spark NLP": {"metadata/part-00000": b'{"class":"com.johnsnowlabs.nlp.embeddings.ElmoEmbeddings"}', "x": b"PK"},
    "PaddlePaddle": {"elmo.pdparams": b"\x80\x02"},
    "EduNLP": {"config.json": b'{"architecture": "ElmoLMForPreTraining"}', "vocab.txt": b"a"},
    "Transformer": {"config.json": b'{"type": "bidirectional_language_model_transformer"}', "weights.th": b"x"},
    "a matrix": {"es_best_mapping.pth": b"x"},
}
ROWS |= {
    "no use for options": (
        lambda _: (MANYLANGS, Given(vocabulary=Path("x"), options=Path("y"))),
        ("--voc",),
    ),
    "converted already": (with_files({"config.json": b"{}", "model.safetensors": b""}, dict), ("--to allennlp",)),
    "shared softmax without its option": (shared_softmax(None), ("softmax/W", "(32, 8)")),
    "shared softmax with a matrix": (shared_softmax(np.ones((32, 8), np.float32)), ("softmax/W", "(32, 8)")),
}
ROWS |= {f"another model, {name}": (with_files(files, dict), (name,)) for name, files in UNCONVERTED.items()}


@pytest.mark.parametrize(("make", "names"), ROWS.values(), ids=ROWS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_converted_is_named_and_nothing_is_written(
    make: Maker, names: tuple[str, ...], temporary: Path, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    made = make(tmp_path / "source")
    source, given = made if isinstance(made, tuple) else (made, Given())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConversionError) as caught:
        convert_source(source, tmp_path / "DEST", given)
    for name in names:
        assert name in str(caught.value)
    assert str(caught.value).isprintable() or "\n  " in str(caught.value)
    assert "weights_only=False" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before


class Code:
    """A pickle that makes a folder when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
def test_pickles_with_code_are_not_run(form: str, tmp_path: Path) -> None:
    state: Any = golden_state(CASE)
    state["code"] = Code(tmp_path / "marker")
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    (tmp_path / "alone").mkdir()
    sources = [
        write_tar(tmp_path / "model.tar.gz", archive_files(CASE) | {"weights.th": content}),
        write_files(tmp_path / "alone", {"weights.th": content}) / "weights.th",
        *(
            write_files(tmp_path / name, manylangs_files() | {name: content})
            for name in ("encoder.pkl", "token_embedder.pkl")
        ),
    ]
    for source in sources:
        with pytest.raises(ConversionError, match="run code"):
            convert_source(source, tmp_path / "DEST", Given())
    assert not (tmp_path / "marker").exists()
