r"""Pretrain small ELMos on a task's own text, without its labels, and classify with them.

    python examples/pretrain_and_classify.py ag_news           # or sst2, sst5, trec
    python examples/pretrain_and_classify.py reviews.csv --column text=review --column label=sentiment

Two biLMs are pretrained: one reads words through a word embedding, one reads characters. Each is then frozen, and a
classifier is trained for each way of mixing its layers:

    learned weights     the paper's scalar mix
    random weights      a scalar mix with weights drawn once and fixed
    learned function    a linear layer over all layers side by side

The last row of each biLM, "not pretrained", has learned mix weights and a biLM with random weights. Sizes are options.
This film-review ELMo has its own character filters and no projection, because filters, P and H are equal (bilm-tf's
rule):

    python examples/pretrain_and_classify.py sst2 --reads characters --filters 1:16,2:16,3:32,4:64 \
        --projection-size 128 --cell-size 128 --text reviews.txt

`--text` adds sentences from your own file to the pretraining text: one a line, JSON lines, or CoNLL-U. Each run adds
a line to `results.jsonl`; the same command resumes where it stopped.

Glossary: P `--projection-size`, H `--cell-size`, filters `width:count`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any

import recipe
import torch
import typer
from datasets import DatasetDict
from own_files import TEXTS, OwnData
from seeds import Results, check_settings, contents_of, mean_and_deviation, say_spread, say_what_is_done
from task_data import TASKS, label_names, load, own_files
from transformers import pipeline

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoTokenizer
from elmo_hf.cli.arguments import split_values
from elmo_hf.cli.split_notes import note_cut
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.share.training_card import ElmoTrainer
from elmo_hf.text.sentences import read_sentences
from elmo_hf.training.corpora import make_vocabulary
from elmo_hf.training.run import new_language_model, pretrain
from elmo_hf.training.trainer import PretrainingArguments

READS = ("words", "characters")
MIXES = ("learned weights", "random weights", "learned function", "not pretrained")


def own_sentences(path: Path | None, options: OwnData) -> Iterator[list[str]]:
    """The sentences of a file, split into words; none without a file."""
    split = ElmoTokenizer().tokenize
    if path is None:
        return
    for sentence in read_sentences(path, options.encoding, None, options.input_format):
        words = split(sentence) if isinstance(sentence, str) else sentence
        if words:
            yield words


def files_of(task: str, text: Path | None, options: OwnData) -> list[Path]:
    """The user's files that a run reads: those of the task, and more text to pretrain on."""
    files = own_files([task], options)
    if text is not None:
        files.append(text)
    return files


def parse_filters(filters: str) -> list[list[int]]:
    """Character filters, `width:count` with commas between, as the config has them."""
    pairs = []
    for pair in filters.split(","):
        width, _, count = pair.partition(":")
        pairs.append([int(width), int(count)])
    return pairs


def pretrain_on(
    data: DatasetDict, more: Iterable[list[str]], fields: dict[str, Any], folder: Path, epochs: float, seed: int
) -> None:
    """Pretrains on the training texts and more sentences, in a folder; continues an interrupted run there."""
    split = ElmoTokenizer().tokenize
    training = [split(text) for text in data["train"]["text"]]
    training += more
    validation = [split(text) for text in data["validation"]["text"]]
    vocabulary = folder.with_name("words.txt")
    words = make_vocabulary(Counter(chain.from_iterable(training)), max_size=20_000, min_count=2)
    vocabulary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    torch.manual_seed(seed)
    language_model, tokenizer = new_language_model(vocabulary, **fields)
    arguments = PretrainingArguments(
        str(folder), num_train_epochs=epochs, per_device_train_batch_size=32, seed=seed, report_to=[]
    )
    corpus = Corpus.from_sentences(note_cut(training, tokenizer), tokenizer)
    held_out = Corpus.from_sentences(validation, tokenizer)
    pretrain(language_model, tokenizer, corpus, held_out, arguments)


