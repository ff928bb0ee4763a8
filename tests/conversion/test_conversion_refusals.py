"""What a conversion refuses: one table of inputs, each with what the error must name; and nothing is written.

A row has a maker of `damaged_sources.py`. The sentence is not pinned.
"""

import os
import pickle
import struct
import tarfile
import tempfile
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
    config_json,
    golden_state,
    state_bytes,
    without_part,
    write_tar,
    write_zip,
)
from checkpoints import BASE, CELL, EDGES, VOCABULARY
from damaged_sources import (
    ABSENT,
    ARCHITECTURE,
    CASE,
    GOOGLE,
    HDF5,
    MANY,
    NLPL,
    ONES,
    RESTART,
    TRAINED,
    B,
    W,
    architecture,
    array,
    bundle,
    changed_options,
    checksum,
    external,
    files,
    hdf5,
    language_model,
    large_chunk,
    many,
    member,
    module,
    options,
    packed,
    raw_block,
    record,
    several,
    softmax,
    state,
    virtual,
    words,
    zip_of_a_link,
)
from hub_modules import LOGITS, saved_by_tensorflow_2
from language_models import WORDS, words_file
from tensor_bundles import (
    field,
    header_message,
    index_file,
    masked_crc,
    varint,
)

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.refusals import ConversionError

