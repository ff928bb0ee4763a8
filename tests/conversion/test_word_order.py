"""The note on a language model that finds English sentences no likelier than their words in another order."""

import json
import re
from pathlib import Path

import pytest
import torch

from elmo_hf import ElmoForPreTraining
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import FolderSettings, convert_source, folder_to_allennlp
from elmo_hf.conversion.word_order import ENGLISH_SENTENCES, compare_word_orders, is_of_english
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.folder.model_names import model_folder

TINY = Path(model_folder("tiny"))
ENGLISH = ["<S>", "</S>", "<UNK>", *dict.fromkeys(word for sentence in ENGLISH_SENTENCES for word in sentence), "of"]


@pytest.fixture(scope="module")
def trained() -> ElmoForPreTraining:
    model: ElmoForPreTraining = load_complete(TINY, ElmoForPreTraining, dtype=torch.float32)
    return model


def test_a_model_as_it_was_trained_knows_the_order_of_words(trained: ElmoForPreTraining) -> None:
    assert compare_word_orders(trained, load_tokenizer(TINY)) is None


def test_a_model_with_exchanged_layers_predicts_worse_than_a_guess(trained: ElmoForPreTraining) -> None:
    other_layer = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    tensors = {}
    for name, tensor in trained.state_dict().items():
        tensors[re.sub(r"layers\.[01]\.", lambda match: other_layer[match[0]], name)] = tensor
    model = ElmoForPreTraining(trained.config).eval()
    model.load_state_dict(tensors)
    note = compare_word_orders(model, load_tokenizer(TINY))
    assert note is not None
    assert "more than that of a guess among the 20,000 words" in note


def test_a_conversion_with_check_notes_options_that_are_not_those_of_the_training(tmp_path: Path) -> None:
    source = tmp_path / "source"
    folder_to_allennlp(TINY, source)
    options = json.loads((source / "options.json").read_text(encoding="utf-8"))
    options["lstm"]["use_skip_connections"] = False
    (source / "options.json").write_text(json.dumps(options), encoding="utf-8")
    messages: list[str] = []
    convert_source(source, tmp_path / "elmo", NamedFiles(), FolderSettings(check=True), messages.append)
    (note,) = [message for message in messages if "English sentences" in message]
    assert "in alphabetical order" in note
    assert "`use_skip_connections`" in note


@pytest.mark.parametrize(
    ("vocabulary", "is_english"),
    [
        (ENGLISH, True),
        (["<S>", "</S>", "<UNK>", *sorted(ENGLISH[3:])], False),
        ([*(f"mot{number}" for number in range(50)), *ENGLISH], False),
        (["the", "of", "and", "le", "la"], False),
        ([], False),
    ],
    ids=["by occurrence", "by alphabet", "of another language", "without the words", "none"],
)
def test_only_the_vocabulary_of_english_text_is_asked(vocabulary: list[str], is_english: bool) -> None:
    assert is_of_english(vocabulary) == is_english
