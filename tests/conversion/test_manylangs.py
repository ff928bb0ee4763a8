"""ELMoForManyLangs: its own numbers in both calls, and models with only words or only characters."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import MANYLANGS, manylangs_files, state_bytes, without_part, write_files, write_zip
from checkpoints import run_python

from elmo_hf import BiLMState, ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.conversion.readers.manylangs import read_manylangs
from elmo_hf.conversion.sources import open_source

SENTENCES: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
EXPECTED = np.load(MANYLANGS / "expected.npz")
TOLERANCE = 1e-5
FILES = manylangs_files()
STATES = {name: torch.load(MANYLANGS / name, weights_only=True) for name in ("token_embedder.pkl", "encoder.pkl")}


def convert(source: Path, destination: Path, **given: Any) -> Path:
    difference = convert_source(source, destination, Given(**given), check=True)
    assert difference is not None
    assert difference < TOLERANCE
    return destination


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(MANYLANGS, tmp_path_factory.mktemp("manylangs") / "folder")


def test_every_layer_and_state_of_both_calls_is_theirs(folder: Path) -> None:
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder).eval()
    state: BiLMState | None = None
    for call in ("call1", "call2"):
        # Their batches are sorted by falling length, and the state belongs to the sorted row.
        order = sorted(range(len(SENTENCES[call])), key=lambda index: -len(SENTENCES[call][index]))
        sentences = [SENTENCES[call][index] for index in order]
        inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
        before = None if state is None else state.resize(len(order))
        with torch.no_grad():
            output = model(**inputs, state=before, output_hidden_states=True)
        state = output.state if state is None else state.update(output.state)
        for row, index in enumerate(order):
            layers = torch.stack(output.hidden_states)[:, row, 1 : 1 + len(sentences[row])]
            np.testing.assert_allclose(layers, EXPECTED[f"{call}/{index}"], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(state.hidden, EXPECTED[f"{call}_state_h"], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(state.cell, EXPECTED[f"{call}_state_c"], rtol=0, atol=TOLERANCE)
    sentences = [SENTENCES["call1"][index] for index in EXPECTED["sorted_order"]]
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="np")
    mask = inputs["attention_mask"].astype(bool)
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, :50] - 1, EXPECTED["sorted_char_ids"][mask])
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, 50] - 34, EXPECTED["sorted_word_ids"][mask])
    np.testing.assert_array_equal(mask.sum(1), [len(sentence) + 2 for sentence in sentences])
    inputs = tokenizer(SENTENCES["call1"][0], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        mean = model(**inputs).elmo_representations[0]  # their default output
    np.testing.assert_allclose(mean[0, 1:-1], EXPECTED["average/0"], rtol=0, atol=TOLERANCE)


def test_the_config_and_the_card_say_what_the_model_is(folder: Path) -> None:
    config = ElmoConfig.from_pretrained(folder)
    found = {
        "token_encoder": "char_cnn", "alphabet": "code_points", "vocab_size": 1 + 33 + 14, "num_input_words": 14,
        "word_embedding_size": 6, "max_word_length": 50, "char_embedding_size": 5, "num_highway_layers": 2,
        "char_filters": [[1, 4], [2, 8], [3, 12]], "char_activation": "relu", "projection_size": 8, "cell_size": 24,
        "num_hidden_layers": 2, "cell_clip": 3.0, "projection_clip": 3.0, "use_skip_connections": True,
        "forget_bias": 0.0, "bos_token_id": 28, "eos_token_id": 29,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in found} == found
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in ("token_embedder.pkl", "encoder.pkl", "char.dic", "word.dic"))
    assert "| token encoder | 6-d words (14) and 5-d code points (33), filters 1:4, 2:8, 3:12 (relu), 2 highway" in text
    assert "- **Long words.** A word is cut after 48 code points." in text


def test_the_folder_works_without_the_package(folder: Path, tmp_path: Path) -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"elmo_hf", "conversion", "h5py"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import torch
from transformers import AutoModel, AutoTokenizer, pipeline
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=True)
model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
with torch.no_grad():
    output = model(**tokenizer("Hello wörld !", return_tensors="pt"), output_hidden_states=True)
features = pipeline(model=sys.argv[1], trust_remote_code=True)("Hello wörld !", return_tensors=True)
print(torch.allclose(features, output.last_hidden_state, atol=1e-6), *output.hidden_states[-1][0, 2, :3].tolist())
"""
    same, *found = run_python(code, tmp_path, folder).split()
    assert same == "True"
    expected = EXPECTED["call1/1"][2, 1, :3]
    np.testing.assert_allclose([float(number) for number in found], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("word", ("char_cnn", 34, 0, None, 28)),
        ("char", ("word_embedding", 15, 0, 6, 2)),
        (None, ("char_cnn", 48, 14, 6, 28)),
    ],
)
def test_models_of_either_part_equal_the_reference(part: str | None, expected: tuple[Any, ...], tmp_path: Path) -> None:
    convert(write_files(tmp_path / "source", without_part(FILES, part) if part else FILES), tmp_path / "to")
    config = ElmoConfig.from_pretrained(tmp_path / "to")
    found = (config.token_encoder, config.vocab_size, config.num_input_words, config.word_embedding_size)
    assert (*found, config.bos_token_id) == expected


