"""How much labelled data ELMo saves, how to mix its layers, and where to add it (Peters et al. 2018, §5.1, 5.2, 5.4).

    python examples/sample_efficiency.py tiny figure1             # score over the size of the training set
    python examples/sample_efficiency.py tiny table2              # the last layer, or all with strong or weak lambda
    python examples/sample_efficiency.py tiny table3              # ELMo at the input, the output, or both

A bidirectional LSTM reads word vectors x that learn with the task, with ELMo beside them (`+`) or without:

    e_t = [LSTM([x_t (; ELMo_t)]) (; ELMo'_t)],    ELMo_t = scale . sum_k s_k h_kt,    s = softmax(w)
    loss = task loss + lambda . sum_k (w_k - mean w)^2

ELMo' at the output has a mix of its own. Without ELMo there are zeros in its place, so every model has the same LSTM.
Each seed draws rows, the same for all models; words seen less than twice in them are unknown. Small sets are repeated
up to `LEAST_ROWS` rows in an epoch. At most `--choice` validation rows choose the epoch, and the score is that of the
test set. Each run adds a line to `results.jsonl`; the three commands share runs, and resume where they stopped.

Glossary: x word vector, h_k layer k of the biLM, s the mix's weights, lambda `scalar_mix_l2`.
"""

import collections
import itertools
import math
import shutil
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import compare_features
import numpy as np
import recipe
import torch
import typer
from compare_features import EPOCHS, OTHER_EPOCHS, Task, train
from data_errors import DataError
from own_files import OwnData
from recipe import RowsOfSets
from seeds import Results, check_settings, contents_of, mean_and_deviation, plot_band, say_spread, say_what_is_done
from task_data import own_files
from tqdm import tqdm

from elmo_hf.cli.arguments import split_values
from elmo_hf.model.heads_elmo import ElmoTaskModel

LEAST_ROWS = 1000
SIZES = (50, 150, 500, 1500)


class Setting(NamedTuple):
    """Where ELMo is, and the config fields of its mix."""

    at_input: bool = True
    at_output: bool = False
    mix: dict[str, Any] = {"scalar_mix_l2": 0.001}


# The rows of the paper's tables by name; equal settings are run once.
SETTINGS = {
    "without ELMo": Setting(at_input=False),
    "last layer": Setting(mix={"scalar_mix_weights": [0, 0, 1], "scalar_mix_trainable": False}),
    "lambda 1": Setting(mix={"scalar_mix_l2": 1.0}),
    "lambda 0.001": Setting(),
    "output": Setting(at_input=False, at_output=True),
    "input and output": Setting(at_output=True),
}
# For each command its settings, by their names in its table.
SHOWN = {
    "figure1": {"without ELMo": "without ELMo", "with ELMo": "lambda 0.001"},
    "table2": {name: name for name in ("without ELMo", "last layer", "lambda 1", "lambda 0.001")},
    "table3": {"none": "without ELMo", "input": "lambda 0.001", "input and output": "input and output"}
    | {"output": "output"},
}


