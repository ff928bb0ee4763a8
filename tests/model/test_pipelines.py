"""Pipelines on ELMo models."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import TokenClassificationPipeline, pipeline
from transformers.modeling_outputs import TokenClassifierOutput

from elmo_hf import ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from elmo_hf.model.pipeline_elmo import ElmoFeatureExtractionPipeline, ElmoTokenClassificationPipeline


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
    label = pipeline(
        "token-classification",
        model=labeller,
        tokenizer=tokenizer,
        pipeline_class=ElmoTokenClassificationPipeline,
        ignore_labels=[],
    )
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
    tiny_folder: Path, labeller: ElmoForTokenClassification, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = torch.tensor([2, 0, 1, 2, 2, 0, 2, 2, 2])
    logits = 9.0 * nn.functional.one_hot(labels, 3).float()[None]
    monkeypatch.setattr(
        ElmoForTokenClassification, "forward", lambda *args, **kwargs: TokenClassifierOutput(logits=logits)
    )
    label = pipeline(
        "token-classification",
        model=labeller,
        tokenizer=ElmoTokenizer.from_pretrained(tiny_folder),
        pipeline_class=ElmoTokenClassificationPipeline,
        aggregation_strategy=strategy,
    )
    entities = label(TEXT)
    assert [TEXT[entity["start"] : entity["end"]] for entity in entities] == ["Ada Lovelace", ","]
    assert {entity["entity_group"] for entity in entities} == {"PER"}


def test_the_stock_token_classification_pipeline_still_fails(
    tiny_folder: Path, labeller: ElmoForTokenClassification
) -> None:
    """If the stock pipeline stops failing, `pipeline_elmo.py` is needed only for aggregation."""
    label = pipeline(
        "token-classification",
        model=labeller,
        tokenizer=ElmoTokenizer.from_pretrained(tiny_folder),
        pipeline_class=TokenClassificationPipeline,
    )
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        label(TEXT)


def test_feature_extraction_gives_the_top_layer_of_each_text(tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    extract = pipeline(
        "feature-extraction", model=model, tokenizer=tokenizer, pipeline_class=ElmoFeatureExtractionPipeline
    )
    texts = [TEXT, "Yes."]
    with torch.no_grad():
        expected = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state for text in texts]
    for batch_size in (1, 2):
        actual = extract(texts, batch_size=batch_size, return_tensors=True)
        for one, other, length in zip(actual, expected, (9, 4), strict=True):
            torch.testing.assert_close(one[:, :length], other, atol=1e-6, rtol=0)
