"""What a conversion refuses: a table for each format, of inputs and what the error must name; nothing is written.

A maker writes a SOURCE into an empty folder and returns it, alone or with what is given beside it. The sentence of the
error is not pinned.
"""

import gzip
import io
import json
import os
import pickle
import resource
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
from checkpoints import BASE, CELL, EDGES, VOCABULARY, Arrays, base_checkpoint, write_datasets
from hostile_checkpoints import HOSTILE_DATASETS
from hub_modules import LOGITS, saved_by_tensorflow_2, variables_of, write_module
from language_models import WORDS, random_language_model, words_file
from tensor_bundles import field, header_message, index_file, masked_crc, table, tensor_message, varint, write_bundle

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError

Made = Path | tuple[Path, Given]
Maker = Callable[[Path], Made]
Files = dict[str, bytes]
# By the name of an input: its maker, and what the error must name.
Rows = dict[str, tuple[Any, ...]]

CASE, BYTES = BASE.name, 1 << 30
TRAINED, NLPL, MANY, GOOGLE = archive_files(CASE), nlpl_files(CASE), manylangs_files(), variables_of("google")
OPTIONS, ARRAYS = base_checkpoint()
ONES, ABSENT, UNPACKED, ZEROS = torch.ones(2), object(), "when it is unpacked", bytes(64 << 20)


