"""Shared by the recipes: tokenized data, metrics, a stock Trainer with early stopping, and plots.

A recipe then has these steps: data, tokenizer, model, `train`, test, save, reload, `pipeline`, plots, table and card.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from data_errors import DataError
from named_columns import TEXT_COLUMNS
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    EvalPrediction,
    TrainingArguments,
)

from elmo_hf import ElmoTokenizer
from elmo_hf.cli.errors import SingleValues, end_of_stopped, line_of
from elmo_hf.cli.split_notes import SPLIT_RESIDUES, note_cut, note_marks_of_input
from elmo_hf.folder.loading import MODEL_ON_HUB, check_kind
from elmo_hf.folder.model_names import model_folder
from elmo_hf.model.heads_elmo import ElmoTaskModel
from elmo_hf.share.saved_card import CARD, label_card, labels_of, reads_residues
from elmo_hf.share.training_card import ElmoTrainer
from elmo_hf.text.first_look import are_unsplit, raw_texts
from elmo_hf.text.formats import Format

try:
    import matplotlib.pyplot as plt
    from datasets import Dataset, DatasetDict
    from seqeval.metrics import f1_score as entity_f1_score
    from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score, f1_score

    from elmo_hf.embedding.feature_cache import add_bilm_layers
except ModuleNotFoundError as missing:
    sys.exit(f"Error: {missing}. In a clone of elmo-hf, install what the examples need: pip install '.[examples]'")

# Command-line arguments of the recipes.
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a Hub name, or a short name.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the model and the plots.")]
Rows = Annotated[int | None, typer.Option(help="Limit of rows per set.")]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="NAME=COLUMN of your own data; repeat it for more.")
]
Validation = Annotated[Path | None, typer.Option(help="File with your own validation set.")]
Test = Annotated[Path | None, typer.Option(help="File with your own test set.")]
InputFormat = Annotated[
    Format | None,
    typer.Option("--input-format", "--format", help="Format of your files; default: by their names or first lines."),
]
Encoding = Annotated[str, typer.Option(help="Encoding of your files.")]

# The options that an error may advise; `--column` is none of them, because it is NAME=COLUMN here.
OPTIONS_OF_FILES = ("--input-format", "--encoding")

# What the same command does after Ctrl-C.
STARTS_AGAIN = "The same command starts again."
GOES_ON = "The same command goes on after the results that are complete."

plt.switch_backend("Agg")
Metrics = Callable[[EvalPrediction], dict[str, float]]
RowsOfSets = dict[str, list[dict[str, Any]]]  # rows of train, validation and test


def run(main: Callable[..., None], after_stop: str) -> None:
    """Runs a recipe from the command line; an error that a user can correct, and Ctrl-C, end it with one line.

    Args:
        main: the recipe.
        after_stop: what the same command does after Ctrl-C, a sentence.
    """

    @wraps(main)
    def stoppable(*args: Any, **kwargs: Any) -> None:
        try:
            main(*args, **kwargs)
        except KeyboardInterrupt as stop:
            line, code = end_of_stopped(stop, (f"Stopped. {after_stop}", 130))
            print(f"\n{line}", file=sys.stderr)  # a progress bar may have left its line open
            raise typer.Exit(code) from stop

        except Exception as error:
            reason = line_of(error, OPTIONS_OF_FILES)
            if reason is None:
                raise
            print(f"Error: {reason}", file=sys.stderr)
            raise typer.Exit(1) from error

    app = typer.Typer(add_completion=False)
    app.command(cls=SingleValues)(stoppable)
    app()


def check_model(name: str) -> str | Path:
    """The folder or repository of a model, which is checked before data is read and folders are made.

    Raises:
        ValueError: if there is no folder or repository of the name, or no ELMo in the folder.
    """
    source = model_folder(name)
    is_on_hub = not Path(source).exists() and MODEL_ON_HUB.fullmatch(str(source)) is not None
    if not is_on_hub:
        check_kind(source, Path(source))
    return source


def check_known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises DataError if an argument or option has a value that it does not take."""
    for value in given:
        if value not in known:
            raise DataError(f"{option} must be one of {', '.join(known)}, found {value!r}.")


