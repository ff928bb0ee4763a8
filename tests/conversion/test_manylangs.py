"""ELMoForManyLangs: its own numbers in both calls, models with only words or only characters, and refusals."""

import io
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
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.readers.manylangs import PACKAGED, _lexicon, read_manylangs
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.sources import Source, open_source

SENTENCES: dict[str, list[list[str]]] = json.loads((MANYLANGS / "sentences.json").read_text(encoding="utf-8"))
CONFIG = "cnn_50_100_512_4096_sample.json"
TOLERANCE = 1e-5


def convert(source: Path, destination: Path, **given: Any) -> Path:
    convert_source(source, destination, Given(**given))
    return destination


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(MANYLANGS, tmp_path_factory.mktemp("manylangs") / "folder")


def test_every_layer_and_state_of_both_calls_is_theirs(folder: Path) -> None:
    expected = np.load(MANYLANGS / "expected.npz")
    tokenizer, model = ElmoTokenizer.from_pretrained(folder), ElmoModel.from_pretrained(folder).eval()
    state: BiLMState | None = None
    for call in ("call1", "call2"):
        # Their batches are sorted by falling length, and the state belongs to the sorted row.
        order = sorted(range(len(SENTENCES[call])), key=lambda index: -len(SENTENCES[call][index]))
        inputs = tokenizer(
            [SENTENCES[call][index] for index in order], is_split_into_words=True, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            output = model(
                **inputs, state=None if state is None else state.resize(len(order)), output_hidden_states=True
            )
        state = output.state if state is None else state.update(output.state)
        for row, index in enumerate(order):
            layers = torch.stack(output.hidden_states)[:, row, 1 : 1 + len(SENTENCES[call][index])]
            np.testing.assert_allclose(layers, expected[f"{call}/{index}"], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(state.hidden, expected[f"{call}_state_h"], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(state.cell, expected[f"{call}_state_c"], rtol=0, atol=TOLERANCE)


def test_ids_are_those_of_their_batch(folder: Path) -> None:
    expected = np.load(MANYLANGS / "expected.npz")
    sentences = [SENTENCES["call1"][index] for index in expected["sorted_order"]]
    inputs = ElmoTokenizer.from_pretrained(folder)(
        sentences, is_split_into_words=True, padding=True, return_tensors="np"
    )
    mask = inputs["attention_mask"].astype(bool)
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, :50] - 1, expected["sorted_char_ids"][mask])
    np.testing.assert_array_equal(inputs["input_ids"][mask][:, 50] - 34, expected["sorted_word_ids"][mask])
    np.testing.assert_array_equal(mask.sum(1), [len(sentence) + 2 for sentence in sentences])


def test_the_mean_of_the_layers_is_their_default_output(folder: Path) -> None:
    inputs = ElmoTokenizer.from_pretrained(folder)(SENTENCES["call1"][0], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        mean = ElmoModel.from_pretrained(folder)(**inputs).elmo_representations[0]
    expected = np.load(MANYLANGS / "expected.npz")["average/0"]
    np.testing.assert_allclose(mean[0, 1:-1], expected, rtol=0, atol=TOLERANCE)


def test_the_config_says_what_the_model_is(folder: Path) -> None:
    config = ElmoConfig.from_pretrained(folder)
    found = {
        "token_encoder": "char_cnn", "alphabet": "code_points", "vocab_size": 1 + 33 + 14, "num_input_words": 14,
        "word_embedding_size": 6, "max_word_length": 50, "char_embedding_size": 5, "num_highway_layers": 2,
        "char_filters": [[1, 4], [2, 8], [3, 12]], "char_activation": "relu", "projection_size": 8, "cell_size": 24,
        "num_hidden_layers": 2, "cell_clip": 3.0, "projection_clip": 3.0, "use_skip_connections": True,
        "forget_bias": 0.0, "bos_token_id": 28, "eos_token_id": 29,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in found} == found


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
    expected = np.load(MANYLANGS / "expected.npz")["call1/1"][2, 1, :3]
    np.testing.assert_allclose([float(number) for number in found], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("part", ["word", "char", "neither"])
def test_models_of_either_part_equal_the_reference(part: str, tmp_path: Path) -> None:
    files = manylangs_files() if part == "neither" else without_part(manylangs_files(), part)
    difference = convert_source(write_files(tmp_path / "source", files), tmp_path / "to", Given(), check=True)
    assert difference is not None
    assert difference < TOLERANCE
    config = ElmoConfig.from_pretrained(tmp_path / "to")
    expected = {
        "word": ("char_cnn", 34, 0, None, 28),
        "char": ("word_embedding", 15, 0, 6, 2),
        "neither": ("char_cnn", 48, 14, 6, 28),
    }[part]
    found = (config.token_encoder, config.vocab_size, config.num_input_words, config.word_embedding_size)
    assert (*found, config.bos_token_id) == expected


def witness(folder: Path) -> np.ndarray:
    """What the witness makes of a sentence with known and unknown words and characters, one of them long."""
    with open_source(folder) as source:
        make_reference = read_manylangs(source, Given()).make_reference
    assert make_reference is not None
    return make_reference().embed(["Hello", "日本", "x" * 60, "!"])


@pytest.mark.parametrize("file", ["token_embedder.pkl", "encoder.pkl"])
def test_the_witness_sees_a_change_in_any_array(file: str, tmp_path: Path) -> None:
    unchanged = witness(MANYLANGS)
    state = torch.load(MANYLANGS / file, weights_only=True)
    assert len(state) == {"token_embedder.pkl": 14, "encoder.pkl": 16}[file]
    for name, tensor in state.items():
        changed = state_bytes(state | {name: tensor + 0.25})
        found = witness(write_files(tmp_path / name, manylangs_files() | {file: changed}))
        assert np.abs(found - unchanged).max() > 1e-3, name


def test_a_zip_and_a_folder_inside_a_zip_are_read_alike(folder: Path, tmp_path: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    files = manylangs_files()
    for name, content in (("flat", files), ("nested", {f"136/{name}": data for name, data in files.items()})):
        source = write_zip(tmp_path / f"{name}.zip", content)
        assert (convert(source, tmp_path / name) / "model.safetensors").read_bytes() == weights


def test_new_and_old_files_of_torch_are_read_alike(folder: Path, tmp_path: Path) -> None:
    files = manylangs_files()
    for name in ("token_embedder.pkl", "encoder.pkl"):
        files[name] = state_bytes(torch.load(io.BytesIO(files[name]), weights_only=True), as_zip=True)
    to = convert(write_files(tmp_path / "source", files), tmp_path / "to")
    assert (to / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_weights_that_share_their_memory_are_read_alike(folder: Path, tmp_path: Path) -> None:
    state = torch.load(MANYLANGS / "encoder.pkl", weights_only=True)
    flat = torch.cat([tensor.flatten() for tensor in state.values()])
    pieces = flat.split([tensor.numel() for tensor in state.values()])
    views = {name: piece.view(state[name].shape) for name, piece in zip(state, pieces, strict=True)}
    source = write_files(tmp_path / "source", manylangs_files() | {"encoder.pkl": state_bytes(views)})
    to = convert(source, tmp_path / "to")
    assert (to / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_raw_text_is_split_on_white_space_unless_asked_otherwise(folder: Path, tmp_path: Path) -> None:
    assert ElmoTokenizer.from_pretrained(folder).tokenize("Don't go.") == ["Don't", "go."]
    to = convert(MANYLANGS, tmp_path / "to", word_splitter="ptb")
    assert ElmoTokenizer.from_pretrained(to).tokenize("Don't go.") == ["Do", "n't", "go", "."]


def test_the_card_names_the_files_and_the_alphabet(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name in ("token_embedder.pkl", "encoder.pkl", "char.dic", "word.dic"):
        assert f"| `{name}` |" in text
    assert "| token encoder | 6-d words (14) and 5-d code points (33), filters 1:4, 2:8, 3:12 (relu), 2 highway" in text
    assert "- **Long words.** A word is cut after 48 code points." in text
    assert "white space" in text


def test_the_softmax_is_noted(tmp_path: Path) -> None:
    files = manylangs_files() | {"classifier.pkl": b"not read"}
    told: list[str] = []
    convert_source(write_files(tmp_path / "source", files), tmp_path / "to", Given(), tell=told.append)
    assert told == [
        f"Found an ELMoForManyLangs model in {tmp_path / 'source'}.",
        "Note: classifier.pkl, the language model's softmax, is not carried.",
    ]


def test_it_cannot_be_written_as_allennlps_files(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"holds models that read bytes, .* this one has `alphabet` 'code_points'"
    ):
        folder_to_allennlp(folder, tmp_path / "back")
    assert list(tmp_path.iterdir()) == []


def test_the_config_that_their_package_has_is_known(tmp_path: Path) -> None:
    files = manylangs_files()
    del files[CONFIG]
    with pytest.raises(ConversionError) as caught:
        convert(write_files(tmp_path / "source", files), tmp_path / "to")
    # The tiny weights are not of that size, and that is what the message is about.
    assert "missing: `token_embedder.convolutions.3.weight` (128, 50, 4)" in str(caught.value)
    assert PACKAGED[CONFIG]["encoder"]["dim"] == 4096


def test_white_space_of_the_alphabet_stays_apart(tmp_path: Path) -> None:
    files = manylangs_files()
    characters = files["char.dic"].decode().replace("v\t25", "\u00a0\t25")
    assert "\u3000\t26" in characters
    source = write_files(tmp_path / "source", files | {"char.dic": characters.encode()})
    vocabulary = ElmoTokenizer.from_pretrained(convert(source, tmp_path / "to")).get_vocab()
    assert (vocabulary["c:\u00a0"], vocabulary["c:\u3000"]) == (26, 27)


def test_a_lexicon_may_have_its_rows_in_any_order_and_the_line_ends_of_windows(tmp_path: Path) -> None:
    (tmp_path / "char.dic").write_bytes(b"a\t1\r\n<oov>\t0\r\n")
    source = Source(tmp_path, {"char.dic": tmp_path / "char.dic", "token_embedder.pkl": tmp_path})
    assert _lexicon(source, "char.dic", {"t": np.zeros((2, 1))}, "t") == {"<oov>": 0, "a": 1}
