"""AllenNLP's `ElmoEmbedder` under its old name gives AllenNLP's numbers."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from allennlp_cases import BASE, CASES, SENTENCES, Golden, assert_all_close, assert_close
from checkpoints import shared

from elmo_hf.allennlp import Elmo, ElmoEmbedder, batch_to_ids


@pytest.mark.parametrize("case", CASES)
def test_the_state_is_carried_through_batches_that_shrink_and_grow(case: str) -> None:
    golden = Golden(case)
    embedder = ElmoEmbedder(*golden.files)
    assert len(embedder.embed_sentence(golden.sentences["call1"][0])) == len(golden.expected["layers"])
    embedder.elmo_bilm._elmo_lstm.reset_states()
    for call, batch in sorted(golden.sentences.items()):
        assert_all_close(embedder.embed_batch(batch), golden.arrays(call))


def test_batches_have_allennlps_axes() -> None:
    vectors, mask = ElmoEmbedder(*BASE.files).batch_to_embeddings(SENTENCES)
    assert_close(vectors.transpose(0, 1), BASE.expected["layers"])
    np.testing.assert_array_equal(mask, BASE.expected["mask"])


def test_empty_sentences_are_arrays_without_words_and_leave_the_state_alone() -> None:
    embedder = ElmoEmbedder(*BASE.files)
    assert embedder.embed_sentence([]).shape == (3, 0, 16)
    assert [array.shape for array in embedder.embed_batch([[], []])] == [(3, 0, 16)] * 2
    *arrays, empty = embedder.embed_batch([*SENTENCES, []])
    assert empty.shape == (3, 0, 16)
    assert_all_close(arrays, BASE.arrays("call1"))
    output = Elmo(*BASE.files, 1)(batch_to_ids([[], []]))
    assert (output["mask"].shape, output["elmo_representations"][0].shape) == ((2, 0), (2, 0, 16))


def test_sentences_of_a_stream_are_run_in_batches() -> None:
    arrays = list(ElmoEmbedder(*BASE.files).embed_sentences(iter(SENTENCES + BASE.sentences["call2"]), batch_size=4))
    assert_all_close(arrays[:4], BASE.arrays("call1"))
    assert_all_close(arrays[4:], BASE.arrays("call2"))


def embed_file(folder: Path, text: str, **options: Any) -> dict[str, np.ndarray]:
    (folder / "in.txt").write_text(text, encoding="utf-8")
    with (folder / "in.txt").open(encoding="utf-8") as file:
        ElmoEmbedder(*BASE.files).embed_file(file, folder / "out.hdf5", **options)
    with h5py.File(folder / "out.hdf5") as file:
        return {name: file[name][()] for name in file}


@pytest.mark.parametrize("output_format", ["all", "top", "average"])
def test_a_file_holds_the_vectors_of_each_line(output_format: str, tmp_path: Path) -> None:
    lines = [" ".join(words) for words in SENTENCES]
    found = embed_file(tmp_path, "\n".join(lines), output_format=output_format, batch_size=len(lines))
    index = json.loads(found.pop("sentence_to_index")[0])
    assert index == {line: str(number) for number, line in enumerate(lines)}
    assert found.keys() == set(index.values())
    for row, layers in enumerate(BASE.arrays("call1")):
        expected = {"all": layers, "top": layers[-1], "average": layers.mean(axis=0)}[output_format]
        assert_close(found[str(row)], expected)


@pytest.mark.parametrize(
    ("text", "options", "shapes"),
    [
        ("Yes .\n\n", {"forget_sentences": True}, {"0": (3, 2, 16), "1": (3, 0, 16)}),
        ("A b c\nYes .", {"use_sentence_keys": True}, {"A b c": (3, 3, 16), "Yes .": (3, 2, 16)}),
    ],
)
def test_keys_of_a_file_are_numbers_or_sentences_and_a_blank_line_is_a_sentence(
    text: str, options: dict[str, bool], shapes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    found = embed_file(tmp_path, text, **options)
    assert {name: vectors.shape for name, vectors in found.items()} == shapes


def test_what_was_there_stays_if_embedding_fails(tmp_path: Path) -> None:
    (tmp_path / "out.hdf5").write_bytes(b"precious")
    with pytest.raises(ValueError, match="shorter"):  # batches without sentences
        embed_file(tmp_path, "Yes .\n", batch_size=0)
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
