"""Times this checkout against another commit: a guard against growing slower.

    python benchmarks/compare.py main ../shared/data/ud_english_ewt/en_ewt-ud-dev.conllu.gz

The other commit is checked out into a temporary folder. A process for each imports its own `elmo_hf`, with this very
file around it; both load the same weights, must give the same values, and take turns. Printed is the median of the
rounds' own ratios, and the least and largest of them: only what lies outside 1 altogether is a difference.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from timing import Rounds, check_equal, machine, print_table, timed
from torch import Tensor
from transformers.utils.logging import disable_progress_bar
from worker import Worker, serve
from workload import batches_of, random_model, some_sentences

from elmo_hf import ElmoModel

ROOT = Path(__file__).parents[1]
# Name, size and number of batches, and whether there is a backward pass.
CASES = {
    "embed, batch 1": (1, 16, False),
    "embed, batch 8": (8, 6, False),
    "embed, batch 32": (32, 2, False),
    "forward and backward, batch 32": (32, 1, True),
}


@contextmanager
def checkout(reference: str) -> Iterator[Path]:
    """The commit `reference` in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), reference], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main(
    reference: Annotated[str, typer.Argument(help="The other commit: a branch, tag or hash.")],
    sentences: Annotated[Path, typer.Argument(help="Real sentences, split into words: .conllu or .jsonl.")],
    rounds: Annotated[int, typer.Option(help="How often each takes its turn.")] = 7,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 2,
    small: Annotated[bool, typer.Option(help="A tiny model, to see that everything runs.")] = False,
) -> None:
    """Measure, and print a table."""
    torch.set_num_threads(threads)
    print(f"{machine()}; {sentences.name}, {rounds} rounds{', tiny model' if small else ''}")
    with checkout(reference) as tree, tempfile.TemporaryDirectory() as folder:
        random_model(small).save_pretrained(folder)
        packages = {"this": ROOT, reference: tree}
        workers = {
            name: Worker(Path(sys.executable), Path(__file__), folder, sentences.resolve(), threads, package=package)
            for name, package in packages.items()
        }
        rows = [[case, *compare(case, workers, reference, Path(folder), rounds)] for case in CASES]
        for worker in workers.values():
            worker.close()
    print_table(["", "this, s", f"{reference}, s", "times faster", "least", "most"], rows)


def compare(case: str, workers: dict[str, Worker], reference: str, folder: Path, rounds: int) -> list[str]:
    """The cells of a row."""
    values = []
    for name, worker in workers.items():
        worker.ask(case=case, output=str(folder / f"{name.replace('/', '-')}.npy"))
        values.append(torch.from_numpy(np.load(folder / f"{name.replace('/', '-')}.npy")))
    check_equal(reference, values[1], values[0])
    turns = Rounds(
        {name: (lambda worker=worker: worker.ask(case=case)["seconds"]) for name, worker in workers.items()}, rounds
    )
    ratios = turns.ratios(reference, "this")
    seconds = [f"{turns.median(name):.3f}" for name in workers]
    return [*seconds, f"{turns.ratio(reference, 'this'):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}"]


def work(folder: Path, sentences: Path, threads: int) -> None:
    """One checkout's process."""
    disable_progress_bar()
    torch.set_num_threads(threads)
    model = ElmoModel.from_pretrained(folder).eval()

    def answer(case: str, output: str | None = None) -> dict[str, float]:
        size, number, learns = CASES[case]
        batches = batches_of(some_sentences(sentences, size * number), size)
        gradients = model.bilm.layers[0].backward_lstm.recurrent_linear.weight

        def run() -> list[Tensor]:
            model.zero_grad()
            with torch.set_grad_enabled(learns):
                mixes = [model(**batch.inputs).elmo_representations[0] for batch in batches]
                if learns:
                    torch.stack([mix.square().mean() for mix in mixes]).sum().backward()
            return [gradients.grad] if learns else mixes

        seconds = timed(run)()
        if output is not None:
            np.save(output, torch.cat([value.detach().flatten() for value in run()]).numpy())
        return {"seconds": seconds}

    serve(answer)


if __name__ == "__main__":
    if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir():
        work(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    else:
        typer.run(main)