def witness(folder: Path) -> np.ndarray:
    """What the witness makes of a sentence with known and unknown words and characters, one of them long."""
    with open_source(folder) as source:
        make_reference = read_manylangs(source, Given()).make_reference
    assert make_reference is not None
    return make_reference().embed(["Hello", "日本", "x" * 60, "!"])


@pytest.mark.parametrize(("file", "number"), [("token_embedder.pkl", 14), ("encoder.pkl", 16)])
def test_the_witness_sees_a_change_in_any_array(file: str, number: int, tmp_path: Path) -> None:
    unchanged = witness(MANYLANGS)
    assert len(STATES[file]) == number
    for name, tensor in STATES[file].items():
        changed = state_bytes(STATES[file] | {name: tensor + 0.25})
        found = witness(write_files(tmp_path / name, FILES | {file: changed}))
        assert np.abs(found - unchanged).max() > 1e-3, name


def test_every_packing_becomes_the_same_model(folder: Path, tmp_path: Path) -> None:
    newer = {name: state_bytes(state, as_zip=True) for name, state in STATES.items()}
    flat = torch.cat([tensor.flatten() for tensor in STATES["encoder.pkl"].values()])
    pieces = iter(flat.split([tensor.numel() for tensor in STATES["encoder.pkl"].values()]))
    views = {name: next(pieces).view(tensor.shape) for name, tensor in STATES["encoder.pkl"].items()}
    sources = {
        "zip": write_zip(tmp_path / "flat.zip", FILES),
        "zip of a folder": write_zip(tmp_path / "nested.zip", {f"136/{name}": data for name, data in FILES.items()}),
        "torch's newer files": write_files(tmp_path / "newer", FILES | newer),
        "shared memory": write_files(tmp_path / "shared", FILES | {"encoder.pkl": state_bytes(views)}),
    }
    for name, source in sources.items():
        to = convert(source, tmp_path / f"{name}.to", word_splitter="ptb")
        assert (to / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes(), name
        assert ElmoTokenizer.from_pretrained(to).tokenize("Don't go.") == ["Do", "n't", "go", "."]
    assert ElmoTokenizer.from_pretrained(folder).tokenize("Don't go.") == ["Don't", "go."]


def test_a_lexicon_may_have_its_rows_in_any_order_and_the_line_ends_of_windows(folder: Path, tmp_path: Path) -> None:
    """Symbols of white space stay apart, and the softmax is noted."""
    lines = FILES["char.dic"].decode().replace("v\t25", "\u00a0\t25").splitlines(keepends=False)
    assert "\u3000\t26" in lines
    changed = {"char.dic": "".join(f"{line}\r\n" for line in lines[::-1]).encode(), "classifier.pkl": b"not read"}
    told: list[str] = []
    convert_source(write_files(tmp_path / "source", FILES | changed), tmp_path / "to", Given(), tell=told.append)
    assert told[1:] == ["Note: classifier.pkl, the language model's softmax, is not carried."]
    expected = ElmoTokenizer.from_pretrained(folder).get_vocab()
    expected["c:\u00a0"] = expected.pop("c:v")
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").get_vocab() == expected
    assert (expected["c:\u00a0"], expected["c:\u3000"]) == (26, 27)