def changed(whole: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Files or arrays by name with changes, of which None removes one."""
    return {name: data for name, data in (whole | changes).items() if data is not None}


def files(changes: Mapping[str, bytes | None], whole: Mapping[str, bytes] = {}, given: str = "") -> Maker:
    """A folder of files with changes; the SOURCE is the folder, or the file `given`."""

    def make(folder: Path) -> Made:
        write_files(folder, changed(whole, changes))
        return (folder / given, Given(BASE / "options.json")) if given else folder

    return make


# --- options ----------------------------------------------------------------------------------------------------------


def options(path: str, value: Any, whole: Any = OPTIONS) -> bytes:
    """Options with one value replaced or removed."""
    whole = json.loads(json.dumps(whole))
    *parents, key = path.split(".")
    place = whole
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ABSENT:
        del place[key]
    return json.dumps(whole).encode()


VALUES: dict[str, list[Any]] = {
    "lstm": [3, ABSENT],
    "lstm.projection_dim": [ABSENT, -8],
    "lstm.dim": ["32", 10**4000],
    "lstm.n_layers": [True, 10**9],
    "lstm.cell_clip": [-3, float("inf"), 10**400],
    "char_cnn": [None],
    "char_cnn.embedding": [4],
    "char_cnn.filters": [7],
    "char_cnn.activation": ["gelu"],
}
OPTIONS_FILES: Rows = {
    f"{path} {str(value)[:20]}": (files({"options.json": options(path, value)}, NLPL), "options.json", path)
    for path, values in VALUES.items()
    for value in values
} | {
    name: (files({"options.json": content}, NLPL), "options.json", *names)
    for name, (content, *names) in {
        "html": (b"<html>Not found</html>",),
        "a list": (b"[1, 2]",),
        "endless": (b"[" * 100_000 + b"]" * 100_000,),
        "long": (b"[" + b"[]," * (4 << 20) + b"[]]",),
        "unknown key": (options("lstm.layer_norm", True), "layer_norm"),
        "unknown key of the CNN": (options("char_cnn.dilation", 2), "dilation"),
        "of words": (options("char_cnn", ABSENT), "embedding"),
    }.items()
}

# --- options and weights in hdf5 --------------------------------------------------------------------------------------


def hdf5(write: Callable[[h5py.File], object], name: str = "char_embed") -> Maker:
    """The golden case, whose weights have what a function writes in the place of an array."""

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": NLPL["options.json"], "weights.hdf5": NLPL["model.hdf5"]})
        with h5py.File(folder / "weights.hdf5", "a") as file:
            del file[name]
            write(file)
        return folder

    return make


def array(name: str, change: Callable[[np.ndarray], Any]) -> Maker:
    """The golden case with one array changed."""
    return hdf5(lambda file: file.create_dataset(name, data=change(ARRAYS[name])), name)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(BASE / "weights.hdf5", "char_embed", shape=(261, 4))
    file.create_virtual_dataset("char_embed", layout)


def external(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), "f4", external=[(str(BASE / "weights.hdf5"), 0, 4176)])


def linked(file: h5py.File) -> None:
    file["char_embed"] = h5py.ExternalLink(BASE / "weights.hdf5", "char_embed")


HDF5: Rows = {
    "fewer layers": (files({"options.json": options("lstm.n_layers", 1)}, NLPL), "model.hdf5", "Cell1/LSTMCell/B"),
    "array missing": (hdf5(lambda file: None, f"{CELL}/B"), "weights.hdf5", f"{CELL}/B", "(128,)"),
    "CNN projection missing": (hdf5(lambda file: None, "CNN_proj/W_proj"), "char_projection"),
    "array turned": (array(f"{CELL}/W_0", np.transpose), f"{CELL}/W_0", "(128, 16)"),
    "table short": (array("char_embed", lambda table: table[:260]), "char_embed", "260"),
    "table scalar": (array("char_embed", np.max), "char_embed"),
    "whole numbers": (array("CNN/b_cnn_0", lambda bias: bias.astype(int)), "CNN/b_cnn_0", "int64"),
    "nan": (array("CNN_high_1/W_carry", lambda weight: weight * np.nan), "CNN_high_1/W_carry", "NaN"),
    "double": (array("CNN_high_1/b_carry", lambda bias: bias * np.float64(1e300)), "CNN_high_1/b_carry", "infinite"),
    "text": (files({"model.hdf5": b"<html>404\n" * 9}, NLPL), "model.hdf5"),
    "a name": (files({"model.hdf5": NLPL["model.hdf5"].replace(b"char_embed", b"char_\xffmbed")}, NLPL), "model.hdf5"),
    "virtual": (hdf5(virtual), "char_embed", "in the file itself"),
    "external": (hdf5(external), "char_embed", "in the file itself"),
    "link": (hdf5(linked), "char_embed"),
    "no shape": (hdf5(lambda file: file.create_dataset("char_embed", data=h5py.Empty("f"))), "char_embed"),
    "lost chunks": (hdf5(HOSTILE_DATASETS["many_chunks"]), "weights.hdf5", "char_embed", "chunks"),
    "lost chunks, enormous": (
        hdf5(HOSTILE_DATASETS["overflowing_shape"]),
        "weights.hdf5",
        "char_embed",
        "chunks",
    ),
    "never written": (hdf5(HOSTILE_DATASETS["never_written"]), "weights.hdf5", UNPACKED),
    "a large chunk": (hdf5(HOSTILE_DATASETS["one_large_chunk"]), "weights.hdf5", UNPACKED),
    "a chunk longer than it says": (hdf5(HOSTILE_DATASETS["chunk_longer_than_said"]), "weights.hdf5"),
    "nested groups": (hdf5(HOSTILE_DATASETS["nested_groups"]), "weights.hdf5"),
}

# --- which files ------------------------------------------------------------------------------------------------------


def words(source: Path, vocabulary: list[str] | None, dump: Arrays | None = None) -> Maker:
    """A model with a vocabulary, and a dump of token vectors."""

    def make(folder: Path) -> Made:
        path = None if vocabulary is None else words_file(folder, vocabulary)
        vectors = None if dump is None else write_datasets(folder / "dump.hdf5", dump)
        return source, Given(vocabulary=path, token_embeddings=vectors)

    return make


VECTORS = np.ones((7, 8), np.float32)
SOURCES: Rows = {
    "two weights": (files({"b.hdf5": b""}, NLPL), "b.hdf5, meta.json, model.hdf5"),
    "two options": (files({"options.json": None, "a_options.json": b"", "b_options.json": b""}, NLPL), "b_options"),
    "nothing": (files({}), "found nothing", "a trained AllenNLP model", "--to allennlp"),
    "not there": (lambda folder: folder / "gone", "gone", "found nothing"),
    "no use for it": (lambda _: (MANYLANGS, Given(vocabulary=Path("x"), options=Path("y"))), "--vocabulary"),
    "dump, another array": (words(BASE, VOCABULARY[:7], {"vectors": VECTORS}), "embedding"),
    "dump, another width": (words(BASE, VOCABULARY[:7], {"embedding": VECTORS[:, :7]}), "embedding", "(7, 7)"),
    "dump without words": (words(BASE, None, {"embedding": VECTORS}), "--vocabulary FILE"),
    "words, more than rows": (words(EDGES / "bi_word_2", [*VOCABULARY, "more"]), "vocab.txt", "33"),
    "words without boundaries": (words(EDGES / "bi_word_2", VOCABULARY[3:]), "vocab.txt", "<S>, </S>, <UNK>"),
}

# --- a softmax in hdf5 ------------------------------------------------------------------------------------------------


def language_model(change: Callable[[Path], object] = lambda _: None, **options: Any) -> Maker:
    """A language model in a folder, with other options or changed."""

    def make(folder: Path) -> Path:
        random_language_model(0, folder / "lm", **options)
        change(folder / "lm")
        return folder / "lm"

    return make


def softmax(**arrays: Any) -> Maker:
    own = {f"softmax/{name}": array for name, array in arrays.items()}
    return language_model(lambda folder: write_datasets(folder / "softmax.hdf5", own))


SOFTMAX: Rows = {
    "other sizes": (language_model(n_tokens_vocab=12), "options.json", "n_tokens_vocab", "11"),
    "sampling": (language_model(sample_softmax="yes"), "options.json", "sample_softmax"),
    "samples": (language_model(n_negative_samples_batch=12), "n_negative_samples_batch"),
    "shared by characters": (language_model(share_embedding_softmax=True), "share_embedding_softmax"),
    "more words": (language_model(lambda folder: words_file(folder, [*WORDS, "more"])), "vocab.txt", "12", "11"),
    "fewer words": (language_model(lambda folder: words_file(folder, WORDS[:-1])), "vocab.txt", "10", "11"),
    "without matrix": (softmax(b=np.ones(11, np.float32)), "softmax/W", "(11, 7)"),
    "a scalar": (softmax(b=np.float32(1), W=np.ones((11, 7), np.float32)), "options.json", "n_tokens_vocab"),
}

# --- TensorFlow's checkpoints -----------------------------------------------------------------------------------------


def bundle(
    *names: str,
    header: bytes = header_message(),
    index: bytes | None = None,
    size: int = 4,
    more: bytes = b"",
    **facts: Any,
) -> Maker:
    """bilm-tf's save directory, whose index has other facts about one tensor, under names, or is another."""
    data = np.arange(size, dtype=np.float32)
    facts = {"dtype": 1, "shape": (size,), "offset": 0, "size": data.nbytes, "checksum": masked_crc(data)} | facts
    messages = {"": header} | dict.fromkeys(names or ["lm/x"], tensor_message(**facts) + more)

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": NLPL["options.json"]})
        write_bundle(folder / "model.ckpt-1", {"lm/x": data})
        (folder / "model.ckpt-1.index").write_bytes(index_file(messages) if index is None else index)
        return folder

    return make


def record(text: str) -> Maker:
    return files({"options.json": b"{}", "checkpoint": text.encode(), "model.ckpt-3.index": b""})


def raw_block(content: bytes) -> bytes:
    """An index whose only block has such bytes, with the right checksum."""
    content += b"\0"
    return table([content + struct.pack("<I", masked_crc(content))], [b"x"])


RESTART = struct.pack("<2I", 0, 1)
SAVE_DIRECTORIES: Rows = {
    "empty record": (record(""), "checkpoint", "model_checkpoint_path", "model.ckpt-3.index"),
    "another record": (record('model_checkpoint_path: "x/model.ckpt-7"'), "checkpoint", "model.ckpt-7"),
    "record of a folder": (record('model_checkpoint_path: ".."'), "checkpoint", "model_checkpoint_path"),
    "sliced": (bundle(more=field(7, field(1, b""))), "model.ckpt-1.data", "lm/x"),
    "text": (bundle(dtype=7), "model.ckpt-1.data", "lm/x"),
    "enormous shape": (bundle(shape=(2**62, 2**62)), "lm/x"),
    "offset": (bundle(offset=2**63), "model.ckpt-1.data"),
    "another checksum": (bundle(checksum=0), "lm/x", "checksum"),
    "empty axes": (bundle(shape=(0, 2**63), size=0, checksum=masked_crc(b"")), "model.ckpt-1.data"),
    "no data": (bundle(shard=3), "model.ckpt-1.data-00003"),
    "a shard of letters": (bundle(more=field(3, b"../x")), "model.ckpt-1"),
    "big-endian": (bundle(header=header_message(endianness=1)), "model.ckpt-1.index", "endianness"),
    "two of one name": (bundle("char_embed", "lm/char_embed"), "char_embed"),
    "many in one place": (bundle(*map(str, range(150)), size=1 << 18), "model.ckpt-1.data", UNPACKED),
} | {
    f"index, {name}": (bundle(index=content), "model.ckpt-1.index")
    for name, content in {
        "html": b"<html>404</html>" * 9,
        "endless number": raw_block(b"\xff" * 20 + RESTART),
        "many restarts": raw_block(struct.pack("<I", 2**32 - 1)),
        "block outside": index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
        "name": raw_block(varint(0) + b"\1\0\xff" + RESTART),
    }.items()
}

# --- TF-Hub modules ---------------------------------------------------------------------------------------------------


def module(changes: Mapping[str, Any], whole: Mapping[str, Any] = GOOGLE) -> Maker:
    """A TF-Hub module of changed variables."""
    return lambda folder: write_module(folder / "elmo", changed(whole, changes))


def several(folder: Path) -> Path:
    write_module(folder / "x" / "b2", GOOGLE)
    return write_module(folder / "x" / "a1", GOOGLE).parent


TF2 = saved_by_tensorflow_2(GOOGLE)
NO_LAYER = {"bilm/RNN_0/RNN/MultiRNNCell/Cell0/rnn/lstm_cell/bias": None}
MODULES: Rows = {
    "a BERT": (module({"bert/embeddings/word_embeddings": VECTORS}, {}), "bilm/char_embed", "bert/embeddings"),
    "two ELMos": (module({f"{place}/{name}": GOOGLE[name] for name in GOOGLE for place in "ab"}, {}), "'a/', 'b/'"),
    "no mix": (module({"aggregation/weights": None, "aggregation/scaling": None}), "aggregation/weights"),
    "two mixes": (module({"aggregation/elmo_output_ELMo_W": LOGITS}), "aggregation/elmo_output_ELMo_W"),
    "padding": (module({"bilm/char_embed": GOOGLE["bilm/char_embed"] + 1}), "bilm/char_embed"),
    "no lowest layer": (module(NO_LAYER), "variables.index", "Cell0/LSTMCell/B"),
    "one name twice": (module({"bilm/char_embed": LOGITS}, TF2), "variables.index", "bilm/char_embed"),
    "graph cut": (module({"_CHECKPOINTABLE_OBJECT_GRAPH": b"\x0a\x09"}, TF2), "variables.index"),
    "several": (several, "a1, b2"),
    "no variables": (files({"saved_model.pb": b"x"}), "variables.index", "saved_model.pb"),
}

# --- archives ---------------------------------------------------------------------------------------------------------


def packed(
    changes: Mapping[Any, bytes | None], whole: Files = TRAINED, write: Callable[[Path, Files], Path] = write_tar
) -> Maker:
    """The archive of files with changes, a trained model's or others."""
    return lambda folder: write(folder / f"model.{'zip' if write is write_zip else 'tar.gz'}", changed(whole, changes))


def checksum(folder: Path) -> Path:
    """An archive whose checksum is that of other bytes."""
    path = write_tar(folder / "model.tar.gz", TRAINED)
    content = path.read_bytes()
    path.write_bytes(content[:-8] + bytes([content[-8] ^ 1]) + content[-7:])
    return path


def member(kind: bytes) -> Maker:
    """An archive with an entry that is no plain file."""
    info = tarfile.TarInfo("weights.th")
    info.type, info.linkname = kind, "/etc/passwd"
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    if kind == tarfile.GNUTYPE_SPARSE:
        block[386:410] = b"%011o\0%011o\0" % (0, 0)
        block[483:495] = b"%011o\0" % (1 << 32)
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    return files({"model.tar.gz": gzip.compress(bytes(block) + bytes(1024))}, given="model.tar.gz")


LINK = zipfile.ZipInfo("options.json")
LINK.external_attr = 0o120777 << 16
ARCHIVES: Rows = {
    f"{write.__name__} {name[:20]}": (packed({name: b"evil"}, whole, write), name[:20])
    for name in ("../evil", "/evil", "a/../../evil", "a\\b", "C:x", "a/" * 30 + "b")
    for write, whole in ((write_zip, NLPL), (write_tar, TRAINED))
}
ARCHIVES |= {
    f"entry {kind!r}": (member(kind), "model.tar.gz", "weights.th")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)
}
FOLDER = tarfile.TarInfo("folder")
FOLDER.type = tarfile.DIRTYPE
ARCHIVES |= {
    "link of a zip": (packed({LINK: b"/etc/passwd"}, {}, write_zip), "options.json"),
    "file and folder": (packed({"a": b"", "a/b": b""}, {}, write_zip), "model.zip"),
    "tar of folders": (files({"x.tgz": gzip.compress(FOLDER.tobuf() * 10_001)}, given="x.tgz"), "10,000 plain files"),
    "zip of folders": (packed({f"{n}/": b"" for n in range(10_001)}, {}, write_zip), "10,000 plain files"),
    "tar of zeros": (packed({"more": ZEROS}), "model.tar.gz", UNPACKED),
    "zip of zeros": (packed({"more": ZEROS}, NLPL, write_zip), "model.zip", UNPACKED),
    "checksum": (checksum, "model.tar.gz"),
}