def perplexity_of(folder: Path) -> float:
    """The last perplexity of the validation texts in the log of a finished run."""
    entries = json.loads((folder / "log.json").read_text(encoding="utf-8"))
    return [entry["eval_perplexity"] for entry in entries if "eval_perplexity" in entry][-1]


def make_classifier(
    elmo: Path, names: list[str], fields: dict[str, Any], is_pretrained: bool
) -> ElmoForSequenceClassification:
    """A classifier over a biLM, with its weights or with random ones."""
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    fields = {"task_encoder": "lstm", "pooling": "max", **labels, **fields}
    if is_pretrained:
        return ElmoForSequenceClassification.from_pretrained(elmo, **fields)
    return ElmoForSequenceClassification(ElmoConfig.from_pretrained(elmo, **fields))


def classify_with(
    model: ElmoForSequenceClassification, data: DatasetDict, elmo: Path, output: Path, epochs: int, seed: int
) -> tuple[ElmoTrainer, str, float]:
    """Trains and saves a classifier; returns its trainer, the mix's weights, and the accuracy on the test set."""
    tokenizer = ElmoTokenizer.from_pretrained(elmo)
    layers = recipe.keep_layers(recipe.encode_texts(data, tokenizer), model, tokenizer, elmo / "layers")
    encoded = recipe.in_memory(layers)
    trainer = recipe.train(
        model,
        tokenizer,
        encoded,
        output,
        compute_metrics=recipe.text_metrics,
        best="accuracy",
        epochs=epochs,
        seed=seed,
    )
    trainer.save_model(str(output))
    recipe.plot_learning_curves(trainer, "accuracy", output / "learning_curves.png")
    mixes = model.scalar_mixes_of_all()
    weights = " ".join(f"{weight:.2f}" for weight in mixes[0].weights.tolist()) if mixes else "a matrix"
    return trainer, weights, trainer.predict(encoded["test"]).metrics["test_accuracy"]


def print_results(
    accuracies: dict[tuple[str, str], list[float]], perplexities: dict[str, list[float]], done: Results
) -> None:
    """Prints the means over seeds of each biLM and mix, and the weights of the last seed's mix."""
    table = [["biLM reads", "perplexity", "mix", "weights of token, layer 1, ... (last seed)", "accuracy"]]
    for (kind, name), scores in accuracies.items():
        perplexity = sum(perplexities[kind]) / len(perplexities[kind])
        weights = done[kind, name, len(scores) - 1][0]
        table.append([kind, f"{perplexity:.1f}", name, weights, mean_and_deviation(scores)])
    recipe.print_table(table)
    say_spread(max(map(len, accuracies.values())))


def plot(accuracies: dict[tuple[str, str], list[float]], path: Path) -> None:
    """Plots the accuracy of each biLM and mix, a point for each seed."""
    figure, axes = recipe.plt.subplots(figsize=(6, 0.5 + 0.4 * len(accuracies)), layout="constrained")
    for row, scores in enumerate(accuracies.values()):
        axes.scatter([100 * score for score in scores], [row] * len(scores), alpha=0.6)
    axes.set_yticks(range(len(accuracies)), [f"{reads}, {mix}" for reads, mix in accuracies])
    axes.invert_yaxis()
    axes.set_xlabel("accuracy (%)")
    figure.savefig(path, dpi=80)
    recipe.plt.close(figure)


