"""Models for a task in a process that has never heard of this package: Auto classes and pipelines."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import run_python
from task_models import FIRST, LSTM, SECOND, TASKS, C, logits_of, make_batch, make_task_model
from tiny_inputs import assert_outputs_close
from transformers import pipeline

from elmo_hf import ElmoModel, ElmoTokenizer, extract_answers

# Labels of this seed change within a text.
VARIED = {"seed": 7, **LSTM}
SCRIPT = """
import sys

sys.modules |= dict.fromkeys(["elmo_hf", "conversion", "h5py"])  # None: importing one raises ImportError
import json
import torch
import transformers
from transformers import AutoTokenizer, pipeline

AUTO = {
    "classification": "AutoModelForSequenceClassification",
    "pairs": "AutoModelForSequenceClassification",
    "labelling": "AutoModelForTokenClassification",
    "crf": "AutoModelForTokenClassification",
    "questions": "AutoModelForQuestionAnswering",
}
first, second = json.load(open("texts.json", encoding="utf-8"))
dicts = [dict(text=one, text_pair=other) for one, other in zip(first, second)]
results = {}
for task, auto in AUTO.items():
    tokenizer = AutoTokenizer.from_pretrained(task, trust_remote_code=True)
    model = getattr(transformers, auto).from_pretrained(task, trust_remote_code=True)
    assert type(model).__module__.startswith("transformers_modules"), type(model)
    has_pairs = task in ("pairs", "questions")
    inputs = tokenizer(first, *[second] * has_pairs, padding=True, return_tensors="pt", return_offsets_mapping=True)
    offsets = inputs.pop("offset_mapping")
    with torch.no_grad():
        output = model(**inputs)
    model.save_pretrained(task + ".again")
    reloaded = getattr(transformers, auto).from_pretrained(task + ".again", trust_remote_code=True)
    with torch.no_grad():
        again = reloaded(**inputs)
    if task == "questions":
        results[task] = [output.start_logits.tolist(), output.end_logits.tolist()]
        answers = model.extract_answers(output.start_logits, output.end_logits, offsets, second)
        results["answers"] = [answer.text for answer in answers]
        assert torch.equal(again.start_logits, output.start_logits)
        continue
    results[task] = output.logits.tolist()
    assert torch.equal(again.logits, output.logits)
    run = pipeline(model=task, trust_remote_code=True)
    assert run.task == ("text-classification" if auto.endswith("SequenceClassification") else "token-classification")
    texts = dicts if has_pairs else first
    if run.task == "text-classification":
        results[task + ".pipeline"] = [run(text)[0] if isinstance(text, str) else run(text) for text in texts]
        batched = run(texts, batch_size=2)
        for one, other in zip(batched, results[task + ".pipeline"]):
            assert one["label"] == other["label"] and abs(one["score"] - other["score"]) < 1e-5, (one, other)
    else:
        how = dict(aggregation_strategy="simple", ignore_labels=[])
        named = pipeline("token-classification", model=task, trust_remote_code=True, **how)
        results[task + ".pipeline"] = [
            [{key: str(value) for key, value in entity.items()} for entity in entities]
            for entities in named(texts, batch_size=2)
        ]
extract = pipeline("feature-extraction", model="classification", trust_remote_code=True)
results["features"] = extract(first[0])
json.dump(results, open("results.json", "w"))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    work = tmp_path_factory.mktemp("tasks")
    for task in TASKS:
        make_task_model(task, **VARIED).save_pretrained(work / task)
        ElmoTokenizer(max_word_length=C, word_splitter="whitespace").save_pretrained(work / task)
    (work / "texts.json").write_text(json.dumps([FIRST, SECOND]), encoding="utf-8")
    run_python(SCRIPT, work)
    return work, json.loads((work / "results.json").read_text())


@pytest.mark.parametrize("task", list(TASKS))
def test_auto_classes_give_equal_logits_without_the_package(task: str, results: tuple[Path, dict[str, Any]]) -> None:
    _, found = results
    batch = {key: value for key, value in make_batch(task).items() if key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = logits_of(make_task_model(task, **VARIED)(**batch))
    actual = torch.tensor(found[task])
    assert_outputs_close(actual.movedim(0, -1) if task == "questions" else actual, expected, 1e-6)


@pytest.mark.parametrize("task", ["classification", "pairs"])
def test_the_text_classification_pipeline_gives_the_most_probable_class(
    task: str, results: tuple[Path, dict[str, Any]]
) -> None:
    batch = make_batch(task)
    probabilities = make_task_model(task, **VARIED)(**batch).logits.softmax(dim=-1)
    scores, labels = probabilities.max(dim=-1)
    assert [entry["label"] for entry in results[1][f"{task}.pipeline"]] == [f"LABEL_{label}" for label in labels]
    assert [entry["score"] for entry in results[1][f"{task}.pipeline"]] == pytest.approx(scores.tolist(), abs=1e-5)


@pytest.mark.parametrize("task", ["labelling", "crf"])
def test_the_token_classification_pipeline_gives_the_same_entities_as_in_process(
    task: str, results: tuple[Path, dict[str, Any]]
) -> None:
    work, found = results
    model = make_task_model(task, **VARIED)
    pipeline_class, _ = model.pipelines["token-classification"]
    run = pipeline(
        "token-classification",
        model=model,
        tokenizer=ElmoTokenizer.from_pretrained(work / task),
        pipeline_class=pipeline_class,
        aggregation_strategy="simple",
        ignore_labels=[],
    )
    expected = run(FIRST)
    assert sum(len(entities) for entities in expected) > 3
    for text, entities, others in zip(FIRST, expected, found[f"{task}.pipeline"], strict=True):
        for entity, other in zip(entities, others, strict=True):
            assert text[entity["start"] : entity["end"]] == entity["word"] == other["word"]
            assert entity["entity_group"] == other["entity_group"]
            assert float(other["score"]) == pytest.approx(entity["score"], abs=1e-5)


def test_feature_extraction_opens_a_folder_with_a_head(results: tuple[Path, dict[str, Any]]) -> None:
    work, found = results
    model = ElmoModel.from_pretrained(work / "classification").eval()
    inputs = ElmoTokenizer.from_pretrained(work / "classification")(FIRST[0], return_tensors="pt")
    with torch.no_grad():
        assert_outputs_close(torch.tensor(found["features"]), model(**inputs).last_hidden_state, 1e-6)


def test_answers_are_those_of_the_package(results: tuple[Path, dict[str, Any]]) -> None:
    tokenizer = ElmoTokenizer(max_word_length=C, word_splitter="whitespace")
    inputs = tokenizer(FIRST, SECOND, padding=True, return_tensors="pt", return_offsets_mapping=True)
    offsets = inputs.pop("offset_mapping")
    output = make_task_model("questions", **VARIED)(**inputs)
    answers = extract_answers(output.start_logits, output.end_logits, offsets, SECOND)
    assert results[1]["answers"] == [answer.text for answer in answers]
