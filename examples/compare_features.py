"""Do frozen ELMo features help? The same heads on several kinds of features, with several seeds, on six tasks.

    python examples/compare_features.py MODEL                       # six tasks; resumes where it stopped
    python examples/compare_features.py MODEL --task reviews.csv --column text=review --column label=stars

    ELMo                     the frozen biLM of MODEL
    random ELMo              a frozen biLM of the same architecture, with new random weights for each seed
    words                    word vectors of the words seen twice in training, learned with the task, as wide as P
    words and ELMo           both: the paper's [x; ELMo], with the learned word vector as x
    words and random ELMo    the same with the random biLM

Everything else is equal: mix, task encoder, classifier, dropout, learning rate, best epoch by the validation set.
Scores are from the test set: accuracy, or F1 for entities. Each run adds a line to `results.jsonl` at once. The tables
have means and standard deviations over seeds, and ELMo's advantage. Below them is the accuracy of the commonest label,
and the 95% interval of each accuracy, which depends on the number of test texts.
"""

import collections
import json
import shutil
import time
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import recipe
import torch
import typer
from datasets import DatasetDict
from own_files import TEXTS, WORDS, OwnData
from recipe import RowsOfSets
from seeds import (
    check_settings,
    contents_of,
    mean_and_deviation,
    say_interval,
    say_spread,
    say_what_is_done,
)
from task_data import label_names, load, own_files
from torch import Tensor

from elmo_hf import (
    ElmoConfig,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    WordVectors,
)
from elmo_hf.model.heads_elmo import ElmoTaskModel, EncodedTexts

# A kind of features, and the kinds that it is compared with.
COMPARISONS = (("ELMo", "random ELMo", "words"), ("words and ELMo", "words and random ELMo", "words"))
FEATURES = tuple(dict.fromkeys(features for kinds in COMPARISONS for features in kinds))
TASKS = ("trec", "sst2", "wnut17", "ewt", "sst5", "sick")
# Chosen on the validation sets, with another seed, except for sst5 and sick; see docs/results.md.
LEARNING_RATE = 4e-3
EPOCHS = {"trec": 8, "sst2": 4, "wnut17": 10, "ewt": 3, "sst5": 4, "sick": 10}
OTHER_EPOCHS = 10  # of a user's own data
EPOCHS_SHOWN = ", ".join(f"{epochs} for {task}" for task, epochs in EPOCHS.items()) + f", {OTHER_EPOCHS} for your own"
BATCH_SIZES = {"trec": 64, "sst2": 64, "wnut17": 32, "ewt": 64}
HEAD: dict[str, Any] = {
    "task_encoder": "lstm",
    "task_hidden_size": 64,
    "representation_dropout": 0.5,
    "classifier_dropout": 0.2,
}


class Task(NamedTuple):
    """The data of a task, read and tokenized once for all runs.

    Attributes:
        name: a key of `TASKS`, or a user's file or folder.
        score: the score that chooses the best epoch and is compared.
        has_words: whether words, and not texts, have labels.
        fields: config fields of the task's models.
        vectors: word vectors that learn with the task.
        tokenizer: the biLM's, with the words of `vectors`.
        data: the data, tokenized.
        commonest: the accuracy of the label that is commonest in training, in percent.
    """

    name: str
    score: str
    has_words: bool
    fields: dict[str, Any]
    vectors: WordVectors
    tokenizer: ElmoTokenizer
    data: DatasetDict
    commonest: float


class WordsAlone(ElmoTaskModel):
    """A model for a task whose layers are all the word vector, twice; its biLM does not run."""

    def encode_texts(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        bilm_layers: Tensor | None,
        inputs_embeds: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        marks: Tensor | None = None,
    ) -> EncodedTexts:
        """Encodes a batch by its `word_vector_ids`."""
        assert self.word_vectors is not None
        layers = self.word_vectors(word_vector_ids).repeat(1, 1, 2).unsqueeze(2)
        layers = layers.expand(-1, -1, self.config.num_hidden_layers + 1, -1)
        return super().encode_texts(input_ids, attention_mask, layers, inputs_embeds, word_vector_ids, marks)


class WordsForSequenceClassification(WordsAlone, ElmoForSequenceClassification):
    """The classifier on word vectors alone."""


