"""LSTM language models of torch: their scores are those of a loop over torch's own modules; what is refused."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import state_bytes, write_files
from refused_sources import ONES, Maker, Rows, assert_refused, each_row, files
from torch import nn

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.folder.loading import load_language_models

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
    convert_source(tmp_path / "from", tmp_path / "to", Given())
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
    "a word too few": (changed(words=WORDS[:-1]), "vocab.txt", "8 words", "found 7"),
    "no end": (changed(words=[*WORDS[:4], "x", *WORDS[5:]]), "vocab.txt", "<eos>"),
    "own names": (changed(words=[*WORDS[:-1], "<S>"]), "vocab.txt", "<S>"),
}


@each_row({"LSTM": REFUSED})
def test_what_is_refused_is_named(row: tuple[Any, ...], tmp_path: Path) -> None:
    assert_refused(row, tmp_path)