def check_words(data: DatasetDict, tokenizer: ElmoTokenizer, source: str | Path) -> None:
    """Refuses proteins that are not split into residues; notes words that are cut, and marks that are part of words.

    Args:
        data: the sets, with the columns of `task_data.py`.
        tokenizer: the model's.
        source: the model's folder or Hub name.

    Raises:
        DataError: if the words of the model are residues of proteins, and most texts are one word.
    """
    texts = list(texts_of(data))
    joined = [text if isinstance(text, str) else " ".join(text) for text in texts]
    if are_unsplit(joined) and reads_residues(source):
        raise DataError(
            f"most texts are one word, but the words of {source} are residues of proteins. "
            f"{SPLIT_RESIDUES}; where each residue has a label, `words` is the list of the residues."
        )
    note_marks_of_input("the texts", raw_texts(texts), tokenizer, source)
    words = (tokenizer.tokenize(text) if isinstance(text, str) else text for text in texts)
    for _ in note_cut(words, tokenizer):  # after the last one it prints its note
        pass


def texts_of(data: DatasetDict) -> Iterator[str | list[str]]:
    """All texts of all sets, raw or as lists of words."""
    for part in data.values():
        for name in part.column_names:
            if name in TEXT_COLUMNS:
                yield from part[name]


def encode_texts(data: DatasetDict, tokenizer: ElmoTokenizer) -> DatasetDict:
    """Ids and `labels` of texts, or of pairs of texts."""

    def encode(rows: dict[str, list[Any]]) -> dict[str, Any]:
        return {**tokenizer(rows["text"], rows.get("text_pair")), "labels": rows["label"]}

    return data.map(encode, batched=True, remove_columns=data["train"].column_names)


def encode_words(data: DatasetDict, tokenizer: ElmoTokenizer) -> DatasetDict:
    """Ids and `labels` of words: one label per word, none for boundaries."""

    def encode(rows: dict[str, list[Any]]) -> dict[str, Any]:
        labels = [[-100, *labels, -100] for labels in rows["labels"]]
        return {**tokenizer(rows["words"], is_split_into_words=True), "labels": labels}

    return data.map(encode, batched=True, remove_columns=data["train"].column_names)


def keep_layers(data: DatasetDict, model: ElmoTaskModel, tokenizer: ElmoTokenizer, folder: Path) -> DatasetDict:
    """Adds the layers of a frozen biLM, kept in a folder; if parts of the biLM learn, returns the data unchanged."""
    if model.config.frozen_parts != model.config.bilm_parts:
        return data
    folder.mkdir(parents=True, exist_ok=True)
    return DatasetDict(
        {name: add_bilm_layers(part, model, tokenizer, dtype="float16", folder=folder) for name, part in data.items()}
    )


def in_memory(data: DatasetDict) -> RowsOfSets:
    """All rows in memory, so that their file is not read in every epoch."""
    return {name: list(part) for name, part in data.items()}