def main(
    task: Annotated[str, typer.Argument(help="ag_news, sst2, sst5, trec, or a file of texts and labels")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for all models.")] = Path("own_elmo"),
    reads: Annotated[
        list[str] | None, typer.Option(callback=split_values, help="words or characters. Default: both.")
    ] = None,
    mix: Annotated[list[str] | None, typer.Option(help="A row of the list above; repeat it. Default: all.")] = None,
    filters: Annotated[str, typer.Option(help="Character filters, width:count.")] = "1:16,2:16,3:32,4:64",
    projection_size: Annotated[int, typer.Option(help="P, the size of each direction's vectors.")] = 64,
    cell_size: Annotated[int, typer.Option(help="H, the LSTM's cells.")] = 256,
    layers: Annotated[int, typer.Option(help="LSTM layers.")] = 2,
    text: Annotated[Path | None, typer.Option(help="A file with more text to pretrain on.")] = None,
    rows: recipe.Rows = None,
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
    pretraining_epochs: float = 10,
    epochs: int = 15,
    seeds: int = 1,
) -> None:
    """Pretrain the biLMs, train four classifiers on each, print one table and plot it."""
    recipe.check_known("--reads", reads or (), READS)
    recipe.check_known("--mix", mix or (), MIXES)
    sizes = {"projection_size": projection_size, "cell_size": cell_size, "num_hidden_layers": layers}
    options = OwnData(column, validation, test, input_format, encoding)
    texts = {"task": task, "text": text and str(text), "rows": rows, **options.settings()}
    # The format and the encoding may be those of `--text`, but columns and sets are the task's.
    data = load(task, rows, (TEXTS,), OwnData(column, validation, test) if task in TASKS else options)
    settings = {**texts, **sizes, "filters": filters, "pretraining_epochs": pretraining_epochs, "epochs": epochs}
    check_settings(output, contents_of(files_of(task, text, options)), recipe="pretrain_and_classify", **settings)
    inputs = {
        "words": {"token_encoder": "word_embedding"},
        "characters": {"char_filters": parse_filters(filters), "num_highway_layers": 1},
    }
    perplexities: dict[str, list[float]] = {}
    done = Results(output / "results.jsonl")
    say_what_is_done(done, list(product(reads or READS, mix or MIXES, range(seeds))), output)
    accuracies: dict[tuple[str, str], list[float]] = {}
    for seed in range(seeds):
        place = output / str(seed)
        place.mkdir(parents=True, exist_ok=True)
        drawn = torch.rand(layers + 1, generator=torch.Generator().manual_seed(seed)).log()
        mixes: dict[str, dict[str, Any]] = {
            "random weights": {"scalar_mix_weights": (drawn / drawn.sum()).tolist(), "scalar_mix_trainable": False},
            "learned function": {"layer_mix": "linear"},
        }
        for kind in reads or READS:
            elmo = place / kind
            if not (elmo / "config.json").exists():
                pretrain_on(data, own_sentences(text, options), sizes | inputs[kind], elmo, pretraining_epochs, seed)
            perplexities.setdefault(kind, []).append(perplexity_of(elmo))
            for name in mix or MIXES:
                folder, fields = place / f"{kind} {name}".replace(" ", "_"), mixes.get(name, {})
                if (kind, name, seed) not in done:
                    is_pretrained = name != "not pretrained"
                    torch.manual_seed(seed)
                    classifier = make_classifier(elmo, label_names(data), fields, is_pretrained)
                    trainer, weights, accuracy = classify_with(classifier, data, elmo, folder, epochs, seed)
                    table = [["task", "test texts", "accuracy"]]
                    table.append([Path(task).name, str(len(data["test"])), f"{accuracy:.4f}"])
                    recipe.write_card(trainer, str(elmo) if is_pretrained else None, task, table)
                    done.add(kind, name, seed, value=(weights, accuracy))
                accuracies.setdefault((kind, name), []).append(done[kind, name, seed][1])
    classify = pipeline("text-classification", model=str(folder), trust_remote_code=True)
    for row in data["test"].select(range(3)):
        print(row["text"], "->", classify(row["text"])[0], "right:", label_names(data)[row["label"]])
    print_results(accuracies, perplexities, done)
    plot(accuracies, output / "accuracies.png")
    print(f"The models are in the folders of {place}, of the last seed, such as {folder}; each has a card, README.md.")
    recipe.say_where_pictures_are(output)


if __name__ == "__main__":
    recipe.run(main, recipe.GOES_ON)
