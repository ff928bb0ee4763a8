"""`elmo-hf convert`: every form of it; what it refuses is in `test_cli_start.py`."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from checkpoints import BASE, TINY_LM, read_datasets, write_datasets
from commands import output_of
from huggingface_hub import ModelCard
from language_models import state_of

from elmo_hf import ElmoTokenizer, tiny_model
from elmo_hf.conversion import published
from elmo_hf.language_model.pretraining import ElmoForPreTraining


def test_convert_takes_every_file_and_option_and_goes_back(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    files = {"options": TINY_LM / "options.json", "weights": TINY_LM / "weights.hdf5"}
    files |= {"vocabulary": TINY_LM / "vocab.txt", "softmax": write_datasets(tmp_path / "softmax.hdf5", arrays)}
    labels = {"license": "cc-by-4.0", "language": "en", "source": "org/elmo", "word-splitter": "whitespace"}
    options = chain.from_iterable((f"--{name}", value) for name, value in (files | labels).items())
    printed = output_of("convert", tmp_path / "to", "--check", *options)
    match = re.search(r"^Largest difference from the checkpoint, all layers: (\S+) \(float32", printed, re.MULTILINE)
    assert match is not None
    assert float(match[1]) < 1e-5
    np.testing.assert_array_equal(state_of(tmp_path / "to")["softmax.weight"], arrays["softmax/W"])
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert (tokenizer.num_word_classes, tokenizer.tokenize("Don't go.")) == (28, ["Don't", "go."])
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("cc-by-4.0", ["en"], "org/elmo")
    output_of("convert", tmp_path / "to", tmp_path / "back", "--to", "allennlp")
    np.testing.assert_array_equal(read_datasets(tmp_path / "back" / "softmax.hdf5")["softmax/b"], arrays["softmax/b"])


def test_convert_downloads_a_published_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str) -> tuple[Path, dict[str, Path]]:
        asked.append(name)
        return BASE / "weights.hdf5", {"options": BASE / "options.json"}

    monkeypatch.setattr(published, "download", download)
    output_of("convert", "--model", "5.5B", tmp_path / "to")
    assert asked == ["5.5B"]
    text = (tmp_path / "to" / "README.md").read_text(encoding="utf-8")
    assert "converted from the published 5.5B model by" in text
    assert "5.5 billion words of English" in text
    assert "license_name: no-restrictions" in text.splitlines()


def test_tiny_goes_back_to_allennlps_files_and_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_of("convert", "tiny", "x", "--to", "allennlp").splitlines()[-1] == (
        "Wrote x/options.json, x/softmax.hdf5, x/vocab.txt and x/weights.hdf5."
    )
    output_of("convert", "x", "again")
    ours, theirs = state_of(tmp_path / "again"), tiny_model(ElmoForPreTraining).state_dict()
    assert all(np.array_equal(array, theirs[name].numpy()) for name, array in ours.items())
