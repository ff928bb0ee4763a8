"""Plots words per second over batch size, sentence length and threads, of our model and AllenNLP's loop.

    python benchmarks/scaling.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz -o docs/images/scaling.png

Each point is a batch of sentences of one length, cut from real text, so only one quantity changes from point to point.
First both must give equal values; then they take turns, and medians are drawn and printed.
"""

from itertools import chain, islice
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from allennlp_loop import LoopElmo
from matplotlib.figure import Figure
from timing import Rounds, check_equal, machine, print_table, timed
from workload import batches_of, random_model, some_sentences

from elmo_hf import ElmoModel

# Enough words for the largest batch.
NUM_SENTENCES = 450
NAMES = {"ours": "ours", "loop": "loop as in AllenNLP"}


class Curve(NamedTuple):
    """Points that differ in one quantity; each is a count of sentences, of words in each, and of threads."""

    label: str
    points: dict[int, tuple[int, int, int]]


def curves(small: bool, threads: int) -> list[Curve]:
    """The three curves; a tiny model gets few points."""
    sizes, lengths = ((1, 3), (2, 5)) if small else ((1, 4, 16, 64, 256), (5, 20, 80, 200))
    return [
        Curve("sentences a batch (20 words each)", {size: (size, 20, threads) for size in sizes}),
        Curve("words a sentence (8 a batch)", {length: (8, length, threads) for length in lengths}),
        Curve("threads (32 sentences of 20 words)", {number: (32, 20, number) for number in range(1, threads + 1)}),
    ]


def main(
    sentences: Annotated[Path, typer.Argument(help="Real sentences, split into words: .conllu or .jsonl.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture: .png or .svg.")],
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 3,
    threads: Annotated[int, typer.Option(help="Largest count of torch's threads.")] = 2,
    small: Annotated[bool, typer.Option(help="Use a tiny model, to check that everything runs.")] = False,
) -> None:
    """Measure, draw and print a table."""
    model = random_model(small)
    loop = LoopElmo(model)
    drawn = curves(small, threads)
    text = list(chain.from_iterable(some_sentences(sentences, NUM_SENTENCES)))
    figure = Figure(figsize=(9, 3), layout="constrained")
    rows = []
    for axes, curve in zip(figure.subplots(1, len(drawn)), drawn, strict=True):
        speeds = {}
        for number, (size, length, threads) in curve.points.items():
            torch.set_num_threads(threads)
            speeds[number] = words_per_second(model, loop, text, size, length, rounds)
        for name, label in NAMES.items():
            axes.plot(list(speeds), [speed[name] for speed in speeds.values()], marker="o", label=label)
        axes.set(xlabel=curve.label, ylim=(0, None))
        if len(speeds) > 2:
            axes.set_xscale("log")
        axes.set_xticks(list(speeds), list(map(str, speeds)), minor=False)
        axes.minorticks_off()
        for number, speed in speeds.items():
            ratio = speed["ours"] / speed["loop"]
            rows.append([f"{curve.label}: {number}", f"{speed['ours']:,.0f}", f"{speed['loop']:,.0f}", f"{ratio:.2f}"])
    figure.axes[0].set_ylabel("words a second")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(NAMES))
    figure.savefig(output, dpi=100)
    print(f"{machine()}; {rounds} rounds, medians{', tiny model' if small else ''}")
    print_table(["", "ours, words/s", NAMES["loop"], "times"], rows)


@torch.no_grad()
def words_per_second(
    model: ElmoModel, loop: LoopElmo, text: list[str], size: int, length: int, rounds: int
) -> dict[str, float]:
    """Words per second of one batch, by contestant."""
    words = iter(text)
    (batch,) = batches_of([list(islice(words, length)) for _ in range(size)], size)
    check_equal("the loop", loop(batch.input_ids).mix, model(**batch.inputs).last_hidden_state)
    turns = Rounds({"ours": timed(lambda: model(**batch.inputs)), "loop": timed(lambda: loop(batch.input_ids))}, rounds)
    return {name: batch.num_words / turns.median(name) for name in NAMES}


if __name__ == "__main__":
    typer.run(main)