# --- torch's files ----------------------------------------------------------------------------------------------------

BIAS = f"{PREFIX}_elmo_lstm._token_embedder._projection.bias"
TORCH: Rows = {
    name: (files({"task.th": content}, given="task.th"), "task.th", *names)
    for name, (content, *names) in {
        "text": (b"<html>404",),
        "list": (state_bytes([ONES]), "list"),
        "nothing": (state_bytes({}),),
        "nested": (state_bytes({"w": {"w": ONES}}), "`w`", "dict"),
        "sparse": (state_bytes({"w": torch.eye(3).to_sparse()}),),
        "complex": (state_bytes(golden_state(CASE) | {"w": ONES, BIAS: ONES * 1j}), "_projection.bias"),
        "a whole module": (state_bytes(torch.nn.Linear(2, 3)), "torch.nn.modules.linear.Linear"),
        "bytes": (
            state_bytes({"w": torch.full((9,), 2.5)}, as_zip=True).replace(b"\0\0 @", b"\0\0\x30@", 1),
            "as its checksum says",
        ),
        "without end": (state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}), "4,398,046,511,104"),
        "zip of zeros": (write_zip(io.BytesIO(), {"a/data.pkl": ZEROS}).getvalue(), UNPACKED),
    }.items()
}


# --- trained AllenNLP models ------------------------------------------------------------------------------------------


