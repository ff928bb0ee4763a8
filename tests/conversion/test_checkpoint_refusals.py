"""Models that a conversion refuses: options, weights, vocabularies and softmaxes (`refused_sources.py`)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from elmo_hf.conversion.contract import NamedFiles
from tests.helpers.archives import (
    MANYLANGS,
    OPTIONS_KEY,
    PREFIX,
    config_json,
    golden_state,
    manylangs_files,
    state_bytes,
    without_part,
    write_files,
)
from tests.helpers.checkpoints import BASE, CELL, EDGES, VOCABULARY, Arrays, write_datasets
from tests.helpers.hostile_checkpoints import HOSTILE_DATASETS
from tests.helpers.language_models import WORDS, random_language_model, words_file
from tests.helpers.refused_sources import (
    ABSENT,
    ARRAYS,
    CASE,
    NLPL,
    ONES,
    UNPACKED,
    Files,
    Made,
    Maker,
    Rows,
    assert_refused,
    each_row,
    files,
    options,
    packed,
)

MANY = manylangs_files()

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


Writer = Callable[[h5py.File], object]


def hdf5(write: Writer, name: str = "char_embed") -> Maker:
    """The golden case, whose weights have what a function writes in the place of an array."""

    def make(folder: Path) -> Path:
        write_files(folder, {"options.json": NLPL["options.json"], "weights.hdf5": NLPL["model.hdf5"]})
        with h5py.File(folder / "weights.hdf5", "a") as file:
            del file[name]
            write(file)
        return folder

    return make


def array(name: str, change: Callable[[np.ndarray], Any]) -> Maker:
    return hdf5(lambda file: file.create_dataset(name, data=change(ARRAYS[name])), name)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(261, 4), dtype=np.float32)
    layout[:] = h5py.VirtualSource(BASE / "weights.hdf5", "char_embed", shape=(261, 4))
    file.create_virtual_dataset("char_embed", layout)


def external(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), "f4", external=[(str(BASE / "weights.hdf5"), 0, 4176)])


def linked(file: h5py.File) -> None:
    file["char_embed"] = h5py.ExternalLink(BASE / "weights.hdf5", "char_embed")


def never_written(shape: tuple[int, ...] = (261, 4), name: str = "char_embed", **settings: Any) -> Writer:
    return lambda file: file.create_dataset(name, shape, np.float32, **settings)


def first_chunk(file: h5py.File) -> None:
    file.create_dataset("char_embed", (261, 4), np.float32, chunks=(2, 4))[:2] = 1


def place_of_zeros(file: h5py.File) -> None:
    """An array that had its place at once, and no numbers."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5py.h5d.FILL_TIME_ALLOC)
    space = h5py.h5s.create_simple((261, 4))
    h5py.h5d.create(file.id, b"char_embed", h5py.h5t.NATIVE_FLOAT, space, dcpl=settings)


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
    "virtual": (hdf5(virtual), "char_embed", "in another file"),
    "external": (hdf5(external), "char_embed", "in another file"),
    "link": (hdf5(linked), "char_embed"),
    "no shape": (hdf5(lambda file: file.create_dataset("char_embed", data=h5py.Empty("f"))), "char_embed"),
    "lost chunks": (hdf5(HOSTILE_DATASETS["many_chunks"]), "weights.hdf5", "char_embed", "chunks"),
    "lost chunks, enormous": (hdf5(HOSTILE_DATASETS["overflowing_shape"]), "weights.hdf5", "char_embed", "chunks"),
    "a lost chunk": (hdf5(first_chunk), "weights.hdf5", "char_embed", "needs 131 chunks, but the file has 1 of them"),
    "never written": (
        hdf5(never_written()),
        "weights.hdf5",
        "char_embed",
        "needs 4,176 bytes, but the file has 0 of them",
    ),
    "never written, with a fill value": (hdf5(never_written(fillvalue=0.5)), "weights.hdf5", "char_embed", "written"),
    "never written, in chunks": (hdf5(never_written(chunks=(261, 4))), "weights.hdf5", "char_embed", "needs 1 chunks"),
    "never written, a bias": (hdf5(never_written((128,), f"{CELL}/B"), f"{CELL}/B"), "weights.hdf5", f"{CELL}/B"),
    "never written, enormous": (hdf5(HOSTILE_DATASETS["never_written"]), "weights.hdf5", "char_embed", "written"),
    "never filled": (hdf5(place_of_zeros), "weights.hdf5", "char_embed", "only zeros"),
    "a large chunk": (hdf5(HOSTILE_DATASETS["one_large_chunk"]), "weights.hdf5", UNPACKED),
    "a chunk longer than it says": (hdf5(HOSTILE_DATASETS["chunk_longer_than_said"]), "weights.hdf5"),
    "nested groups": (hdf5(HOSTILE_DATASETS["nested_groups"]), "weights.hdf5"),
}