def text_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Accuracy, and F1 averaged over classes."""
    found = prediction.predictions.argmax(axis=-1)
    macro = f1_score(prediction.label_ids, found, average="macro")
    return {"accuracy": accuracy_score(prediction.label_ids, found), "macro_f1": macro}


def word_metrics(names: list[str]) -> Metrics:
    """Accuracy of words; and if labels mark entities, the F1 of whole entities."""

    def metrics(prediction: EvalPrediction) -> dict[str, float]:
        found, right = words_of(prediction, names)
        scores = {"accuracy": accuracy_score(np.concatenate(right), np.concatenate(found))}
        if "O" in names:
            scores["entity_f1"] = entity_f1_score(right, found)
        return scores

    return metrics


def share_of_commonest(data: DatasetDict, column: str) -> float:
    """The accuracy on the test set, from 0 to 1, of the label that is commonest in training.

    Args:
        data: the sets.
        column: `label`, that of texts, or `labels`, those of their words.
    """
    commonest = Counter(_labels(data["train"], column)).most_common(1)[0][0]
    tested = _labels(data["test"], column)
    return tested.count(commonest) / len(tested)


def _labels(data: Dataset, column: str) -> list[int]:
    """The labels of texts, or of all their words."""
    if column == "label":
        return data[column][:]
    return [label for labels in data[column] for label in labels]


def words_of(prediction: EvalPrediction, names: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """The predicted and the correct labels of each text, by name."""
    predicted, correct = [], []
    for labels, guesses in zip(prediction.label_ids, prediction.predictions.argmax(axis=-1), strict=True):
        is_word = labels != -100
        predicted.append([names[label] for label in guesses[is_word]])
        correct.append([names[label] for label in labels[is_word]])
    return predicted, correct


def make_optimizer(model: ElmoTaskModel, learning_rate: float, rates: dict[str, float]) -> torch.optim.Optimizer:
    """AdamW with a learning rate for each part of the model; keys of `rates` are prefixes of parameter names."""
    groups: dict[float, list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = next((rate for part, rate in rates.items() if name.startswith(part)), learning_rate)
            groups.setdefault(rate, []).append(parameter)
    return torch.optim.AdamW([{"params": parameters, "lr": rate} for rate, parameters in groups.items()])


def train(
    model: ElmoTaskModel,
    tokenizer: ElmoTokenizer,
    data: Mapping[str, Any],
    output: Path,
    *,
    compute_metrics: Metrics | None,
    best: str,
    epochs: int,
    seed: int,
    learning_rate: float = 1e-3,
    batch_size: int = 32,
    rates: dict[str, float] | None = None,
    patience: int = 5,
) -> ElmoTrainer:
    """Trains with early stopping on the validation set; the model then has the best epoch's weights.

    Args:
        model: a model for a task.
        tokenizer: the model's tokenizer.
        data: tokenized `train` and `validation` sets: datasets, or lists of rows.
        output: folder for checkpoints, and for the model when it is saved.
        compute_metrics: metrics of a prediction; None uses the loss alone.
        best: the metric for early stopping, `loss` or one of `compute_metrics`.
        epochs: limit of epochs.
        seed: for shuffling and dropout.
        learning_rate: for parts that `rates` does not name.
        batch_size: rows per step.
        rates: learning rates by prefix of parameter names. The mix has few but influential parameters, and its rate is
            ten times that of the rest.
        patience: epochs without improvement before training stops.
    """
    has_words = "ForTokenClassification" in type(model).__name__
    rates = {"elmo.scalar_mixes": 10 * learning_rate, **(rates or {})}
    arguments = TrainingArguments(
        str(output),
        num_train_epochs=epochs,
        per_device_train_batch_size=batch_size,
        per_device_eval_batch_size=64,
        train_sampling_strategy="group_by_length",
        learning_rate=learning_rate,
        lr_scheduler_type="linear",
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model=best,
        dataloader_pin_memory=torch.cuda.is_available(),
        report_to=[],
        seed=seed,
    )
    collator = DataCollatorForTokenClassification if has_words else DataCollatorWithPadding
    trainer = ElmoTrainer(
        model,
        arguments,
        data_collator=collator(tokenizer),
        train_dataset=data["train"],
        eval_dataset=data["validation"],
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        optimizers=(make_optimizer(model, learning_rate, rates), None),
        callbacks=[EarlyStoppingCallback(patience)],
    )
    trainer.train()
    print(epochs_of(trainer))
    return trainer


def epochs_of(trainer: ElmoTrainer) -> str:
    """How many epochs a trainer ran, and of which one its model is."""
    state, arguments = trainer.state, trainer.args
    num_run = round(state.epoch)
    best_epoch = round(state.epoch * trainer.step_of_weights / state.global_step)
    end = "" if num_run == arguments.num_train_epochs else ", because the score did not get better any more"
    return (
        f"{num_run} of {arguments.num_train_epochs} epochs ran{end}. The model is that of epoch {best_epoch}, the "
        f"first with the best {arguments.metric_for_best_model} on the validation set."
    )


def write_card(trainer: ElmoTrainer, start: str | None, task: str, table: list[list[str]]) -> None:
    """Writes the card of a trained model into its folder.

    Licence, language and source of an earlier card stay: the same command, which alone may replace a model, gives a
    model of the same data.

    Args:
        trainer: the trainer, after it has saved the model.
        start: the name of the model that the training began with; None for random weights.
        task: the task, or the user's own file or folder.
        table: the scores on the test set, as for `print_table`.
    """
    path = Path(trainer.args.output_dir, CARD)
    labels = labels_of(path.parent)
    trainer.create_model_card(finetuned_from=start, dataset=Path(task).name)
    if labels:
        label_card(path, labels)
    with path.open("a", encoding="utf-8") as card:
        card.write(f"\n\n{epochs_of(trainer)}\n\n## On the test set\n\n{as_markdown(table)}")


def say_where_model_is(output: Path) -> None:
    """Prints where the model, its card and its pictures are."""
    print(f"The model is in {output}, and its card is {output / CARD}.")
    say_where_pictures_are(output)


def say_where_pictures_are(output: Path) -> None:
    """Prints where the pictures in a folder are."""
    pictures = sorted(str(path) for path in output.glob("*.png"))
    print(f"Pictures: {', '.join(pictures)}")


def plot_learning_curves(trainer: ElmoTrainer, best: str, path: Path) -> None:
    """Plots training loss, validation loss and the metric of early stopping, by epoch."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axes, name in ((left, "loss"), (left, "eval_loss"), (right, f"eval_{best}")):
        entries = [entry for entry in trainer.state.log_history if name in entry]
        epochs = [entry["epoch"] for entry in entries]
        axes.plot(epochs, [entry[name] for entry in entries], marker="o", label=name)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.legend()
    figure.savefig(path)
    plt.close(figure)


