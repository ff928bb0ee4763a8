"""AllenNLP's `ElmoEmbedder`: scripts from its documentation give its numbers once their import line is changed."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from allennlp_cases import CASES, Golden, assert_close, run_legacy
from checkpoints import shared

from elmo_hf.allennlp import Elmo, ElmoEmbedder, batch_to_ids


@pytest.fixture(scope="module")
def base() -> Golden:
    return Golden("base_2l_relu")


INTERACTIVELY = """
from allennlp.commands.elmo import ElmoEmbedder

elmo = ElmoEmbedder(options_file, weight_file)
assert len(elmo.embed_sentence(sentence)) == num_layers
elmo.elmo_bilm._elmo_lstm.reset_states()
batches = [elmo.embed_batch(batch) for batch in calls]
"""


@pytest.mark.parametrize("case", CASES)
def test_usage_interactively_with_the_state_carried_through_batches_that_shrink_and_grow(case: str) -> None:
    golden = Golden(case)
    calls = sorted(golden.sentences)
    names = run_legacy(
        INTERACTIVELY,
        options_file=golden.files[0],
        weight_file=golden.files[1],
        sentence=golden.sentences["call1"][0],
        num_layers=len(golden.expected["layers"]),
        calls=[golden.sentences[call] for call in calls],
    )
    for call, vectors in zip(calls, names["batches"], strict=True):
        for row, length in enumerate(golden.lengths(call)):
            assert vectors[row].dtype == np.float32
            assert_close(vectors[row], golden.layers(call)[:, row, :length])


VECTORS_ON_DISK = """
from allennlp.commands.elmo import ElmoEmbedder

with open(sentences_file, encoding="utf-8") as file:
    ElmoEmbedder(options_file, weight_file).embed_file(file, vectors_file, output_format, batch_size=batch_size)
"""


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_usage_for_vectors_on_disk(output_format: str, base: Golden, tmp_path: Path) -> None:
    """Calls 1 and 5 are the same sentences; the second batch starts from the state that the first one left."""
    batch = [words for words in base.sentences["call1"] if words]
    lines = [" ".join(words) for words in batch]
    (tmp_path / "sentences.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run_legacy(
        VECTORS_ON_DISK,
        options_file=base.files[0],
        weight_file=base.files[1],
        sentences_file=tmp_path / "sentences.txt",
        vectors_file=str(tmp_path / "vectors.hdf5"),
        output_format=output_format,
        batch_size=len(batch),
    )
    with h5py.File(tmp_path / "vectors.hdf5") as file:
        assert json.loads(file["sentence_to_index"][0]) == {line: str(index) for index, line in enumerate(lines)}
        for row, words in enumerate(batch):
            layers = base.layers("call1")[:, row, : len(words)]
            expected = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}[output_format]
            assert_close(file[str(row)][()], expected)


def test_empty_sentences_are_arrays_without_words_and_leave_the_state_alone(base: Golden) -> None:
    elmo = ElmoEmbedder(*base.files)
    assert elmo.embed_sentence([]).shape == (3, 0, 16)
    assert [array.shape for array in elmo.embed_batch([[], []])] == [(3, 0, 16)] * 2
    mixed = elmo.embed_batch([*base.sentences["call1"], []])
    assert mixed[-1].shape == (3, 0, 16)
    assert_close(mixed[0], base.layers("call1")[:, 0, : base.lengths("call1")[0]])
    output = Elmo(*base.files, 1)(batch_to_ids([[], []]))
    assert (output["mask"].shape, output["elmo_representations"][0].shape) == ((2, 0), (2, 0, 16))


def test_batches_of_the_embedder_have_allennlps_axes(base: Golden) -> None:
    vectors, mask = ElmoEmbedder(*base.files).batch_to_embeddings(base.sentences["call1"])
    assert_close(vectors.transpose(0, 1), base.layers("call1"))
    np.testing.assert_array_equal(mask, base.expected["mask"])


def test_sentences_of_a_stream_are_run_in_batches(base: Golden) -> None:
    stream = (words for words in base.sentences["call1"] + base.sentences["call2"])
    vectors = ElmoEmbedder(*base.files).embed_sentences(stream, batch_size=4)
    assert next(vectors).shape == (3, 12, 16)
    rest = list(vectors)
    assert len(rest) == 7
    assert_close(rest[3], base.layers("call2")[:, 0, :10])


def embed_file(base: Golden, folder: Path, text: str, **options: Any) -> dict[str, np.ndarray]:
    (folder / "in.txt").write_text(text, encoding="utf-8")
    with (folder / "in.txt").open(encoding="utf-8") as file:
        ElmoEmbedder(*base.files).embed_file(file, folder / "out.hdf5", **options)
    with h5py.File(folder / "out.hdf5") as file:
        return {name: file[name][()] for name in file}


def test_keys_on_disk_are_numbers_or_sentences_as_asked_and_a_blank_line_is_a_sentence(
    base: Golden, tmp_path: Path
) -> None:
    for text, options, shapes in (
        ("Yes .\n\n", {"forget_sentences": True}, {"0": (3, 2, 16), "1": (3, 0, 16)}),
        ("A b c\nYes .", {"use_sentence_keys": True}, {"A b c": (3, 3, 16), "Yes .": (3, 2, 16)}),
    ):
        found = embed_file(base, tmp_path, text, **options)
        assert {name: vectors.shape for name, vectors in found.items()} == shapes


def test_what_was_there_stays_if_embedding_fails(base: Golden, tmp_path: Path) -> None:
    (tmp_path / "out.hdf5").write_bytes(b"precious")
    with pytest.raises(ValueError, match="shorter"):  # batches without sentences
        embed_file(base, tmp_path, "Yes .\n", batch_size=0)
    assert (tmp_path / "out.hdf5").read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_real_model_of_bilm_tf_gives_the_vectors_that_allennlp_tests_for() -> None:
    source = shared("fixtures", "bilm_tf_fixture")
    elmo = ElmoEmbedder(source / "options.json", source / "lm_weights.hdf5")
    streams = json.loads((source / "sentences.json").read_text())
    expected = [h5py.File(source / f"lm_embeddings_{index}.hdf5") for index in range(3)]
    for number in range(10):
        batch = [stream[number].split() for stream in streams]
        for row, vectors in enumerate(elmo.embed_batch(batch)):
            assert_close(vectors[2], np.concatenate(expected[row][str(number)][()], axis=-1), 5e-6)