OPTIONS: dict[str, list[Any]] = {
    "lstm": [3, ABSENT],
    "lstm.projection_dim": [ABSENT, -8],
    "lstm.dim": ["32", 10**4000],
    "lstm.n_layers": [True, 10**9],
    "lstm.cell_clip": [-3, float("inf"), 10**400],
    "lstm.layer_norm": [True],
    "char_cnn": [None],
    "char_cnn.embedding": [4],
    "char_cnn.filters": [7],
    "char_cnn.activation": ["gelu"],
    "char_cnn.dilation": [2],
}
NAMES = {"lstm.layer_norm": "layer_norm", "char_cnn.dilation": "dilation"}
BIAS = f"{PREFIX}_elmo_lstm._token_embedder._projection.bias"
HUGE, TF2 = np.float64(1e300), saved_by_tensorflow_2(GOOGLE)
# By the beginning of a row's name: the maker, and what the error must name.
ROWS: dict[str, dict[str, tuple[Any, ...]]] = {
    "options, ": {
        f"{path} {str(value)[:20]}": (options(path, value), "options.json", NAMES.get(path, path))
        for path, values in OPTIONS.items()
        for value in values
    },
    "options, not ": {
        name: (files({"options.json": content}, NLPL), "options.json")
        for name, content in {
            "html": b"<html>Not found</html>",
            "a list": b"[1, 2]",
            "endless": b"[" * 100_000 + b"]" * 100_000,
            "long": b"[" + b"[]," * (4 << 20) + b"[]]",
        }.items()
    },
    "": {
        "options of fewer layers": (options("lstm.n_layers", 1), "model.hdf5", "Cell1/LSTMCell/B"),
        "options of words": (options("char_cnn", ABSENT), "options.json", "embedding"),
        "array missing": (array(f"{CELL}/B", lambda _: None), "weights.hdf5", f"{CELL}/B", "(128,)"),
        "CNN projection missing": (array("CNN_proj/W_proj", lambda _: None), "char_projection"),
        "array turned": (array(f"{CELL}/W_0", lambda a: a.T), f"{CELL}/W_0", "(128, 16)"),
        "table short": (array("char_embed", lambda a: a[:260]), "char_embed", "260"),
        "table scalar": (array("char_embed", lambda a: a[0, 0]), "char_embed"),
        "whole numbers": (array("CNN/b_cnn_0", lambda a: a.astype(int)), "CNN/b_cnn_0", "int64"),
        "nan": (array("CNN_high_1/W_carry", lambda a: a * np.nan), "CNN_high_1/W_carry", "NaN"),
        "double": (array("CNN_high_1/W_carry", lambda a: a * HUGE), "CNN_high_1/W_carry", "infinite"),
        "hdf5, text": (files({"model.hdf5": b"<html>404\n" * 9}, NLPL), "model.hdf5"),
        "hdf5, a name": (files({"model.hdf5": HDF5.replace(b"char_embed", b"char_\xffmbed")}, NLPL), "model.hdf5"),
        "hdf5, virtual": (hdf5(virtual), "char_embed", "in the file itself"),
        "hdf5, external": (hdf5(external), "char_embed", "in the file itself"),
        "hdf5, link": (
            hdf5(lambda f: f.__setitem__("char_embed", h5py.ExternalLink(BASE / "weights.hdf5", "char_embed"))),
            "char_embed",
        ),
        "hdf5, lost chunks": (
            hdf5(lambda f: f.create_dataset("char_embed", (261, 4), np.float32, chunks=(261, 4))),
            *("weights.hdf5", "char_embed", "chunks"),
        ),
        "hdf5, never written": (
            hdf5(lambda f: f.create_dataset("char_embed", (1 << 23,), "f4")),
            "when it is unpacked",
        ),
        "hdf5, a large chunk": (hdf5(large_chunk), "when it is unpacked"),
        "hdf5, no shape": (hdf5(lambda f: f.create_dataset("char_embed", data=h5py.Empty("f"))), "char_embed"),
        "two weights": (files({"b.hdf5": b""}, NLPL), "b.hdf5, meta.json, model.hdf5"),
        "two options": (files({"options.json": None, "a_options.json": b"", "b_options.json": b""}, NLPL), "b_options"),
        "nothing": (files({}), "found nothing", "a trained AllenNLP model", "--to allennlp"),
        "not there": (lambda folder: folder / "gone", "gone", "found nothing"),
        "no use for it": (lambda _: (MANYLANGS, Given(vocabulary=Path("x"), options=Path("y"))), "--vocabulary"),
        "dump, another array": (words(BASE, VOCABULARY[:7], {"vectors": W}), "embedding"),
        "dump, another width": (words(BASE, VOCABULARY[:7], {"embedding": W[:7]}), "embedding", "(7, 7)"),
        "dump without words": (words(BASE, None, {"embedding": np.ones((7, 8), np.float32)}), "--vocabulary FILE"),
        "words, more than rows": (words(EDGES / "bi_word_2", [*VOCABULARY, "more"]), "vocab.txt", "33"),
        "words without boundaries": (words(EDGES / "bi_word_2", VOCABULARY[3:]), "vocab.txt", "<S>, </S>, <UNK>"),
    },
    "softmax, ": {
        "other sizes": (language_model(n_tokens_vocab=12), "options.json", "n_tokens_vocab", "11"),
        "sampling": (language_model(sample_softmax="yes"), "options.json", "sample_softmax"),
        "samples": (language_model(n_negative_samples_batch=12), "n_negative_samples_batch"),
        "shared by characters": (language_model(share_embedding_softmax=True), "share_embedding_softmax"),
        "more words": (language_model(lambda f: words_file(f, [*WORDS, "more"])), "vocab.txt", "12", "11"),
        "fewer words": (language_model(lambda f: words_file(f, WORDS[:-1])), "vocab.txt", "10", "11"),
        "without matrix": (softmax(b=B), "softmax/W", "(11, 7)"),
        "a scalar": (softmax(b=np.float32(1), W=W), "options.json", "n_tokens_vocab"),
    },
    "save directory, ": {
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
        "two of one name": (
            bundle(index_file({"": header_message(), "char_embed": b"", "lm/char_embed": b""})),
            "char_embed",
        ),
    },
    "index, ": {
        name: (bundle(content), "model.ckpt-1.index")
        for name, content in {
            "html": b"<html>404</html>" * 9,
            "endless number": raw_block(b"\xff" * 20 + RESTART),
            "many restarts": raw_block(struct.pack("<I", 2**32 - 1)),
            "block outside": index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
            "name": raw_block(varint(0) + b"\1\0\xff" + RESTART),
        }.items()
    },
    "trained, ": {
        "no options": (packed({f"fta/{OPTIONS_KEY}": None}), "--options FILE", "/home/them/options.json"),
        "two options": (packed({"fta/other.options_file": b"{}"}), "model.tar.gz", "--options FILE"),
        "fewer highways": (
            packed({f"fta/{OPTIONS_KEY}": changed_options("char_cnn.n_highway", 0)}),
            *("model.tar.gz", "_highways._layers.0.weight"),
        ),
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
    },
    "ManyLangs, ": {
        "no encoder": (many("encoder.pkl", None), "encoder.pkl"),
        "unknown config": (
            many("config.json", b'{"config_path": "C:\\\\x\\\\other.json"}'),
            "config.json",
            "other.json",
        ),
        "another size": (many(ARCHITECTURE, None), "token_embedder.convolutions.3.weight", "(128, 50, 4)"),
        "architecture": (many(ARCHITECTURE, b"3"), ARCHITECTURE),
        "plain LSTM": (architecture("encoder.name", "lstm"), ARCHITECTURE, "encoder.name", "lstm"),
        "no words": (architecture("token_embedder.word_dim", 0), "token_embedder.word_emb_layer"),
        "row beyond": (many("word.dic", MANY["word.dic"] + b"more\t14\n"), "word.dic", "line 15", "14"),
        "no tab": (many("char.dic", MANY["char.dic"] + b"x 3\n"), "char.dic", "line 34"),
        "row twice": (many("char.dic", MANY["char.dic"] + b"x\t3\n"), "char.dic"),
        "endless number": (many("char.dic", MANY["char.dic"] + b"x\t" + b"9" * 9990), "char.dic"),
        "no unknown": (many("word.dic", b"a\t0\n"), "word.dic", "<oov>"),
        "no marks": (many("char.dic", b"<oov>\t0\n"), "<bos>", "<eos>", "<pad>"),
        "no table": (many("token_embedder.pkl", state_bytes({"projection.weight": ONES})), "char.dic"),
        "nothing": (architecture("token_embedder.char_dim", 0, without_part(MANY, "word")), "char.dic and word.dic"),
    },
    "module, ": {
        "a BERT": (module({"bert/embeddings/word_embeddings": W}), "bilm/char_embed", "bert/embeddings"),
        "two ELMos": (module({f"{p}{name}": a for name, a in GOOGLE.items() for p in ("a/", "b/")}), "'a/', 'b/'"),
        "no mix": (module(GOOGLE, aggregation__weights=None, aggregation__scaling=None), "aggregation/weights"),
        "two mixes": (module(GOOGLE, aggregation__elmo_output_ELMo_W=LOGITS), "aggregation/elmo_output_ELMo_W"),
        "padding": (module(GOOGLE, bilm__char_embed=GOOGLE["bilm/char_embed"] + 1), "bilm/char_embed"),
        "no lowest layer": (
            module(GOOGLE, bilm__RNN_0__RNN__MultiRNNCell__Cell0__rnn__lstm_cell__bias=None),
            *("variables.index", "Cell0/LSTMCell/B"),
        ),
        "one name twice": (module(TF2, bilm__char_embed=LOGITS), "variables.index", "bilm/char_embed"),
        "graph cut": (module(TF2 | {"_CHECKPOINTABLE_OBJECT_GRAPH": b"\x0a\x09"}), "variables.index"),
        "several": (several, "a1, b2"),
        "no variables": (files({"saved_model.pb": b"x"}), "variables.index", "saved_model.pb"),
    },
    "torch, ": {
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
        }.items()
    },
    "archive, ": {
        f"{write.__name__} {name[:20]}": (packed({name: b"evil"}, whole, write), name[:20])
        for name in ("../evil", "/evil", "a/../../evil", "a\\b", "C:x", "a/" * 30 + "b")
        for write, whole in ((write_zip, NLPL), (write_tar, TRAINED))
    }
    | {
        f"entry {kind!r}": (member(kind), "model.tar.gz", "weights.th")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE)
    }
    | {
        "link of a zip": (files({"model.zip": zip_of_a_link()}, given="model.zip"), "options.json"),
        "file and folder": (packed({"a": b"", "a/b": b""}, {}, write_zip), "model.zip"),
        "checksum": (checksum, "model.tar.gz"),
    },
}


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{begin}{name}") for begin, rows in ROWS.items() for name, row in rows.items()],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
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

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("form", ["old", "new", "plain"])
def test_pickles_with_code_are_not_run(form: str, tmp_path: Path) -> None:
    state: Any = golden_state(CASE)
    state["code"] = Code(tmp_path / "marker")
    content = pickle.dumps(dict(state)) if form == "plain" else state_bytes(state, as_zip=form == "new")
    for name, make in (("trained", packed({"weights.th": content})), ("many", many("token_embedder.pkl", content))):
        (tmp_path / name).mkdir()
        source = make(tmp_path / name)
        assert isinstance(source, Path)
        with pytest.raises(ConversionError, match="run code"):
            convert_source(source, tmp_path / "DEST", Given())
    assert not (tmp_path / "marker").exists()
