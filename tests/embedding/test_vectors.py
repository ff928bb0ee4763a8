"""Every format and kind of vector equals the model run alone on the sentence."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from vectors import LAYERS, SENTENCES, SUFFIXES, assert_all_close, embed_alone, embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer


@pytest.fixture
def embed(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> Callable[..., list[np.ndarray]]:
    """Embeds the corpus, or an input of other content, into `vectors` with a suffix; gives the vectors."""

    def embed_it(suffix: str = ".npz", content: bytes | None = None, name: str = "in.txt", **options: Any) -> Any:
        source, output = tmp_path / name, tmp_path / f"vectors{suffix}"
        if content is not None:
            source.write_bytes(content)
        output.unlink(missing_ok=True)
        count = embed_file(mixed_model, tiny_tokenizer, corpus if content is None else source, output, **options)
        found = read_vectors(output)
        assert len(found) == count
        return found

    return embed_it


@pytest.fixture
def alone(mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> Callable[..., list[np.ndarray]]:
    """The vectors of sentences that the model reads alone."""
    return lambda layers="all", sentences=SENTENCES: [
        embed_alone(mixed_model, tiny_tokenizer, sentence, layers) for sentence in sentences
    ]


@pytest.mark.parametrize("layers", LAYERS)
def test_every_tokenizer_gives_the_vectors_of_each_sentence_alone_in_every_format(
    layers: str, mixed_model: ElmoModel, each_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    expected = [embed_alone(mixed_model, each_tokenizer, sentence, layers) for sentence in SENTENCES]
    for suffix in SUFFIXES:
        mixed_model.train()  # dropout must be off
        embed_file(mixed_model, each_tokenizer, corpus, tmp_path / f"v{suffix}", layers=layers, batch_words=30)
        found = read_vectors(tmp_path / f"v{suffix}")
        assert {array.dtype for array in found} == {np.dtype("float32")}
        assert_all_close(found, expected)
        if suffix != ".parquet":  # nested lists keep no shape if they are empty
            assert [array.shape for array in found] == [array.shape for array in expected]


def test_a_mix_that_normalises_counts_boundaries(
    embed: Any, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    mixed_model.scalar_mixes[0].layer_norm = "batch"
    with torch.no_grad():
        outputs = [mixed_model.eval()(**tiny_tokenizer([each], return_tensors="pt")) for each in SENTENCES]
    mixes, pooled = ([output[name][0].numpy() for output in outputs] for name in ("last_hidden_state", "pooler_output"))
    assert_all_close(embed(layers="mix", batch_words=1), [mix[1:-1] for mix in mixes])
    assert_all_close(embed(layers="pooled", batch_words=1), pooled)


def test_a_model_in_bfloat16_writes_float32(embed: Any, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer) -> None:
    mixed_model.to(torch.bfloat16)
    found = embed(layers="top", batch_words=1)
    assert {array.dtype for array in found} == {np.dtype("float32")}
    with torch.no_grad():
        output = mixed_model(**tiny_tokenizer([SENTENCES[0]], return_tensors="pt"), output_hidden_states=True)
    np.testing.assert_array_equal(found[0], output.hidden_states[-1][0, 1:-1].float().numpy())


VALUES = [["New York", "isn't", "x" * 60], {"words": []}, {"text": "It isn't."}, "Don't!"]
INPUTS: dict[str, tuple[bytes, dict[str, Any], list[list[str]]]] = {
    "in.jsonl": (
        "".join(f"{json.dumps(value)}\n" for value in VALUES).encode(),
        {},
        [["New York", "isn't", "x" * 60], [], ["It", "is", "n't", "."], ["Do", "n't", "!"]],
    ),
    "in.txt.gz": (
        gzip.compress(b"It isn't.\r\n\r\n late,  ten\n"),
        {"split_into_words": True},
        [["It", "isn't."], [], ["late,", "ten"]],
    ),
    "blank.txt": (b"\n \n\t\n", {}, [[], [], []]),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_words_are_embedded_as_they_come(name: str, suffix: str, embed: Any, alone: Any) -> None:
    content, options, sentences = INPUTS[name]
    assert_all_close(embed(suffix, content, name, **options), alone(sentences=sentences))


def test_hdf5_file_has_the_layout_of_allennlp(embed: Any, tmp_path: Path) -> None:
    embed(".hdf5")
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert set(file) == {"0", "1", "2", "3", "4", "5", "sentence_to_index"}
        assert file["sentence_to_index"].shape == (1,)
        # AllenNLP's readers parse this very string; of equal sentences the last one is named.
        expected = {SENTENCES[0]: "5", "": "1", "Yes": "2", SENTENCES[3]: "3", "No.": "4"}
        assert json.loads(file["sentence_to_index"][0]) == expected
    embed(".hdf5", b"It  isn't.\n", split_into_words=True)
    with h5py.File(tmp_path / "vectors.hdf5", "r") as file:
        assert json.loads(file["sentence_to_index"][0]) == {"It isn't.": "0"}


@pytest.mark.parametrize("layers", ["all", "pooled"])
def test_parquet_file_opens_as_a_dataset(layers: str, embed: Any, alone: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    embed(".parquet", layers=layers)
    files, cache = str(tmp_path / "vectors.parquet"), str(tmp_path / "cache")
    dataset = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache)
    assert dataset.column_names == ["index", "sentence", "vectors"]
    assert (dataset["index"][:], dataset["sentence"][:]) == ([0, 1, 2, 3, 4, 5], SENTENCES)
    assert_all_close([np.array(vectors) for vectors in dataset["vectors"]], alone(layers))


def test_parquet_rows_are_written_in_groups(embed: Any, tmp_path: Path) -> None:
    lines = "".join(f"word{number} " * (number % 4) + "\n" for number in range(300)).encode()
    assert_all_close(embed(".parquet", lines), embed(".npz", lines), 0)
    assert pq.ParquetFile(tmp_path / "vectors.parquet").num_row_groups == 2


def test_no_batch_has_more_positions_than_allowed_except_a_longer_text_alone(
    embed: Any, alone: Any, mixed_model: ElmoModel
) -> None:
    lengths = [3, 30, 1, 8, 0, 5, 3, 3]
    shapes: list[tuple[int, int]] = []
    hook = mixed_model.bilm.register_forward_pre_hook(lambda module, args: shapes.append(tuple(args[1].shape)))
    found = embed(content="".join("word " * length + "\n" for length in lengths).encode(), batch_words=20)
    hook.remove()
    assert shapes == [(1, 32), (2, 10), (4, 5), (1, 2)]
    assert_all_close(found, alone(sentences=[["word"] * length for length in lengths]))
