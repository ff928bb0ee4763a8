"""Do frozen ELMo features help? The same heads over three kinds of features, with several seeds, on four tasks.

    python examples/compare_features.py MODEL                       # resumes where it was stopped

    ELMo              the biLM of MODEL, frozen
    random ELMo       a biLM of the same architecture with new random weights for each seed, frozen
    word embeddings   a table over the words seen twice in training, learned with the task, as wide as a biLM's P

Everything else is the same: mix, task encoder, classifier, dropout, learning rate, early stopping on the validation
set. Scores are of the test set: accuracy, and for entities their F1. Each run is a line of `results.jsonl` at once;
the table has means and standard deviations over seeds, and the gaps.
"""

import collections
import json
import shutil
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import recipe
import torch
import typer
from datasets import DatasetDict
from task_data import label_names, load
from word_vectors import WordsForSequenceClassification, WordsForTokenClassification

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoForTokenClassification, ElmoTokenizer
from elmo_hf.loading import model_folder
from elmo_hf.task_model import ElmoTaskModel

FEATURES = ("ELMo", "random ELMo", "word embeddings")
SCORES = {"trec": "accuracy", "sst2": "accuracy", "wnut17": "entity_f1", "ewt": "accuracy"}


def make_vocabulary(texts: Iterable[list[str]], path: Path) -> int:
    """Writes the words that occur twice, one a line; returns the number of ids."""
    counts = collections.Counter(word for words in texts for word in words)
    words = ["<S>", "</S>", "<UNK>", *(word for word, count in counts.items() if count > 1)]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return len(words) + 1


def make_model(
    features: str, model_name: str | Path, task: str, data: DatasetDict, folder: Path
) -> tuple[ElmoTaskModel, ElmoTokenizer]:
    """A new model over features of a kind, and its tokenizer; random weights are drawn from torch's generator."""
    names, tokenizer = label_names(data), ElmoTokenizer.from_pretrained(model_name)
    fields: dict[str, Any] = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
    fields |= {"task_encoder": "lstm", "task_hidden_size": 128, "pooling": "max", "classifier_dropout": 0.2}
    fields |= {"use_crf": "O" in names}
    has_words = "words" in data["train"].column_names
    model_class = ElmoForTokenClassification if has_words else ElmoForSequenceClassification
    if features == "ELMo":
        return model_class.from_pretrained(model_name, **fields), tokenizer
    config = ElmoConfig.from_pretrained(model_name, **fields)
    if features == "random ELMo":
        return model_class(config), tokenizer
    texts = data["train"]["words"] if has_words else map(tokenizer.tokenize, data["train"]["text"])
    size = make_vocabulary(texts, folder / "vocab.txt")
    splitter = {"word_splitter": tokenizer.word_splitter, "vocab_file": str(folder / "vocab.txt")}
    config = ElmoConfig(
        token_encoder="word_embedding",
        vocab_size=size,
        projection_size=config.projection_size,
        cell_size=1,  # of the biLM, which is not run
        freeze_bilm=["layer_1", "layer_2"],
        **fields,
    )
    words_class = WordsForTokenClassification if has_words else WordsForSequenceClassification
    return words_class(config), ElmoTokenizer(token_encoder="word_embedding", **splitter)


def run(
    features: str, model_name: str | Path, task: str, rows: int | None, seed: int, epochs: int, work: Path
) -> dict[str, Any]:
    """Trains and tests once."""
    start = time.perf_counter()
    torch.manual_seed(seed)
    data = load(task, rows)
    model, tokenizer = make_model(features, model_name, task, data, work)
    names = label_names(data)
    encode = recipe.encode_words if "words" in data["train"].column_names else recipe.encode_texts
    encoded = recipe.keep_layers(encode(data, tokenizer), model, tokenizer, work / features)
    metrics = recipe.word_metrics(names) if encode is recipe.encode_words else recipe.text_metrics
    best = SCORES[task]
    trainer = recipe.train(
        model, tokenizer, encoded, work / "run", compute_metrics=metrics, best=best, epochs=epochs, seed=seed
    )
    tested = trainer.predict(encoded["test"]).metrics
    result: dict[str, Any] = {"task": task, "features": features, "seed": seed, "score": tested[f"test_{best}"]}
    result |= {"epochs": trainer.state.epoch, "seconds": round(time.perf_counter() - start, 1)}
    # Layers of the same biLM serve the other seeds; random ones do not.
    del trainer, encoded
    for folder in [work / "run"] + [work / "random ELMo"] * (features == "random ELMo"):
        shutil.rmtree(folder, ignore_errors=True)
    return result


def print_results(results: list[dict[str, Any]]) -> None:
    """Means, standard deviations and gaps."""
    scores: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    for result in results:
        scores[result["task"], result["features"]].append(100 * result["score"])
    table = [["task", "score", "seeds", *FEATURES, "over random", "over words"]]
    for task in {task: None for task, _ in scores}:
        found = [scores[task, features] for features in FEATURES]
        if all(found):
            means = [statistics.mean(values) for values in found]
            spreads = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in found]
            cells = [f"{mean:.2f} ± {spread:.2f}" for mean, spread in zip(means, spreads, strict=True)]
            gaps = [f"{means[0] - mean:+.2f}" for mean in means[1:]]
            table.append([task, SCORES[task], str(min(map(len, found))), *cells, *gaps])
    recipe.print_table(table)


def main(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a Hub name, or tiny.")],
    task: Annotated[
        list[str] | None, typer.Option(help="One of the tasks; more than once for more. Default: all.")
    ] = None,
    seeds: int = 5,
    rows: Annotated[int | None, typer.Option(help="Most rows of each set.")] = None,
    epochs: Annotated[int, typer.Option(help="Most epochs of a run.")] = 20,
    output: Annotated[Path, typer.Option(help="Folder for results.")] = Path("comparison"),
) -> None:
    """Run what is not in the results yet, and print the table."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / "results.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(result["task"], result["features"], result["seed"]) for result in results}
    for name in task or SCORES:
        for seed in range(seeds):
            for features in FEATURES:
                if (name, features, seed) not in done:
                    results.append(run(features, model_folder(model), name, rows, seed, epochs, output / "work"))
                    with path.open("a") as file:
                        file.write(json.dumps(results[-1]) + "\n")
        shutil.rmtree(output / "work", ignore_errors=True)
    print_results(results)


if __name__ == "__main__":
    typer.run(main)