def state(change: Callable[[Any], object]) -> Maker:
    """The archive of a trained model with a changed state dict."""
    changed_state = golden_state(CASE)
    change(changed_state)
    return packed({"weights.th": state_bytes(changed_state)})


FTA, NO_HIGHWAY = f"fta/{OPTIONS_KEY}", options("char_cnn.n_highway", 0)
ALLENNLP: Rows = {
    "no options": (packed({FTA: None}), "--options FILE", "/home/them/options.json"),
    "two options": (packed({"fta/other.options_file": b"{}"}), "model.tar.gz", "--options FILE"),
    "fewer highways": (packed({FTA: NO_HIGHWAY}), "model.tar.gz", "_highways._layers.0.weight"),
    "configuration": (packed({"config.json": b"{"}), "model.tar.gz", "config.json"),
    "dropout": (packed({"config.json": config_json(dropout=2)}), "model.tar.gz", "config.json", "dropout"),
    "layer norm": (packed({"config.json": config_json(do_layer_norm="false")}), "model.tar.gz", "do_layer_norm"),
    "no ELMo": (packed({"weights.th": state_bytes({"encoder.weight": ONES})}), "model.tar.gz", "encoder"),
    "two ELMos": (state(lambda s: s.update({f"second.{k}": v for k, v in s.items()})), PREFIX, "second."),
    "no mix": (state(lambda s: [s.pop(k) for k in list(s) if "gamma" in k]), "num_output_representations"),
    "a mix too short": (
        state(lambda s: s.pop(f"{PREFIX}scalar_mix_1.scalar_parameters.2")),
        *("model.tar.gz", "scalar_mix_1.scalar_parameters", "(2,)"),
    ),
}