class WordsForTokenClassification(WordsAlone, ElmoForTokenClassification):
    """The labeller on word vectors alone."""


def read_task(name: str, model_name: str | Path, rows: int | None, options: OwnData | None = None) -> Task:
    """Reads and tokenizes the data; `options` is what a user says of data of their own."""
    data, tokenizer = load(name, rows, (WORDS, TEXTS), options), ElmoTokenizer.from_pretrained(model_name)
    recipe.check_words(data, tokenizer, model_name)
    labels, columns = label_names(data), data["train"].column_names
    has_words = "words" in columns
    raw = chain(*(data["train"][column] for column in columns if column.startswith("text")))
    texts = data["train"]["words"] if has_words else map(tokenizer.tokenize, raw)
    vectors = WordVectors.learned(texts, ElmoConfig.from_pretrained(model_name).projection_size)
    vectors.put_words_into(tokenizer)
    fields = HEAD | {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    fields |= {"use_crf": "O" in labels} if has_words else {"pooling": "max", "text_pairs": "text_pair" in columns}
    encode = recipe.encode_words if has_words else recipe.encode_texts
    score = "entity_f1" if has_words and "O" in labels else "accuracy"
    commonest = 100 * recipe.share_of_commonest(data, "labels" if has_words else "label")
    return Task(name, score, has_words, fields, vectors, tokenizer, encode(data, tokenizer), commonest)


def make_model(features: str, model_name: str | Path, task: Task) -> ElmoTaskModel:
    """A new model for a task over a frozen biLM; random weights are drawn from torch's generator."""
    fields = dict(task.fields)
    if "words" in features:
        fields["word_vectors"] = task.vectors.config
    model_class = ElmoForTokenClassification if task.has_words else ElmoForSequenceClassification
    if "random" in features:
        config = ElmoConfig.from_pretrained(model_name, **fields)
        bilm = ElmoModel(config).state_dict()  # drawn first, so that a seed has one random biLM and its layers are kept
        model = model_class(config)
        model.elmo.load_state_dict(bilm)
        return model
    if "ELMo" in features:
        return model_class.from_pretrained(model_name, **fields)
    # The smallest biLM with layers as wide as the word vector twice, which takes the ids of the model's tokenizer.
    length = ElmoConfig.from_pretrained(model_name).max_word_length
    sizes = {"projection_size": task.vectors.size, "cell_size": 1, "char_filters": [[1, 1]], "max_word_length": length}
    config = ElmoConfig(**sizes, **fields)
    if task.has_words:
        return WordsForTokenClassification(config)
    return WordsForSequenceClassification(config)


def train(model: Any, task: Task, rows: RowsOfSets, seed: int, epochs: int, work: Path) -> Any:
    """Trains a model on a task's rows, and keeps the best epoch's weights; returns the Trainer."""
    names = [model.config.id2label[label] for label in range(model.config.num_labels)]
    return recipe.train(
        model,
        task.tokenizer,
        rows,
        work / "run",
        compute_metrics=recipe.word_metrics(names) if task.has_words else recipe.text_metrics,
        best=task.score,
        epochs=epochs,
        seed=seed,
        learning_rate=LEARNING_RATE,
        batch_size=BATCH_SIZES.get(task.name, 64),
    )


def run(features: str, model_name: str | Path, task: Task, seed: int, epochs: int, work: Path) -> dict[str, Any]:
    """Trains and tests once; a folder in `work` keeps the biLM's layers."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    model, data = make_model(features, model_name, task), task.data
    if "ELMo" in features:
        folder = work / ("random" if "random" in features else "pretrained")
        data = recipe.keep_layers(data, model, task.tokenizer, folder)
    rows = recipe.in_memory(data)
    trainer = train(model, task, rows, seed, epochs, work)
    tested = trainer.predict(rows["test"]).metrics
    return {
        "task": task.name,
        "features": features,
        "seed": seed,
        "score": tested[f"test_{task.score}"],
        "measure": task.score,
        "commonest": task.commonest,
        "has_words": task.has_words,
        "test_texts": len(data["test"]),
        "validation": trainer.state.best_metric,
        "weights": [[*mix.weights.tolist(), mix.scale.item()] for mix in model.scalar_mixes_of_all()],
        "epochs": trainer.state.epoch,
        "seconds": round(time.perf_counter() - start, 1),
    }


def print_results(results: list[dict[str, Any]]) -> None:
    """Prints means and deviations over the seeds that all kinds of features have, and the first kind's advantage."""
    scores: dict[tuple[str, str], dict[int, float]] = collections.defaultdict(dict)
    measures = {result["task"]: result["measure"] for result in results}
    for result in results:
        scores[result["task"], result["features"]][result["seed"]] = result["score"]
    for kinds in COMPARISONS:
        table = [["task", "score", "seeds", *kinds, *(f"over {kind}" for kind in kinds[1:])]]
        for task in measures:
            seeds = set.intersection(*(set(scores[task, features]) for features in kinds))
            if not seeds:
                continue
            means = []
            cells = []
            for features in kinds:
                values = [scores[task, features][seed] for seed in seeds]
                means.append(100 * float(np.mean(values)))
                cells.append(mean_and_deviation(values))
            gaps = [f"{means[0] - mean:+.2f}" for mean in means[1:]]
            table.append([task, measures[task], str(len(seeds)), *cells, *gaps])
        if len(table) > 1:
            recipe.print_table(table)
            print()
    say_spread(max((len(of_seeds) for of_seeds in scores.values()), default=0))


def print_commonest(results: list[dict[str, Any]]) -> None:
    """Prints the accuracy of the label that is commonest in training; results of earlier versions lack it."""
    lines = []
    for result in results:
        if result["measure"] == "accuracy" and "commonest" in result:
            count = result["test_texts"]
            share = f"{result['commonest']:.2f} %"
            lines.append(f"{result['task']}: {count} test texts; the label commonest in training is right in {share}.")
    for line in dict.fromkeys(lines):
        print(line)


def print_intervals(results: list[dict[str, Any]]) -> None:
    """Prints the 95% interval of the mean accuracy of each task's texts; labels of words depend on one another."""
    scores: dict[tuple[str, str, int], list[float]] = collections.defaultdict(list)
    for result in results:
        if result.get("has_words") is False and result["measure"] == "accuracy":
            scores[result["task"], result["features"], result["test_texts"]].append(result["score"])
    for (task, features, count), values in scores.items():
        say_interval(f"{task}, {features}", float(np.mean(values)), count)


def main(
    model: recipe.Model,
    task: Annotated[
        list[str] | None, typer.Option(help="A task, or your own file or folder; repeat it for more. Default: all.")
    ] = None,
    seeds: int = 5,
    rows: recipe.Rows = None,
    epochs: Annotated[int | None, typer.Option(help=f"Epochs of a run; default: {EPOCHS_SHOWN}.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.")] = Path("comparison"),
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
) -> None:
    """Run the combinations that have no results yet, and print the tables."""
    source = recipe.check_model(model)
    work = output / "work"
    path = output / "results.jsonl"
    options = OwnData(column, validation, test, input_format, encoding)
    contents = contents_of(own_files(task or TASKS, options), source)
    settings = {"model": model, "rows": rows, "epochs": epochs, **options.settings()}
    check_settings(output, contents, recipe="compare_features", **settings)
    work.mkdir(parents=True, exist_ok=True)
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(result["task"], result["features"], result["seed"]) for result in results}
    say_what_is_done(done, list(product(task or TASKS, FEATURES, range(seeds))), output)
    for name in task or TASKS:
        data = None  # is read if a run needs it
        for seed in range(seeds):
            for features in FEATURES:
                if (name, features, seed) in done:
                    continue
                if data is None:
                    data = read_task(name, source, rows, options)
                results.append(run(features, source, data, seed, epochs or EPOCHS.get(name, OTHER_EPOCHS), work))
                with path.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                shutil.rmtree(work / "run")
            # All seeds use the same layers of MODEL; random layers are for one seed.
            shutil.rmtree(work / "random", ignore_errors=True)
        shutil.rmtree(work / "pretrained", ignore_errors=True)
    shutil.rmtree(work)
    print_results(results)
    print_commonest(results)
    print_intervals(results)
    print(f"The results are in {path}.")


if __name__ == "__main__":
    recipe.run(main, recipe.GOES_ON)
