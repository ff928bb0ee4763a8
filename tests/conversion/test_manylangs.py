"""ELMoForManyLangs: its own numbers in both calls, and models with only words or only characters."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import MANYLANGS, manylangs_files, without_part, write_files
from checkpoints import converted
from golden import Call, assert_golden

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.readers.manylangs import PACKAGED

SENTENCES: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
EXPECTED = np.load(MANYLANGS / "expected.npz")
TOLERANCE = 1e-5
FILES = manylangs_files()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manylangs") / "folder"
    converted(MANYLANGS, folder)
    return folder


def test_every_layer_and_state_of_both_calls_is_theirs(folder: Path) -> None:
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder)
    calls = []
    for name, sentences in SENTENCES.items():
        # Their batches are sorted by falling length, and the state belongs to the sorted row.
        order = sorted(range(len(sentences)), key=lambda index, sentences=sentences: -len(sentences[index]))
        layers = [EXPECTED[f"{name}/{index}"] for index in order]
        state = EXPECTED[f"{name}_state_h"], EXPECTED[f"{name}_state_c"]
        calls.append(Call([sentences[index] for index in order], layers, state=state))
    assert_golden(model, calls, TOLERANCE, TOLERANCE)
    average = EXPECTED["average/0"][None]  # their default output
    assert_golden(model, [Call(SENTENCES["call1"][:1], [EXPECTED["call1/0"]], [average])], TOLERANCE)
    sentences = [SENTENCES["call1"][index] for index in EXPECTED["sorted_order"]]
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="np")
    mask = inputs["attention_mask"].astype(bool)
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, :50] - 1, EXPECTED["sorted_char_ids"][mask])
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, 50] - 34, EXPECTED["sorted_word_ids"][mask])
    np.testing.assert_array_equal(mask.sum(1), [len(sentence) + 2 for sentence in sentences])


@pytest.mark.parametrize(
    ("part", "expected"), [("word", ("char_cnn", 34, 0, None, 28)), ("char", ("word_embedding", 15, 0, 6, 2))]
)
def test_models_without_one_part_equal_the_reference(part: str, expected: tuple[Any, ...], tmp_path: Path) -> None:
    converted(write_files(tmp_path / "source", without_part(FILES, part)), tmp_path / "to")
    config = ElmoConfig.from_pretrained(tmp_path / "to")
    found = (config.token_encoder, config.vocab_size, config.num_input_words, config.word_embedding_size)
    assert (*found, config.bos_token_id) == expected


def test_a_lexicon_may_have_its_rows_in_any_order_and_the_line_ends_of_windows(folder: Path, tmp_path: Path) -> None:
    """Symbols of white space stay apart, the softmax is noted, and text is split at white space unless told."""
    lines = FILES["char.dic"].decode().replace("v\t25", "\u00a0\t25").splitlines(keepends=False)
    assert "\u3000\t26" in lines
    changed = {"char.dic": "".join(f"{line}\r\n" for line in lines[::-1]).encode(), "classifier.pkl": b"not read"}
    source = write_files(tmp_path / "source", FILES | changed)
    _, note = converted(source, tmp_path / "to", word_splitter="ptb")
    assert note == "Note: classifier.pkl, the language model's softmax, is left out."
    expected = ElmoTokenizer.from_pretrained(folder).get_vocab()
    expected["c:\u00a0"] = expected.pop("c:v")
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert tokenizer.get_vocab() == expected
    assert tokenizer.tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert ElmoTokenizer.from_pretrained(folder).tokenize("Don't go.") == ["Don't", "go."]
    assert (expected["c:\u00a0"], expected["c:\u3000"]) == (26, 27)


def test_the_architecture_of_their_package_is_that_of_the_paper() -> None:
    for each in PACKAGED.values():
        encoder, token = each["encoder"], each["token_embedder"]
        found = [encoder[key] for key in ("n_layers", "dim", "projection_dim", "cell_clip", "proj_clip")]
        found += [token[key] for key in ("word_dim", "char_dim", "n_highway", "max_characters_per_token")]
        assert (found, token["activation"]) == ([2, 4096, 512, 3, 3, 100, 50, 2, 50], "relu")
