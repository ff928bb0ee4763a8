"""Stock pipelines, collators and the Trainer on ELMo models."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    DataCollatorForTokenClassification,
    TokenClassificationPipeline,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.modeling_outputs import TokenClassifierOutput

from elmo_hf import ElmoConfig, ElmoModel, ElmoPreTrainedModel, ElmoTokenizer
from elmo_hf.pipeline_elmo import ElmoFeatureExtractionPipeline, ElmoTokenClassificationPipeline


class WordLabeller(ElmoPreTrainedModel):
    """The smallest token classifier, to run pipelines and the Trainer with."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> TokenClassifierOutput:
        logits = self.classifier(self.elmo(input_ids, attention_mask).elmo_representations[0])
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return TokenClassifierOutput(loss=loss, logits=logits)


@pytest.fixture
def labeller(tiny_folder: Path) -> WordLabeller:
    return WordLabeller.from_pretrained(tiny_folder, id2label={0: "B-PER", 1: "I-PER", 2: "O"}).eval()


TEXT = "Ada Lovelace's letters, kept."
WORDS = ["Ada", "Lovelace", "'s", "letters", ",", "kept", "."]


@pytest.mark.parametrize("is_split", [False, True], ids=["raw text", "words"])
def test_token_classification_gives_one_label_a_word_with_its_place(
    tiny_folder: Path, labeller: WordLabeller, is_split: bool
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
    tiny_folder: Path, labeller: WordLabeller, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = torch.tensor([2, 0, 1, 2, 2, 0, 2, 2, 2])
    logits = 9.0 * nn.functional.one_hot(labels, 3).float()[None]
    monkeypatch.setattr(WordLabeller, "forward", lambda *args, **kwargs: TokenClassifierOutput(logits=logits))
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


def test_the_stock_token_classification_pipeline_still_fails(tiny_folder: Path, labeller: WordLabeller) -> None:
    """When this one runs, `pipeline_elmo.py` is needed for aggregation only."""
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


def test_the_stock_trainer_fits_labels_of_words(tiny_folder: Path, labeller: WordLabeller, tmp_path: Path) -> None:
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    texts = [WORDS, ["Yes", "."], ["Ada", "waved", "."]]
    rows = [tokenizer(words, is_split_into_words=True) for words in texts]
    for row in rows:
        row["labels"] = [2, *[0 if word == "Ada" else 2 for word in row.tokens()[1:-1]], 2]
    data = [dict(row) for row in rows]
    arguments = TrainingArguments(
        tmp_path,
        max_steps=30,
        learning_rate=3e-2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        labeller,
        arguments,
        train_dataset=data,
        eval_dataset=data,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert trainer.predict(data).predictions.shape == (3, 9, 3)
