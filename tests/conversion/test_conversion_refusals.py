"""What a conversion refuses: one table of inputs, each with what the error must name; and nothing is written.

A row makes a SOURCE in an empty folder, alone or with what is given beside it. The sentence is not pinned.
"""

import json
import os
import pickle
import struct
import tarfile
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
    write_files,
    write_tar,
    write_zip,
)
from checkpoints import (
    BASE,
    CELL,
    TINY_LM,
    VOCABULARY,
    write_datasets,
)
from damaged_sources import (
    ABSENT,
    ARCHITECTURE,
    CASE,
    GOOGLE,
    GRAPH,
    HDF5,
    MANY,
    NLPL,
    ONES,
    RESTART,
    TRAINED,
    WORD_MODEL,
    B,
    Maker,
    Rows,
    W,
    architecture,
    array,
    arrays,
    bundle,
    changed_options,
    files,
    hdf5,
    language_model,
    many,
    member,
    module,
    options,
    packed,
    raw_block,
    record,
    shared_softmax,
    state,
    tensor,
    virtual,
    words,
    zip_of_a_link,
)
from hub_modules import LOGITS, saved_by_tensorflow_2, write_module
from language_models import WORDS, words_file
from tensor_bundles import field, header_message, index_file, masked_crc, varint

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
ROWS: Rows = {
    f"{path} {str(value)[:20]}": (
        arrays(lambda _: None, changed_options(path, value)),
        ("options.json", NAMES.get(path, path)),
    )
    for path, values in OPTIONS.items()
    for value in values
}
ROWS |= {
    f"options, {name}": (files({"options.json": content}, NLPL), ("options.json",))
    for name, content in {
        "html": b"<html>Not found</html>",
        "a list": b"[1, 2]",
        "endless": b"[" * 100_000 + b"]" * 100_000,
        "long": b"[" + b"[]," * (4 << 20) + b"[]]",
    }.items()
}