def plot_mix_weights(model: ElmoTaskModel, path: Path) -> None:
    """Plots the weight of each layer in each scalar mix."""
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    mixes = model.scalar_mixes_of_all()
    places = np.arange(model.config.num_hidden_layers + 1)
    for number, (where, mix) in enumerate(zip(("input", "output"), mixes, strict=False)):
        axes.bar(places + 0.4 * number, mix.weights.tolist(), 0.4, label=f"{where}, scale {mix.scale.item():.2f}")
    axes.set_xticks(places + 0.2 * (len(mixes) - 1), ["token", *(f"layer {place}" for place in places[1:])])
    axes.set_ylabel("weight")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path)
    plt.close(figure)


def plot_confusions(right: list[str], found: list[str], path: Path) -> None:
    """Plots how often each label was predicted for each correct label."""
    size = 2 + 0.5 * len({*right, *found})
    figure, axes = plt.subplots(figsize=(size, size), layout="constrained")
    ConfusionMatrixDisplay.from_predictions(right, found, xticks_rotation="vertical", colorbar=False, ax=axes)
    figure.savefig(path)
    plt.close(figure)


def as_markdown(rows: list[list[str]]) -> str:
    """A table in Markdown; the first row is the head."""
    head, *body = rows
    lines = ["| " + " | ".join(row) + " |\n" for row in (head, ["---"] * len(head), *body)]
    return "".join(lines)


def print_table(rows: list[list[str]]) -> None:
    """Prints a table in Markdown; the first row is the head."""
    print(as_markdown(rows), end="")