# --- ELMoForManyLangs -------------------------------------------------------------------------------------------------


def many(name: str, data: bytes | None, whole: Files = MANY) -> Maker:
    return files({name: data}, whole)


def architecture(path: str, value: Any, whole: Files = MANY) -> Maker:
    return many(ARCHITECTURE, options(path, value, json.loads(whole[ARCHITECTURE])), whole)


ARCHITECTURE, CHARACTERS = "cnn_50_100_512_4096_sample.json", MANY["char.dic"]
ELSEWHERE = b'{"config_path": "C:\\\\x\\\\other.json"}'
MANYLANGS_ROWS: Rows = {
    "no encoder": (many("encoder.pkl", None), "encoder.pkl"),
    "unknown config": (many("config.json", ELSEWHERE), "config.json", "other.json"),
    "another size": (many(ARCHITECTURE, None), "token_embedder.convolutions.3.weight", "(128, 50, 4)"),
    "architecture": (many(ARCHITECTURE, b"3"), ARCHITECTURE),
    "plain LSTM": (architecture("encoder.name", "lstm"), ARCHITECTURE, "encoder.name", "lstm"),
    "no words": (architecture("token_embedder.word_dim", 0), "token_embedder.word_emb_layer"),
    "row beyond": (many("word.dic", MANY["word.dic"] + b"more\t14\n"), "word.dic", "line 15", "14"),
    "no tab": (many("char.dic", CHARACTERS + b"x 3\n"), "char.dic", "line 34"),
    "row twice": (many("char.dic", CHARACTERS + b"x\t3\n"), "char.dic"),
    "endless number": (many("char.dic", CHARACTERS + b"x\t" + b"9" * 9990), "char.dic"),
    "no unknown": (many("word.dic", b"a\t0\n"), "word.dic", "<oov>"),
    "no marks": (many("char.dic", b"<oov>\t0\n"), "<bos>", "<eos>", "<pad>"),
    "no table": (many("token_embedder.pkl", state_bytes({"projection.weight": ONES})), "char.dic"),
    "nothing": (architecture("token_embedder.char_dim", 0, without_part(MANY, "word")), "char.dic and word.dic"),
}