def without_input(encoder: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """A hook before the task encoder: puts zeros in ELMo's place at the input, so the weights there learn nothing."""
    token_vectors, (first, *others), *rest = inputs
    return token_vectors, [torch.zeros_like(first), *others], *rest


def make_model(setting: Setting, source: str | Path, task: Task) -> ElmoTaskModel:
    """A new model of [x; ELMo] for a setting; random weights are drawn from torch's generator."""
    fields = task.fields | setting.mix | {"num_output_representations": 1 + setting.at_output}
    task = task._replace(fields=fields)
    model = compare_features.make_model("words and ELMo", source, task)
    if not setting.at_input:
        model.task_encoder.register_forward_pre_hook(without_input)
    return model


def sample(rows: RowsOfSets, size: int, seed: int, unknown: int, choice: int) -> RowsOfSets:
    """Draws training rows; in all sets, words that are not twice in these rows become unknown."""
    drawn = np.random.default_rng(seed).permutation(len(rows["train"]))[:size]
    train = [rows["train"][index] for index in drawn]
    counts = collections.Counter(int(word) for row in train for word in row["word_vector_ids"])

    def known(row: dict[str, Any]) -> dict[str, Any]:
        words = [word if counts[int(word)] > 1 else unknown for word in row["word_vector_ids"]]
        return {**row, "word_vector_ids": words}

    times = math.ceil(min(LEAST_ROWS, len(rows["train"])) / size)
    return {
        "train": [known(row) for row in train * times],
        "validation": [known(row) for row in rows["validation"][:choice]],
        "test": [known(row) for row in rows["test"]],
    }


def run(model: ElmoTaskModel, task: Task, rows: RowsOfSets, seed: int, epochs: int, work: Path) -> float:
    """Trains a new model on sampled rows; returns the score of the test set."""
    trainer = train(model, task, rows, seed, epochs, work)
    return trainer.predict(rows["test"]).metrics[f"test_{task.score}"]


def plot(
    results: dict[tuple[Any, ...], list[float]], shown: dict[str, str], scores: dict[str, str], path: Path
) -> None:
    """Plots the scores of each task: over the training set's size, or seed by seed with means."""
    size = (4.5 * len(scores), 3.5)
    figure, panels = recipe.plt.subplots(1, len(scores), figsize=size, layout="constrained", squeeze=False)
    for task, axes in zip(scores, panels[0], strict=True):
        sizes = sorted({key[2] for key in results if key[0] == task})
        for place, (label, name) in enumerate(shown.items()):
            found = [results[task, name, size] for size in sizes]
            if len(sizes) > 1:
                plot_band(axes, sizes, found, label)
            else:
                axes.scatter([place] * len(found[0]), 100 * np.array(found[0]), alpha=0.5)
                axes.plot(place, 100 * np.mean(found[0]), "k_", markersize=20)
        if len(sizes) > 1:
            axes.set(xscale="log", xlabel="training rows")
            axes.set_xticks(sizes, sizes)
            axes.minorticks_off()
            axes.legend()
        else:
            axes.set_xticks(range(len(shown)), shown, rotation=20)
        axes.set(title=task, ylabel=f"{scores[task]} (%)")
    figure.savefig(path, dpi=80)
    recipe.plt.close(figure)


def number_of_rows(value: str) -> int:
    """A value of `--size`; raises DataError unless it is a number above 0."""
    if not value.isdecimal() or int(value) == 0:
        raise DataError(f"--size must be numbers of rows above 0, such as 100,200, found {value!r}.")
    return int(value)


def main(
    model: recipe.Model,
    what: Annotated[str, typer.Argument(help="figure1, table2 or table3")],
    task: Annotated[
        list[str] | None, typer.Option(help="A task, or your own file or folder; repeat it for more.")
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            callback=split_values,
            help="Training rows, such as 100,200; may be repeated. Default: all, and smaller sets for figure 1.",
        ),
    ] = None,
    seeds: int = 5,
    rows: recipe.Rows = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a run; default: by task.")] = None,
    choice: Annotated[int, typer.Option(help="Validation rows to choose the epoch with, at most.")] = 500,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for results.")] = Path("sample_efficiency"),
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
) -> None:
    """Run the combinations that have no results yet, print the table and plot it."""
    recipe.check_known("WHAT", [what], SHOWN)
    chosen_sizes = [number_of_rows(value) for value in size or []]
    work = output / "work"
    shown = SHOWN[what]
    options = OwnData(column, validation, test, input_format, encoding)
    source = recipe.check_model(model)
    results = collections.defaultdict(list)
    tasks = task or ["trec", "ewt"]
    contents = contents_of(own_files(tasks, options), source)
    settings = {"model": model, "rows": rows, "epochs": epochs, "choice": choice, **options.settings()}
    check_settings(output, contents, recipe="sample_efficiency", **settings)
    work.mkdir(parents=True, exist_ok=True)
    done = Results(output / "results.jsonl")
    scores: dict[str, str] = {}  # by task
    for name in tasks:
        read = compare_features.read_task(name, source, rows, options)
        scores[name] = read.score
        elmo = compare_features.make_model("words and ELMo", source, read)
        full = recipe.in_memory(recipe.keep_layers(read.data, elmo, read.tokenizer, work / "layers"))
        most = [len(full["train"])]
        sizes = chosen_sizes or ([*SIZES, *most] if what == "figure1" else most)
        unknown = read.vectors.words.index("<UNK>") + 1
        runs = list(itertools.product([name], shown.values(), sizes, range(seeds)))
        say_what_is_done(done, runs, output)
        for _, setting, number, seed in tqdm(runs, desc=name):
            if (name, setting, number, seed) not in done:
                sampled = sample(full, number, seed, unknown, choice)
                torch.manual_seed(seed)
                new_model = make_model(SETTINGS[setting], source, read)
                score = run(new_model, read, sampled, seed, epochs or EPOCHS.get(name, OTHER_EPOCHS), work)
                done.add(name, setting, number, seed, value=score)
                shutil.rmtree(work / "run")
            results[name, setting, number].append(done[name, setting, number, seed])
    shutil.rmtree(work)
    table = [["task", "score", "training rows", "seeds", *shown]]
    for name, number in dict.fromkeys((name, number) for name, _, number in results):
        cells = [mean_and_deviation(results[name, setting, number]) for setting in shown.values()]
        table.append([name, scores[name], f"{number:,}", str(seeds), *cells])
    recipe.print_table(table)
    say_spread(seeds)
    plot(results, shown, scores, output / f"{what}.png")
    recipe.say_where_pictures_are(output)


if __name__ == "__main__":
    recipe.run(main, recipe.GOES_ON)
