"""`elmo-hf convert`: every form of it; what it refuses is in `test_cli_start.py`."""

import re
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from checkpoints import BASE, TINY_LM, bits, read_datasets, write_datasets
from commands import assert_fails, output_of, run
from huggingface_hub import ModelCard
from loopback_hub import LoopbackHub

from elmo_hf import ElmoTokenizer
from elmo_hf.conversion.published import PUBLISHED


def test_convert_takes_every_file_and_option_and_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path / "to")
    assert (tokenizer.num_word_classes, tokenizer.tokenize("Don't go.")) == (28, ["Don't", "go."])
    card = ModelCard.load(tmp_path / "to" / "README.md")
    assert (card.data.license, card.data.language, card.data.base_model) == ("cc-by-4.0", ["en"], "org/elmo")
    monkeypatch.chdir(tmp_path)
    printed = output_of("convert", "to", "back", "--to", "allennlp")
    written = "Wrote back/options.json, back/softmax.hdf5, back/vocab.txt and back/weights.hdf5."
    assert printed.splitlines()[-1] == written
    assert bits(read_datasets(Path("back/softmax.hdf5"))) == bits(arrays)
    assert bits(read_datasets(Path("back/weights.hdf5"))) == bits(read_datasets(files["weights"]))


def test_files_of_the_user_keep_the_facts_of_the_published_model(tmp_path: Path) -> None:
    facts = {"5.5B": "5.5 billion words of English", "crosslingual-it": "Wikipedia in", "nlpl-218": "wiki.nlpl.eu"}
    for name, fact in facts.items():
        own = [BASE / "weights.hdf5", "--options", BASE / "options.json"] if name == "nlpl-218" else [BASE]
        output_of("convert", "--model", name, tmp_path / name, "--from", *own)
        text = (tmp_path / name / "README.md").read_text(encoding="utf-8")
        assert f"converted from the published {name} model by" in text
        assert fact in text
    data = [ModelCard.load(tmp_path / name / "README.md").data for name in facts]
    assert [each.language for each in data] == [["en"], ["it"], ["no"]]
    assert [each.license for each in data] == ["other", "mit", "cc-by-4.0"]


SPLIT = {"whitespace": ["Don't", "go."], "ptb": ["Do", "n't", "go", "."]}


@pytest.mark.parametrize(
    ("options", "splitter"),
    [
        (["--language", "pt"], "whitespace"),
        (["--language", "pt", "--language", "en-GB"], "ptb"),
        (["--language", "pt", "--word-splitter", "ptb"], "ptb"),
        (["--model", "pt", "--from", str(BASE)], "whitespace"),
    ],
    ids=str,
)
def test_a_model_of_another_language_does_not_split_by_english_rules(
    options: list[str], splitter: str, tmp_path: Path
) -> None:
    source = [] if "--model" in options else [BASE]
    printed = output_of("convert", *source, tmp_path / "to", *options)
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").tokenize("Don't go.") == SPLIT[splitter]
    notes = [line for line in printed.splitlines() if "--word-splitter ptb" in line]
    assert len(notes) == (splitter == "whitespace")
    assert f'word_splitter="{splitter}"' in (tmp_path / "to" / "README.md").read_text(encoding="utf-8")


def test_publish_takes_what_has_a_licence_and_ends_with_a_table(
    online: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    licensed = [name for name, each in PUBLISHED.items() if each.weights and each.licence != "unknown"]
    for name in licensed:
        online.add(f"org/elmo-{name}", {"SHA256SUMS": b""})
    header, *rows = [line.split() for line in output_of("publish", "org").splitlines()]
    assert header == ["name", "converted", "difference", "pushed", "error"]
    assert rows == [[name, "-", "-", "before", "-"] for name in licensed]
    result = run("publish", "org", "embeddia-hr", "small", "bioelmo")
    assert_fails(result, 1, "not published: embeddia-hr, bioelmo.")
    assert result.stdout.splitlines()[1].split()[:6] == ["embeddia-hr", "-", "-", "-", "--model", "must"]
