"""Pipelines on ELMo models."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers.modeling_outputs import TokenClassifierOutput

import elmo_hf
from elmo_hf import ElmoForSequenceClassification, ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from elmo_hf.model import heads_elmo


@pytest.fixture
def labeller(tiny_folder: Path) -> ElmoForTokenClassification:
    return ElmoForTokenClassification.from_pretrained(tiny_folder, id2label={0: "B-PER", 1: "I-PER", 2: "O"}).eval()


TEXT = "Ada Lovelace's letters, kept."
WORDS = ["Ada", "Lovelace", "'s", "letters", ",", "kept", "."]


@pytest.mark.parametrize("is_split", [False, True], ids=["raw text", "words"])
def test_token_classification_gives_each_word_one_label_and_its_place(
    tiny_folder: Path, labeller: ElmoForTokenClassification, is_split: bool
) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    label = elmo_hf.pipeline("ner", labeller, tokenizer, ignore_labels=[], device="cpu")
    entities = label([WORDS], is_split_into_words=True, delimiter=" ")[0] if is_split else label(TEXT)
    text = " ".join(WORDS) if is_split else TEXT
    assert [entity["word"] for entity in entities] == WORDS
    assert [text[entity["start"] : entity["end"]] for entity in entities] == WORDS
    assert [entity["index"] for entity in entities] == list(range(1, 8))
    with torch.no_grad():
        logits = labeller(**tokenizer([WORDS], is_split_into_words=True, return_tensors="pt")).logits[0, 1:-1]
    names = [labeller.config.id2label[index] for index in logits.argmax(dim=-1).tolist()]
    assert [entity["entity"] for entity in entities] == names
    assert [entity["score"] for entity in entities] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=1e-6)


@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_aggregation_joins_words_by_their_labels_and_never_splits_them(
    tiny_folder: Path, labeller: ElmoForTokenClassification, strategy: str
) -> None:
    labels = torch.tensor([2, 0, 1, 2, 2, 0, 2, 2, 2])
    logits = 9.0 * nn.functional.one_hot(labels, 3).float()[None]
    labeller.forward = lambda **_: TokenClassifierOutput(logits=logits)
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    label = elmo_hf.pipeline("token-classification", labeller, tokenizer, aggregation_strategy=strategy)
    entities = label(TEXT)
    assert [TEXT[entity["start"] : entity["end"]] for entity in entities] == ["Ada Lovelace", ","]
    assert {entity["entity_group"] for entity in entities} == {"PER"}


@pytest.mark.parametrize("batch_size", [1, 2])
def test_stock_feature_extraction_gives_the_elmo_vectors_of_each_text(tiny_folder: Path, batch_size: int) -> None:
    model = ElmoModel.from_pretrained(tiny_folder, scalar_mix_weights=[0.2, 0.3, 0.5], num_output_representations=2)
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    extract = transformers.pipeline("feature-extraction", model=model, tokenizer=tokenizer, device="cpu")
    texts = [TEXT, "Yes.", "No ."]
    found = extract(texts, batch_size=batch_size, return_tensors=True)
    for vectors, text, length in zip(found, texts, (9, 4, 4), strict=True):
        with torch.no_grad():
            layers = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        expected = 0.2 * layers[0] + 0.3 * layers[1] + 0.5 * layers[2]
        torch.testing.assert_close(vectors[:, :length], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["FeatureExtractionPipeline", "ElmoFeatureExtractionPipeline"])
def test_a_folder_gives_transformers_own_class_which_libraries_know_by_name(
    tiny_folder: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    config = json.loads((folder / "config.json").read_bytes())
    assert config["custom_pipelines"]["feature-extraction"]["impl"] == "modeling_elmo.FeatureExtractionPipeline"
    config["custom_pipelines"]["feature-extraction"]["impl"] = f"modeling_elmo.{name}"  # the second of earlier versions
    (folder / "config.json").write_text(json.dumps(config))
    extract = transformers.pipeline(model=str(folder), trust_remote_code=True, device="cpu")
    assert type(extract) is transformers.FeatureExtractionPipeline


def test_a_classifiers_folder_gives_transformers_own_class() -> None:
    assert ElmoForSequenceClassification.pipelines["text-classification"][0] is transformers.TextClassificationPipeline
    assert heads_elmo.ElmoTextClassificationPipeline is transformers.TextClassificationPipeline
