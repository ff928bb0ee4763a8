"""Which layers each task's recipe learns to use (Peters et al. 2018, §5.5, figure 2).

    python examples/mix_weights.py tiny                    # trains what is missing, then plots
    python examples/mix_weights.py tiny --task trec --task wnut17 --seeds 1

Runs the recipes of this folder as they are, task by task and seed by seed, and compares the mixes of their models:

    ELMo = scale . sum_k s_k h_k,    s = softmax(w)

Recipes with ELMo at the input and the output of their LSTM have two mixes. The plot has means over seeds.

Glossary: h_k layer k of the biLM, s_k its weight, w the learned numbers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import answer_questions
import classify_texts
import label_words
import numpy as np
import recipe
import typer
from safetensors.numpy import load_file
from seeds import check_settings, contents_of, mean_and_deviation, say_what_is_done
from tqdm import tqdm

from elmo_hf.cli.arguments import split_values

RECIPES: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("trec", "sst2", "sst5", "ag_news", "sick"), classify_texts.main),
    **dict.fromkeys(("wnut17", "ewt"), label_words.main),
    "xquad": answer_questions.main,
}
PLACES = ("input", "output")


def read_mixes(folder: Path) -> list[np.ndarray]:
    """The weights of each mix of a saved model: `(L + 1,)`, then the scale."""
    tensors = load_file(folder / "model.safetensors")
    mixes = []
    for place in range(sum(name.endswith(".logits") for name in tensors)):
        powers = np.exp(tensors[f"elmo.scalar_mixes.{place}.logits"])
        mixes.append(np.append(powers / powers.sum(), tensors[f"elmo.scalar_mixes.{place}.scale"]))
    return mixes


def is_done(output: Path, task: str, seed: int) -> bool:
    """Whether a folder has the model of a task and a seed."""
    return (output / task / str(seed) / "model.safetensors").exists()


def plot(weights: dict[tuple[str, str], np.ndarray], path: Path) -> None:
    """Plots `(seeds, L + 1)` weights of each task and place, as means: layers downwards, a darker cell for more."""
    figure, panels = recipe.plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained", sharey=True)
    for place, axes in zip(PLACES, panels, strict=True):
        tasks = [task for task, where in weights if where == place]
        means = np.array([weights[task, place].mean(axis=0) for task in tasks]).T.reshape(-1, len(tasks))
        axes.imshow(means, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (layer, column), value in np.ndenumerate(means):
            axes.text(
                column, layer, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.6 else "black"
            )
        axes.set_xticks(range(len(tasks)), tasks)
        axes.set_yticks(range(len(means)), ["token", *(f"layer {layer}" for layer in range(1, len(means)))])
        axes.set_title(f"ELMo at the {place} of the LSTM")
    figure.savefig(path, dpi=80)
    recipe.plt.close(figure)


def main(
    name: recipe.Model,
    task: Annotated[
        list[str] | None, typer.Option(callback=split_values, help="Tasks, such as trec,sick. Default: all.")
    ] = None,
    seeds: int = 5,
    rows: recipe.Rows = None,
    epochs: int = 20,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the models and the plot.")] = Path("mixes"),
) -> None:
    """Run the recipes whose models are missing, then print and plot the weights."""
    recipe.check_known("--task", task or (), RECIPES)
    contents = contents_of((), recipe.check_model(name))
    check_settings(output, contents, recipe="mix_weights", model=name, rows=rows, epochs=epochs)
    runs = [(one, seed) for one in task or RECIPES for seed in range(seeds)]
    say_what_is_done([run for run in runs if is_done(output, *run)], runs, output)
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for one, seed in tqdm(runs, desc="recipes"):
        folder = output / one / str(seed)
        if not is_done(output, one, seed):
            options: dict[str, Any] = {"output": folder, "rows": rows, "epochs": epochs, "seed": seed}
            RECIPES[one](name, one, **options)
        for place, mix in zip(PLACES, read_mixes(folder), strict=False):
            found.setdefault((one, place), []).append(mix)
    weights = {key: np.array(mixes) for key, mixes in found.items()}
    layers = ["token", *(f"layer {layer}" for layer in range(1, len(mix) - 1))]
    table = [["task", "ELMo at", "seeds", *(f"{layer} (%)" for layer in layers), "scale (%)"]]
    for (one, place), values in weights.items():
        table.append([one, place, str(len(values)), *(mean_and_deviation(column.tolist()) for column in values.T)])
    recipe.print_table(table)
    if seeds > 1:
        print("After ± is the standard deviation over seeds.")
    plot({key: values[:, :-1] for key, values in weights.items()}, output / "mix_weights.png")
    print(f"The models are in the folders of {output}, a folder for each task and seed.")
    recipe.say_where_pictures_are(output)


if __name__ == "__main__":
    recipe.run(main, recipe.GOES_ON)
