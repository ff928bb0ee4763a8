"""Checkpoints with a softmax: bilm-tf's losses, words and matrix; LSTM language models of torch, and their refusals."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from transformers import AutoModelForPreTraining

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.readers.torch_files import read_matrix
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.folder.loading import load_language_models
from tests.helpers.archives import state_bytes, write_files
from tests.helpers.checkpoints import TINY_LM, VOCABULARY, allennlp_to_folder, arrays_of, bits, read_datasets
from tests.helpers.language_models import save_directory, state_of
from tests.helpers.refused_sources import ONES, Maker, Rows, assert_refused, each_row, files


def test_losses_are_those_that_bilm_tf_computed(tiny_lm_folder: Path) -> None:
    model = AutoModelForPreTraining.from_pretrained(tiny_lm_folder, trust_remote_code=True).eval()
    with np.load(TINY_LM / "expected.npz") as archive:
        expected = dict(archive)
    state = None
    for batch in range(3):
        forward_ids, backward_ids, forward_targets, backward_targets = (
            torch.from_numpy(expected[f"batch{batch}_{direction}_{kind}"].astype(np.int64))
            for kind in ("char_ids", "targets")
            for direction in ("forward", "backward")
        )
        with torch.no_grad():
            outputs = model(
                forward_ids + 1,
                backward_input_ids=backward_ids.flip(1) + 1,
                forward_targets=forward_targets,
                backward_targets=backward_targets.flip(1),
                state=state,
            )
        state = outputs.state
        for ours, theirs in (("forward_loss",) * 2, ("backward_loss",) * 2, ("loss", "total_loss")):
            assert outputs[ours].item() == pytest.approx(expected[f"batch{batch}_{theirs}"].item(), abs=2e-6)


def test_the_softmax_is_the_checkpoints_own_in_a_shard_of_its_own(tiny_lm_folder: Path) -> None:
    first, second = (tiny_lm_folder / f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
    assert {name.split(".")[0] for name in load_file(first)} == {"elmo"}
    with np.load(TINY_LM / "expected.npz") as expected:
        softmax = {"softmax.bias": expected["softmax_b"], "softmax.weight": expected["softmax_W"]}
    assert bits(load_file(second)) == bits(softmax)
    assert not (tiny_lm_folder / "model.safetensors").exists()
    index = json.loads((tiny_lm_folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
    places = dict.fromkeys(load_file(first), first.name) | dict.fromkeys(load_file(second), second.name)
    assert index["weight_map"] == places
    config = ElmoConfig.from_pretrained(tiny_lm_folder)
    found = (config.num_softmax_words, config.softmax, config.num_softmax_samples, config.lm_dropout)
    assert found == (28, "sampled", 8, 0.1)
    tokenizer = ElmoTokenizer.from_pretrained(tiny_lm_folder)
    words = (TINY_LM / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert tokenizer.class_words(range(28)) == words
    assert tokenizer.word_classes(["ferry", "unseen", "</S>"]).tolist() == [words.index("ferry"), 2, 1]


def test_bilm_of_a_language_model_is_that_of_its_export(tiny_lm_folder: Path, tmp_path: Path) -> None:
    allennlp_to_folder(NamedFiles(TINY_LM / "options.json", TINY_LM / "weights.hdf5"), tmp_path / "bilm")
    whole = state_of(tiny_lm_folder)
    elmo = {name.removeprefix("elmo."): tensor for name, tensor in whole.items() if name.startswith("elmo.")}
    assert bits(elmo) == bits(load_file(tmp_path / "bilm" / "model.safetensors"))
    assert ElmoConfig.from_pretrained(tmp_path / "bilm").num_softmax_words is None
    model, loading = ElmoModel.from_pretrained(tiny_lm_folder, output_loading_info=True)
    assert not loading["unexpected_keys"]
    assert all("scalar_mixes." in name for name in loading["missing_keys"])
    model.save_pretrained(tmp_path / "saved")
    assert folder_to_allennlp(tmp_path / "saved", tmp_path / "back") == []
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["options.json", "weights.hdf5"]
    assert bits(arrays_of(tmp_path / "back")) == bits(read_datasets(TINY_LM / "weights.hdf5"))


def test_a_softmax_may_share_the_word_embedding(tmp_path: Path) -> None:
    files = save_directory("bi_word_shared", tmp_path)
    allennlp_to_folder(files, tmp_path / "to")
    model = ElmoForPreTraining.from_pretrained(tmp_path / "to").eval()
    assert (model.config.num_softmax_words, model.config.share_embedding_softmax) == (len(VOCABULARY), True)
    assert "softmax.weight" not in model.state_dict()
    inputs = ElmoTokenizer.from_pretrained(tmp_path / "to")("the ferry word7", return_tensors="pt")
    arrays = arrays_of(files)
    with torch.no_grad():
        logits = model(**inputs, output_logits=True).forward_logits.numpy()
        top = model.elmo(**inputs, output_hidden_states=True).hidden_states[-1][..., :8].numpy()
    expected = top @ arrays["embedding"].T + arrays["softmax/b"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("names", [["a_vocab.txt"], ["vocab.txt", "b_vocab.txt"], ["a_vocab.txt", "b_vocab.txt"]])
def test_one_of_two_vocabularies_is_not_guessed_and_without_one_the_model_embeds(
    names: list[str], tmp_path: Path
) -> None:
    files = {path.name: path.read_bytes() for path in [*TINY_LM.glob("model*"), TINY_LM / "options.json"]}
    vocabularies = {name: (TINY_LM / "vocab.txt").read_bytes() if name != "b_vocab.txt" else b"" for name in names}
    told: list[str] = []
    write_files(tmp_path / "source", files | vocabularies)
    convert_source(tmp_path / "source", tmp_path / "there", NamedFiles(), report=told.append)
    is_missing = names == ["a_vocab.txt", "b_vocab.txt"]
    assert ElmoTokenizer.from_pretrained(tmp_path / "there").num_word_classes == (None if is_missing else 28)
    assert ElmoForPreTraining.from_pretrained(tmp_path / "there").config.num_softmax_words == 28
    assert ["a softmax over 28 words, but there is no vocabulary" in note for note in told[1:]] == [True] * is_missing
    notes = folder_to_allennlp(tmp_path / "there", tmp_path / "back")
    assert ["no `vocab.txt`" in note for note in notes] == [True] * is_missing
    assert (tmp_path / "back" / "vocab.txt").exists() != is_missing


WORDS = "the <unk> ferry left <eos> naïve at dawn".split()
SENTENCES = ["the ferry left at dawn".split(), ["naïve"], [], "unseen dawn the ferry".split()]


def language_model(size: int, cell: int, num_layers: int) -> nn.ModuleDict:
    """The parts of colorlessgreenRNNs' models, with random weights that are large enough for the state to matter."""
    parts = {"encoder": nn.Embedding(8, size), "rnn": nn.LSTM(size, cell, num_layers), "decoder": nn.Linear(cell, 8)}
    model = nn.ModuleDict(parts)
    nn.utils.vector_to_parameters(torch.randn(10_000) * 0.7, model.parameters())
    return model