def words(source: Path, vocabulary: list[str] | None, dump: Arrays | None = None) -> Maker:
    def make(folder: Path) -> Made:
        path = None if vocabulary is None else words_file(folder, vocabulary)
        vectors = None if dump is None else write_datasets(folder / "dump.hdf5", dump)
        return source, NamedFiles(vocabulary=path, token_embeddings=vectors)

    return make


VECTORS = np.ones((7, 8), np.float32)
SOURCES: Rows = {
    "two weights": (files({"b.hdf5": b""}, NLPL), "b.hdf5, meta.json, model.hdf5"),
    "two options": (files({"options.json": None, "a_options.json": b"", "b_options.json": b""}, NLPL), "b_options"),
    "nothing": (files({}), "is empty", "a trained AllenNLP model"),
    "another format": (files({"model.onnx": b""}), "holds model.onnx", "a trained AllenNLP model"),
    "converted already": (files({"model.safetensors": b""}), "`from_pretrained`", "`folder_to_allennlp`"),
    "two softmaxes": (files({"a_softmax.hdf5": b"", "b_softmax.hdf5": b""}, NLPL), "b_softmax.hdf5", "`softmax`"),
    "not there": (lambda folder: folder / "gone", "there is no folder or file", "gone"),
    "no use for it": (
        lambda _: (MANYLANGS, NamedFiles(vocabulary=Path(__file__), options=Path(__file__))),
        "takes no `options` or `vocabulary` file",
    ),
    "dump, another array": (words(BASE, VOCABULARY[:7], {"vectors": VECTORS}), "embedding"),
    "dump, another width": (words(BASE, VOCABULARY[:7], {"embedding": VECTORS[:, :7]}), "embedding", "(7, 7)"),
    "dump without words": (words(BASE, None, {"embedding": VECTORS}), "name the file as `vocabulary`"),
    "words, more than rows": (words(EDGES / "bi_word_2", [*VOCABULARY, "more"]), "vocab.txt", "33"),
    "words without boundaries": (words(EDGES / "bi_word_2", VOCABULARY[3:]), "vocab.txt", "<S>, </S>, <UNK>"),
}


def language_model(change: Callable[[Path], object] = lambda _: None, **options: Any) -> Maker:
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


def state(change: Callable[[Any], object]) -> Maker:
    changed_state = golden_state(CASE)
    change(changed_state)
    return packed({"weights.th": state_bytes(changed_state)})


FTA, NO_HIGHWAY = f"fta/{OPTIONS_KEY}", options("char_cnn.n_highway", 0)
ALLENNLP: Rows = {
    "no options": (packed({FTA: None}), "as `options`", "/home/them/options.json"),
    "two options": (packed({"fta/other.options_file": b"{}"}), "model.tar.gz", "as `options`"),
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
    "nothing": (
        architecture("token_embedder.char_dim", 0, without_part(MANY, "word")),
        "char.dic nor word.dic",
        "`word_dim`",
    ),
}


@each_row(
    {
        "options": OPTIONS_FILES,
        "hdf5": HDF5,
        "source": SOURCES,
        "softmax": SOFTMAX,
        "trained": ALLENNLP,
        "ManyLangs": MANYLANGS_ROWS,
    }
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_cannot_be_converted_is_named_and_nothing_is_written(row: tuple[Any, ...], tmp_path: Path) -> None:
    assert_refused(row, tmp_path)
