"""LSTM language models of torch: their scores are those of a loop over torch's own modules; what is refused."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from archives import state_bytes, write_files, write_tar
from refused_sources import ONES, Maker, Rows, assert_refused, each_row, files
from torch import nn

from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source
from elmo_hf.folder.loading import load_language_models, scoring_splitter

WORDS = "the <unk> ferry left <eos> naïve at dawn".split()
SENTENCES = ["the ferry left at dawn".split(), ["naïve"], [], "unseen dawn the ferry".split()]


class LanguageModel(nn.Module):
    """colorlessgreenRNNs' parts, with random weights that are large enough for the state to matter."""

    def __init__(self, size: int, cell: int, num_layers: int) -> None:
        super().__init__()
        self.encoder = nn.Embedding(len(WORDS), size)
        self.rnn = nn.LSTM(size, cell, num_layers)
        self.decoder = nn.Linear(cell, len(WORDS))
        if size == cell:
            self.decoder.weight = self.encoder.weight
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7)

    @torch.no_grad()
    def score(self, sentences: list[list[str]], carries_state: bool) -> list[float]:
        """Log-probabilities of each sentence's words and its `<eos>`, which is also read first."""
        found, state = [], None
        for words in sentences:
            ids = [WORDS.index(word if word in WORDS else "<unk>") for word in ["<eos>", *words, "<eos>"]]
            state = state if carries_state else None
            for word, following in pairwise(ids):
                output, state = self.rnn(self.encoder(torch.tensor([[word]])), state)
                found.append(self.decoder(output[0, 0]).log_softmax(-1)[following].item())
        return found


@pytest.mark.parametrize(("size", "cell", "num_layers"), [(5, 7, 3), (7, 5, 2), (6, 6, 1)], ids=["", "wide", "tied"])
def test_scores_are_those_of_torchs_modules(size: int, cell: int, num_layers: int, tmp_path: Path) -> None:
    original = LanguageModel(size, cell, num_layers)
    weights = state_bytes(original.state_dict(), as_zip=num_layers == 3)
    parts = {"hidden.pt": weights, "vocab.txt": " \n".join(WORDS).encode()}
    write_files(tmp_path / "from", parts)
    archive = write_tar(tmp_path / "model.tar.gz", parts)
    source = {3: tmp_path / "from" / "hidden.pt", 2: tmp_path / "from", 1: archive}[num_layers]
    convert_source(source, tmp_path / "to", Given())
    model, tokenizer = load_language_models(tmp_path / "to")
    assert scoring_splitter(model.config, tokenizer) == "whitespace"
    for carries in (False, True):
        scores = model.score(SENTENCES, tokenizer, carries_state=carries, num_rows=1)
        np.testing.assert_allclose(scores.forward, original.score(SENTENCES, carries), rtol=1e-5)
        assert np.isnan(scores.backward).all()
    # `<S>` is never predicted, and a tied softmax stays tied.
    inputs = tokenizer(SENTENCES[:1], is_split_into_words=True, return_tensors="pt")
    assert model(**inputs).forward_logits.softmax(-1)[..., tokenizer.word_classes(["<S>"])[0]].eq(0).all()
    assert ("softmax.weight" in model.state_dict()) == (size != cell)


def changed(change: Callable[[Any], object] = len, words: list[str] = WORDS, **more: bytes) -> Maker:
    """A folder with a changed state dict, a vocabulary and more files."""
    state = LanguageModel(5, 7, 2).state_dict()
    change(state)
    return files({"m.pt": state_bytes(state), "vocab.txt": "\n".join(words).encode()} | more)


REFUSED: Rows = {
    "a whole model": (changed(**{"m.pt": state_bytes(LanguageModel(5, 7, 1))}), "m.pt", ".state_dict(), "),
    "no vocabulary": (files({"m.pt": state_bytes({"rnn": ONES})}, given="m.pt"), "`vocab.txt`"),
    "two models": (changed(**{"b.pt": b""}), "b.pt, m.pt"),
    "no decoder": (changed(lambda s: s.pop("decoder.weight")), "m.pt", "decoder.weight"),
    "no bias": (changed(lambda s: s.pop("rnn.bias_hh_l1")), "m.pt", "rnn.bias_hh_l1"),
    "one bias": (changed(lambda s: s.update({"rnn.bias_hh_l1": ONES[:1]})), "m.pt"),
    "a GRU": (changed(lambda s: s.update(nn.GRU(5, 7, 2).state_dict(prefix="rnn."))), "l1", "(28, 7)", "(21, 7)"),
    "backward": (changed(lambda s: s.update({"rnn.bias_ih_l0_reverse": ONES})), "unknown: `rnn.bias_ih_l0_reverse`"),
    "a word too few": (changed(words=WORDS[:-1]), "vocab.txt", "8 words", "found 7"),
    "no end": (changed(words=[*WORDS[:4], "x", *WORDS[5:]]), "vocab.txt", "<eos>"),
    "own names": (changed(words=[*WORDS[:-1], "<S>"]), "vocab.txt", "<S>"),
    "not UTF-8": (changed(**{"vocab.txt": b"\xff"}), "vocab.txt"),
}


@each_row({"LSTM": REFUSED})
def test_what_is_refused_is_named(row: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(row, tmp_path, monkeypatch)