@torch.no_grad()
def log_probs(model: nn.ModuleDict, carries_state: bool) -> list[float]:
    """Of each sentence's words and its `<eos>`, which is also read first."""
    found, state = [], None
    for words in SENTENCES:
        ids = [WORDS.index(word if word in WORDS else "<unk>") for word in ["<eos>", *words, "<eos>"]]
        state = state if carries_state else None
        for word, following in pairwise(ids):
            output, state = model["rnn"](model["encoder"](torch.tensor([[word]])), state)
            found.append(model["decoder"](output[0, 0]).log_softmax(-1)[following].item())
    return found


@pytest.mark.parametrize(("size", "cell", "num_layers"), [(5, 7, 3), (7, 5, 2), (6, 6, 1)])
def test_scores_are_those_of_torchs_modules(size: int, cell: int, num_layers: int, tmp_path: Path) -> None:
    original = language_model(size, cell, num_layers)
    weights = state_bytes(original.state_dict(), as_zip=num_layers == 3)
    write_files(tmp_path / "from", {"hidden.pt": weights, "vocab.txt": " \n".join(WORDS).encode()})
    convert_source(tmp_path / "from", tmp_path / "to", NamedFiles())
    model, tokenizer = load_language_models(tmp_path / "to")
    for carries in (False, True):
        scores = model.score(SENTENCES, tokenizer, carries_state=carries, num_rows=1)
        np.testing.assert_allclose(scores.forward, log_probs(original, carries), rtol=1e-5)
    inputs = tokenizer(SENTENCES[:1], is_split_into_words=True, return_tensors="pt")
    assert (model(**inputs).forward_logits.softmax(-1)[..., tokenizer.word_classes(["<S>"])] == 0).all()


def changed(change: Callable[[Any], object] = len, words: list[str] = WORDS, **more: bytes) -> Maker:
    """A folder with a changed state dict, a vocabulary and more files."""
    state = language_model(5, 7, 2).state_dict()
    change(state)
    return files({"m.pt": state_bytes(state), "vocab.txt": "\n".join(words).encode()} | more)


REFUSED: Rows = {
    "a whole model": (changed(**{"m.pt": state_bytes(language_model(5, 7, 1))}), "m.pt", ".state_dict(), "),
    "no vocabulary": (files({"m.pt": state_bytes({"rnn": ONES})}, given="m.pt"), "`vocab.txt`"),
    "no bias": (changed(lambda s: s.pop("rnn.bias_hh_l1")), "m.pt", "rnn.bias_hh_l1"),
    "one bias": (changed(lambda s: s.update({"rnn.bias_hh_l1": ONES[:1]})), "m.pt"),
    "a GRU": (changed(lambda s: s.update(nn.GRU(5, 7, 2).state_dict(prefix="rnn."))), "l1", "(28, 7)", "(21, 7)"),
    "backward": (changed(lambda s: s.update({"rnn.bias_ih_l0_reverse": ONES})), "unknown: `rnn.bias_ih_l0_reverse`"),
    "a word too few": (changed(words=WORDS[:-1]), "vocab.txt", "8 words", "has 7"),
    "no end": (changed(words=[*WORDS[:4], "x", *WORDS[5:]]), "vocab.txt", "<eos>"),
    "own names": (changed(words=[*WORDS[:-1], "<S>"]), "vocab.txt", "<S>"),
}


def test_the_advice_on_a_whole_model_makes_a_file_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = language_model(5, 7, 1)
    Path("m.pt").write_bytes(state_bytes(model))
    with pytest.raises(ConversionError) as refusal:
        read_matrix(Path("m.pt"))
    advice = re.search("`(torch.save.*)`", str(refusal.value))
    assert advice is not None
    exec(advice[1], {"torch": torch, "model": model})
    assert torch.load("weights.pt", weights_only=True).keys() == model.state_dict().keys()


@each_row({"LSTM": REFUSED})
def test_what_is_refused_is_named(row: tuple[Any, ...], tmp_path: Path) -> None:
    assert_refused(row, tmp_path)