ROWS |= {
    "options of other sizes": (options("char_cnn.embedding.dim", 5), ("weights.hdf5", "char_embed", "(261, 5)")),
    "options of more layers": (options("lstm.n_layers", 3), ("weights.hdf5", "Cell2/LSTMCell/W_0")),
    "options of fewer layers": (options("lstm.n_layers", 1), ("weights.hdf5", "Cell1/LSTMCell/B")),
    "options of words": (options("char_cnn", ABSENT), ("options.json", "embedding")),
    "array missing": (array(f"{CELL}/B", lambda _: None), ("weights.hdf5", f"{CELL}/B", "(128,)")),
    "CNN projection missing": (array("CNN_proj/W_proj", lambda _: None), ("char_projection",)),
    "array unknown": (array("CNN/W_cnn_4", lambda _: np.ones((1, 5, 4, 8), np.float32)), ("CNN/W_cnn_4",)),
    "half of one direction": (array("RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0", lambda _: None), ("Cell1",)),
    "array turned": (array(f"{CELL}/W_0", lambda a: a.T), (f"{CELL}/W_0", "(128, 16)")),
    "table short": (array("char_embed", lambda a: a[:260]), ("char_embed", "260")),
    "table scalar": (array("char_embed", lambda a: a[0, 0]), ("char_embed",)),
    "whole numbers": (array("CNN/b_cnn_0", lambda a: a.astype(int)), ("CNN/b_cnn_0", "int64")),
    "nan": (array("CNN_high_1/W_carry", lambda a: a * np.nan), ("CNN_high_1/W_carry", "NaN")),
    "hdf5, text": (files({"model.hdf5": b"<html>404\n" * 9}, NLPL), ("model.hdf5",)),
    "hdf5, half": (files({"model.hdf5": HDF5[: len(HDF5) // 2]}, NLPL), ("model.hdf5",)),
    "hdf5, a name": (files({"model.hdf5": HDF5.replace(b"char_embed", b"char_\xffmbed")}, NLPL), ("model.hdf5",)),
    "hdf5, virtual": (hdf5(virtual), ("char_embed", "in the file itself")),
    "hdf5, external": (
        hdf5(
            lambda f: f.create_dataset("char_embed", (261, 4), "f4", external=[(str(BASE / "weights.hdf5"), 0, 4176)])
        ),
        ("char_embed", "in the file itself"),
    ),
    "hdf5, link": (
        hdf5(lambda f: f.__setitem__("char_embed", h5py.ExternalLink(BASE / "weights.hdf5", "char_embed"))),
        ("char_embed",),
    ),
    "hdf5, lost chunks": (
        hdf5(lambda f: f.create_dataset("char_embed", (261, 4), np.float32, chunks=(261, 4))),
        ("weights.hdf5", "char_embed", "chunks"),
    ),
    "hdf5, no shape": (hdf5(lambda f: f.create_dataset("char_embed", data=h5py.Empty("f"))), ("char_embed",)),
    "two weights": (files({"b.hdf5": b""}, NLPL), ("b.hdf5, meta.json, model.hdf5",)),
    "no options": (files({"options.json": None}, NLPL), ("meta.json, model.hdf5",)),
    "two options": (files({"options.json": None, "a_options.json": b"", "b_options.json": b""}, NLPL), ("b_options",)),
    "nothing": (files({}), ("found nothing", "a trained AllenNLP model")),
    "not there": (lambda folder: folder / "gone", ("gone", "found nothing")),
    "something else": (files({f"{n:02}.txt": b"" for n in range(22)}), ("19.txt, and 2 more", "--to allennlp")),
    "an export beside its checkpoint": (lambda _: TINY_LM, ("weights.hdf5", "model.ckpt-1.index")),
    "a file alone": (lambda folder: write_files(folder, {"x.hdf5": HDF5}) / "x.hdf5", ("x.hdf5", "--options FILE")),
    "no use for it": (lambda _: (MANYLANGS, Given(vocabulary=Path("x"), options=Path("y"))), ("--vocabulary",)),
    "dump, another array": (words(BASE, VOCABULARY[:7], {"vectors": W}), ("embedding",)),
    "dump, another width": (words(BASE, VOCABULARY[:7], {"embedding": W[:7]}), ("embedding", "(7, 7)")),
    "dump, fewer rows": (words(BASE, VOCABULARY[:7], {"embedding": np.ones((6, 8), "f4")}), ("vocab.txt", "7")),
    "dump without words": (words(BASE, None, {"embedding": np.ones((7, 8), np.float32)}), ("--vocabulary FILE",)),
    "words without a vocabulary": (words(WORD_MODEL, None), ("--vocabulary FILE",)),
    "words, more than rows": (words(WORD_MODEL, [*VOCABULARY, "more"]), ("vocab.txt", "33")),
    "words without boundaries": (words(WORD_MODEL, VOCABULARY[3:]), ("vocab.txt", "<S>, </S>, <UNK>")),
    "softmax missing": (language_model(lambda folder: Given(softmax=folder / "x.hdf5")), ("x.hdf5",)),
    "softmax, the biLM": (
        language_model(lambda folder: Given(softmax=folder / "weights.hdf5")),
        ("weights.hdf5", "softmax/W"),
    ),
    "softmax of other sizes": (
        language_model(lambda _: None, n_tokens_vocab=12),
        ("options.json", "n_tokens_vocab", "11"),
    ),
    "sampling": (language_model(lambda _: None, sample_softmax="yes"), ("options.json", "sample_softmax")),
    "samples": (language_model(lambda _: None, n_negative_samples_batch=12), ("n_negative_samples_batch",)),
    "shared by characters": (
        language_model(lambda _: None, share_embedding_softmax=True),
        ("share_embedding_softmax",),
    ),
    "shared, no option": (shared_softmax(None), ("softmax/W", "(32, 8)")),
    "shared, a matrix": (shared_softmax(np.ones((32, 8), np.float32)), ("softmax/W", "(32, 8)")),
    "more words": (language_model(lambda folder: words_file(folder, [*WORDS, "more"])), ("vocab.txt", "12", "11")),
}
ROWS |= {
    f"softmax, {name}": (language_model(lambda f, own=own: write_datasets(f / "softmax.hdf5", own) and None), names)
    for name, (own, names) in {
        "more": ({"softmax/b": B, "softmax/W": W, "softmax/c": B}, ("softmax/c",)),
        "without matrix": ({"softmax/b": B}, ("softmax/W", "(11, 7)")),
        "a scalar": ({"softmax/b": np.float32(1), "softmax/W": W}, ("options.json", "n_tokens_vocab")),
    }.items()
}
ROWS |= {
    f"save directory, {name}": (maker, names)
    for name, (maker, names) in {
        "no index": (files({"options.json": b"{}", "model.ckpt-1.meta": b""}), ("model.ckpt-1.meta",)),
        "no options": (files({"model.ckpt-1.index": b"", "model.ckpt-1.meta": b""}), ("options.json",)),
        "empty record": (record(""), ("checkpoint", "model_checkpoint_path", "model.ckpt-3.index")),
        "another record": (record('model_checkpoint_path: "x/model.ckpt-7"'), ("checkpoint", "model.ckpt-7")),
        "record of a folder": (record('model_checkpoint_path: ".."'), ("checkpoint", "model_checkpoint_path")),
        "unknown tensor": (bundle(), ("options.json", "char_embed")),
        "sliced": (bundle(tensor() + field(7, field(1, b""))), ("model.ckpt-1.data", "lm/x")),
        "text": (bundle(tensor(dtype=7)), ("model.ckpt-1.data", "lm/x")),
        "enormous shape": (bundle(tensor(shape=(2**62, 2**62))), ("lm/x",)),
        "enormous size": (bundle(tensor(shape=(2**40,), size=2**42)), ("model.ckpt-1.data",)),
        "offset": (bundle(tensor(offset=2**63)), ("model.ckpt-1.data",)),
        "behind the end": (bundle(tensor(shape=(9,), size=36)), ("model.ckpt-1.data",)),
        "another checksum": (bundle(tensor(checksum=0)), ("lm/x", "checksum")),
        "empty axes": (bundle(tensor(shape=(0, 2**63), size=0, checksum=masked_crc(b""))), ("model.ckpt-1.data",)),
        "many axes": (bundle(tensor(shape=(1,) * 99 + (4,))), ("model.ckpt-1.data",)),
        "no data": (bundle(tensor(shard=3)), ("model.ckpt-1.data-00003",)),
        "a shard of letters": (bundle(tensor() + field(3, b"../x")), ("model.ckpt-1",)),
        "a shape of numbers": (bundle(tensor() + field(2, 4)), ("model.ckpt-1.data",)),
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
        "value cut": raw_block(varint(0) + varint(1) + varint(9) + b"x" + RESTART),
        "endless number": raw_block(b"\xff" * 20 + RESTART),
        "many restarts": raw_block(struct.pack("<I", 2**32 - 1)),
        "block outside": index_file({})[:-48] + (varint(2**40) + varint(9)).ljust(40, b"\0") + index_file({})[-8:],
        "name": raw_block(varint(0) + b"\1\0\xff" + RESTART),
        "group": raw_block(varint(0) + b"\1\1x" + varint(8 * 1 + 3) + RESTART),
    }.items()
}
LSTM = f"{PREFIX}_elmo_lstm._elmo_lstm."
ROWS |= {
    f"trained, {name}": (maker, ("model.tar.gz", *names))
    for name, (maker, names) in {
        "no options": (packed({f"fta/{OPTIONS_KEY}": None}, TRAINED), ("--options FILE", "/home/them/options.json")),
        "two options": (packed({"fta/other.options_file": b"{}"}, TRAINED), ("--options FILE",)),
        "words": (packed({f"fta/{OPTIONS_KEY}": b'{"lstm": {"dim": 4, "projection_dim": 3}}'}, TRAINED), ("char_cnn",)),
        "fewer highways": (
            packed({f"fta/{OPTIONS_KEY}": json.dumps(changed_options("char_cnn.n_highway", 0)).encode()}, TRAINED),
            ("_highways._layers.0.weight",),
        ),
        "configuration": (packed({"config.json": b"{"}, TRAINED), ("config.json",)),
        "dropout": (packed({"config.json": config_json(dropout=2)}, TRAINED), ("config.json", "dropout")),
        "layer norm": (packed({"config.json": config_json(do_layer_norm="false")}, TRAINED), ("do_layer_norm",)),
        "no ELMo": (packed({"weights.th": state_bytes({"encoder.weight": ONES})}, TRAINED), ("encoder",)),
        "two ELMos": (state(lambda s: s.update({f"second.{k}": v for k, v in s.items()})), (PREFIX, "second.")),
        "no mix": (state(lambda s: [s.pop(k) for k in list(s) if "gamma" in k]), ("num_output_representations",)),
        "a mix too short": (
            state(lambda s: s.pop(f"{PREFIX}scalar_mix_1.scalar_parameters.2")),
            ("scalar_mix_1.scalar_parameters", "(2,)"),
        ),
    }.items()
}
NOTHING_READ = without_part(MANY, "word")
ROWS |= {
    f"ManyLangs, {name}": (maker, names)
    for name, (maker, names) in {
        "no encoder": (many("encoder.pkl", None), ("encoder.pkl",)),
        "no lexicon": (many("word.dic", None), ("word.dic",)),
        "config names nothing": (many("config.json", b"{}"), ("config.json", "config_path")),
        "unknown config": (
            many("config.json", b'{"config_path": "C:\\\\x\\\\other.json"}'),
            ("config.json", "other.json"),
        ),
        "another size": (many(ARCHITECTURE, None), ("token_embedder.convolutions.3.weight", "(128, 50, 4)")),
        "architecture": (many(ARCHITECTURE, b"3"), (ARCHITECTURE,)),
        "plain LSTM": (architecture("encoder.name", "lstm"), (ARCHITECTURE, "encoder.name", "lstm")),
        "word_dim": (architecture("token_embedder.word_dim", -1), (ARCHITECTURE, "token_embedder.word_dim")),
        "no words": (architecture("token_embedder.word_dim", 0), ("token_embedder.word_emb_layer",)),
        "clip": (architecture("encoder.cell_clip", "three"), ("encoder.cell_clip",)),
        "row beyond": (many("word.dic", MANY["word.dic"] + b"more\t14\n"), ("word.dic", "line 15", "14")),
        "no tab": (many("char.dic", MANY["char.dic"] + b"x 3\n"), ("char.dic", "line 34")),
        "row twice": (many("char.dic", MANY["char.dic"] + b"x\t3\n"), ("char.dic",)),
        "endless number": (many("char.dic", MANY["char.dic"] + b"x\t" + b"9" * 9990), ("char.dic",)),
        "not UTF-8": (many("word.dic", MANY["word.dic"] + b"\xff\t3\n"), ("word.dic",)),
        "no unknown": (many("word.dic", b"a\t0\n"), ("word.dic", "<oov>")),
        "no marks": (many("char.dic", b"<oov>\t0\n"), ("<bos>", "<eos>", "<pad>")),
        "no table": (many("token_embedder.pkl", state_bytes({"projection.weight": ONES})), ("char.dic",)),
        "nothing to read": (architecture("token_embedder.char_dim", 0, NOTHING_READ), ("char.dic and word.dic",)),
    }.items()
}
ROWS |= {
    f"module, {name}": (maker, names)
    for name, (maker, names) in {
        "a BERT": (module({"bert/embeddings/word_embeddings": W}), ("bilm/char_embed", "bert/embeddings")),
        "two ELMos": (module({f"{p}{name}": a for name, a in GOOGLE.items() for p in ("a/", "b/")}), ("'a/', 'b/'",)),
        "no mix": (module(GOOGLE, aggregation__weights=None, aggregation__scaling=None), ("aggregation/weights",)),
        "two mixes": (module(GOOGLE, aggregation__elmo_output_ELMo_W=LOGITS), ("aggregation/elmo_output_ELMo_W",)),
        "another mix": (module(GOOGLE, aggregation__bias=LOGITS), ("aggregation/bias", "(3,)")),
        "padding": (module(GOOGLE, bilm__char_embed=GOOGLE["bilm/char_embed"] + 1), ("bilm/char_embed",)),
        "no lowest layer": (
            module(GOOGLE, **{"bilm__RNN_0__RNN__MultiRNNCell__Cell0__rnn__lstm_cell__bias": None}),
            ("variables.index", "Cell0/LSTMCell/B"),
        ),
        "one name twice": (
            module(saved_by_tensorflow_2(GOOGLE), bilm__char_embed=LOGITS),
            ("variables.index", "bilm/char_embed"),
        ),
        "graph cut": (module(saved_by_tensorflow_2(GOOGLE) | {GRAPH: b"\x0a\x09"}), ("variables.index",)),
        "graph of numbers": (module(saved_by_tensorflow_2(GOOGLE) | {GRAPH: LOGITS}), ("variables.data",)),
        "several": (
            lambda folder: {write_module(folder / "x" / name, GOOGLE).parent for name in ("a1", "b2")}.pop(),
            ("a1, b2",),
        ),
        "no variables": (files({"saved_model.pb": b"x"}), ("variables.index", "saved_model.pb")),
    }.items()
}
BIAS = f"{PREFIX}_elmo_lstm._token_embedder._projection.bias"
ROWS |= {
    f"torch, {name}": (files({"task.th": content}, given="task.th"), ("task.th", *names))
    for name, (content, names) in {
        "text": (b"<html>404", ()),
        "list": (state_bytes([ONES]), ("list",)),
        "nothing": (state_bytes({}), ()),
        "numbers": (state_bytes({3: ONES}), ("3",)),
        "nested": (state_bytes({"w": {"w": ONES}}), ("`w`", "dict")),
        "sparse": (state_bytes({"w": torch.eye(3).to_sparse()}), ()),
        "complex": (state_bytes(golden_state(CASE) | {"w": ONES, BIAS: ONES * 1j}), ("_projection.bias",)),
        "a whole module": (state_bytes(torch.nn.Linear(2, 3)), ("torch.nn.modules.linear.Linear",)),
        "checksum": (state_bytes({"w": torch.full((9,), 2.5)}, as_zip=True).replace(b"\0\0 @", b"\0\0\x30@", 1), ()),
        "torn": (state_bytes({"w": torch.ones(99)}, as_zip=True)[:-30], ()),
        "cut": (state_bytes({"w": ONES})[:18], ()),
        "without end": (state_bytes({"w": torch.ones(1, 1).expand(1 << 20, 1 << 20)}), ("4,398,046,511,104",)),
    }.items()
}
ROWS |= {
    f"{write.__name__}, {name[:20]}": (packed({name: b"evil"}, whole, write), (name[:20],))
    for name in ("../evil", "/evil", "a/../../evil", "a\\b", "C:x", "a/" * 30 + "b")
    for write, whole in ((write_zip, NLPL), (write_tar, TRAINED))
}
ROWS |= {
    f"archive, {name}": (maker, ("model.", *names))
    for name, (maker, names) in {
        "symlink": (member(tarfile.SYMTYPE), ("weights.th",)),
        "hard link": (member(tarfile.LNKTYPE), ("weights.th",)),
        "device": (member(tarfile.CHRTYPE), ("weights.th",)),
        "fifo": (member(tarfile.FIFOTYPE), ("weights.th",)),
        "sparse": (member(tarfile.GNUTYPE_SPARSE), ("weights.th",)),
        "link of a zip": (files({"model.zip": zip_of_a_link()}, given="model.zip"), ("options.json",)),
        "file and folder": (packed({"a": b"", "a/b": b""}, {}, write_zip), ()),
    }.items()
}


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
    for number, make in enumerate(
        (
            packed({"weights.th": content}, TRAINED),
            files({"weights.th": content}),
            many("encoder.pkl", content),
            many("token_embedder.pkl", content),
        )
    ):
        (tmp_path / str(number)).mkdir()
        source = make(tmp_path / str(number))
        assert isinstance(source, Path)
        with pytest.raises(ConversionError, match="run code"):
            convert_source(source, tmp_path / "DEST", Given())
    assert not (tmp_path / "marker").exists()
