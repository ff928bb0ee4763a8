"""bilm-tf's dumps of token vectors: the same biLM reads words instead of characters."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import BASE, Arrays, base_checkpoint, bits, read_datasets, shared, write_datasets

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import allennlp_to_folder, convert_source, folder_to_allennlp
from elmo_hf.conversion.readers.allennlp import AllenNlpFiles
from elmo_hf.conversion.witness.reference import ReferenceElmo

WORDS = ["<S>", "</S>", "<UNK>", "The", "ferry", "日本語", "x" * 60]
NOTE = "Note: the character CNN is not carried: words have the vectors of dump.hdf5."


def dump_of(words: list[str]) -> Arrays:
    """What `dump_token_embeddings` writes for a vocabulary."""
    reference = ReferenceElmo(*base_checkpoint())
    return {"embedding": np.stack([reference.word_vector(word) for word in words]).astype(np.float32)}


@pytest.fixture
def given(tmp_path: Path) -> Given:
    vocabulary = tmp_path / "words.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return Given(vocabulary=vocabulary, token_embeddings=write_datasets(tmp_path / "dump.hdf5", dump_of(WORDS)))


def layers_of(folder: Path, words: list[str]) -> torch.Tensor:
    inputs = ElmoTokenizer.from_pretrained(folder)(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        return torch.stack(ElmoModel.from_pretrained(folder)(**inputs, output_hidden_states=True).hidden_states)


def test_words_of_the_dump_have_the_vectors_of_their_characters(
    given: Given, tiny_folder: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    convert_source(BASE, tmp_path / "to", given, tell=told.append)
    assert told[1:] == [NOTE]
    words = ["ferry", "The", "x" * 60, "日本語"]
    torch.testing.assert_close(layers_of(tmp_path / "to", words), layers_of(tiny_folder, words), atol=1e-5, rtol=0)
    unknown, as_unknown = (layers_of(tmp_path / "to", [word]) for word in ("unseen", "<UNK>"))
    torch.testing.assert_close(unknown, as_unknown, atol=0, rtol=0)
    assert ElmoModel.from_pretrained(tmp_path / "to").config.token_encoder == "word_embedding"


def test_the_model_returns_to_bilm_tfs_files_bit_by_bit(given: Given, tmp_path: Path) -> None:
    assert given.token_embeddings is not None
    files = AllenNlpFiles(
        BASE / "options.json", BASE / "weights.hdf5", given.vocabulary, token_embeddings=given.token_embeddings
    )
    allennlp_to_folder(files, tmp_path / "to", source_name="any")
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    expected = {name: array for name, array in base_checkpoint()[1].items() if name.startswith("RNN_")}
    expected |= read_datasets(given.token_embeddings)
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(expected)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == WORDS


def test_a_real_dump_gives_tensorflows_token_vectors(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm_tf_fixture")
    words = (source / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    # The tokenizer needs the boundaries, which the file's vocabulary lacks: they replace its first words.
    words[:3] = ["<S>", "</S>", "<UNK>"]
    (tmp_path / "words.txt").write_text("\n".join(words), encoding="utf-8")
    given = Given(
        source / "options.json", tmp_path / "words.txt", token_embeddings=source / "elmo_token_embeddings.hdf5"
    )
    convert_source(source / "lm_weights.hdf5", tmp_path / "to", given)
    vectors = layers_of(tmp_path / "to", words[3:])[0, 0, 1:-1, :16]
    table = read_datasets(source / "elmo_token_embeddings.hdf5")["embedding"]
    rows = [len(words) - 1 - words[::-1].index(word) for word in words[3:]]
    np.testing.assert_array_equal(vectors, table[rows])


def test_the_card_names_the_dump(given: Given, tmp_path: Path) -> None:
    convert_source(BASE, tmp_path / "to", given)
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", text, re.MULTILINE)
    assert names == ["options.json", "weights.hdf5", "dump.hdf5"]


def test_options_of_word_input_serve_as_well(given: Given, tmp_path: Path) -> None:
    options, _ = base_checkpoint()
    del options["char_cnn"]
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    with_options = Given(tmp_path / "options.json", given.vocabulary, token_embeddings=given.token_embeddings)
    convert_source(BASE, tmp_path / "to", with_options)
    assert ElmoModel.from_pretrained(tmp_path / "to").config.vocab_size == 8