FORMATS = {
    "options": OPTIONS_FILES,
    "hdf5": HDF5,
    "source": SOURCES,
    "softmax": SOFTMAX,
    "save directory": SAVE_DIRECTORIES,
    "module": MODULES,
    "archive": ARCHIVES,
    "torch": TORCH,
    "trained": ALLENNLP,
    "ManyLangs": MANYLANGS_ROWS,
}


@pytest.fixture
def _one_gibibyte() -> Iterator[None]:
    """This process cannot take more memory, so a file that declares more must be refused before it is unpacked."""
    pages, limits = int(Path("/proc/self/statm").read_text().split()[0]), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=f"{begin}, {name}") for begin, rows in FORMATS.items() for name, row in rows.items()]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("_one_gibibyte")
def test_what_cannot_be_converted_is_named_and_nothing_is_written(
    row: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make, *names = row
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # where archives are unpacked
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

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("marker",)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
@pytest.mark.parametrize(("name", "make"), [("weights.th", packed), ("token_embedder.pkl", partial(files, whole=MANY))])
def test_pickles_with_code_are_not_run(
    name: str, make: Callable[[Files], Maker], form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state: Any = golden_state(CASE) | {"code": Code()}
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    with pytest.raises(ConversionError, match="run code"):
        convert_source(make({name: content})(tmp_path), tmp_path / "DEST", Given())
    assert not (tmp_path / "marker").exists()
