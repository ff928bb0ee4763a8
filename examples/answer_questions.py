"""Find the answers to questions in paragraphs, with frozen ELMo features.

    python examples/answer_questions.py MODEL
    python examples/answer_questions.py MODEL questions.jsonl

XQuAD's English part is 240 paragraphs of SQuAD's development set with 1,190 questions: enough to check that everything
runs, but far too little to learn the task well. You can give SQuAD itself as a folder, saved by `save_to_disk`; for
other files see `own_files.py`. Question and context are two texts, and the biLM reads each separately, once for all
epochs. MODEL is a folder, a Hub name, or a short name, such as `tiny` or `original`.
"""

import collections
import re
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import recipe
import torch
import typer
from own_files import QUESTIONS, OwnData
from seeds import check_settings, contents_of
from task_data import load, own_files
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from elmo_hf import ElmoForQuestionAnswering, ElmoTokenizer, extract_answers


def encode(rows: dict[str, list[Any]], tokenizer: ElmoTokenizer) -> dict[str, Any]:
    """Ids of pairs, and the positions of the first and last words of the answers."""
    encoded = tokenizer(rows["question"], rows["context"])
    starts, ends = [], []
    for row, (answer, start) in enumerate(zip(rows["answer"], rows["answer_start"], strict=True)):
        starts.append(encoded.char_to_token(row, start, sequence_index=1))
        ends.append(encoded.char_to_token(row, start + len(answer) - 1, sequence_index=1))
    return {**encoded, "start_positions": starts, "end_positions": ends}


def normalise(text: str) -> list[str]:
    """The words that SQuAD's scores compare: lower case, without articles and punctuation."""
    return re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[^\w\s]", "", text.lower())).split()


def overlap(found: str, right: str) -> float:
    """SQuAD's F1 of one answer."""
    common = collections.Counter(normalise(found)) & collections.Counter(normalise(right))
    total = len(normalise(found)) + len(normalise(right))
    return 2 * sum(common.values()) / total if total else 1.0


def main(
    name: recipe.Model,
    task: Annotated[str, typer.Argument(help="xquad, or your own file or folder")] = "xquad",
    output: recipe.Output = Path("answerer"),
    rows: recipe.Rows = None,
    epochs: int = 20,
    seed: int = 0,
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
) -> None:
    """Train, test, save, reload, and show the results."""
    torch.manual_seed(seed)
    source = recipe.check_model(name)
    options = OwnData(column, validation, test, input_format, encoding)
    data = load(task, rows, (QUESTIONS,), options)
    tokenizer = ElmoTokenizer.from_pretrained(source)
    recipe.check_words(data, tokenizer, source)
    settings = {"model": name, "task": task, "rows": rows, "epochs": epochs, "seed": seed, **options.settings()}
    contents = contents_of(own_files([task], options), source)
    check_settings(output, contents, recipe="answer_questions", **settings)
    model = ElmoForQuestionAnswering.from_pretrained(
        source, task_encoder="lstm", task_hidden_size=128, num_output_representations=2, classifier_dropout=0.2
    )
    encoded = data.map(encode, batched=True, fn_kwargs={"tokenizer": tokenizer})
    encoded = recipe.keep_layers(
        encoded.remove_columns(data["train"].column_names), model, tokenizer, output / "layers"
    )
    trainer = recipe.train(
        model, tokenizer, encoded, output, compute_metrics=None, best="loss", epochs=epochs, seed=seed
    )
    trainer.save_model(str(output))

    # transformers has no pipeline for this task: a model, a tokenizer, and a function that turns logits into text.
    tokenizer = AutoTokenizer.from_pretrained(output, trust_remote_code=True)
    answerer = AutoModelForQuestionAnswering.from_pretrained(output, trust_remote_code=True)
    answers = []
    for batch in data["test"].iter(32):
        inputs = tokenizer(
            batch["question"], batch["context"], padding=True, return_tensors="pt", return_offsets_mapping=True
        )
        offsets = inputs.pop("offset_mapping")
        with torch.no_grad():
            logits = answerer(**inputs)
        answers += extract_answers(logits.start_logits, logits.end_logits, offsets, batch["context"])
    for row, answer in zip(islice(data["test"], 3), answers, strict=False):
        print(row["question"], "->", repr(answer.text), "right:", repr(row["answer"]))

    scores = [(answer.text, right) for answer, right in zip(answers, data["test"]["answer"], strict=True)]
    exact = sum(normalise(found) == normalise(right) for found, right in scores) / len(scores)
    recipe.plot_learning_curves(trainer, "loss", output / "learning_curves.png")
    recipe.plot_mix_weights(model, output / "mix_weights.png")
    f1 = sum(overlap(*pair) for pair in scores) / len(scores)
    first = [(re.split(r"(?<=[.!?])\s", row["context"])[0], row["answer"]) for row in data["test"]]
    baseline = sum(overlap(*pair) for pair in first) / len(first)
    table = [["task", "test questions", "F1 of the first sentence", "exact", "F1"]]
    table.append([Path(task).name, str(len(scores)), *(f"{score:.4f}" for score in (baseline, exact, f1))])
    recipe.print_table(table)
    recipe.write_card(trainer, name, task, table)
    recipe.say_where_model_is(output)


if __name__ == "__main__":
    recipe.run(main, recipe.STARTS_AGAIN)
