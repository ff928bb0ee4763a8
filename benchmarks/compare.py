"""Times this checkout against another commit, so that it does not get slower unnoticed.

    python benchmarks/compare.py main $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz

The other commit is checked out into a temporary folder. Each side has a process with its own `elmo_hf` and this
checkout's `compare_worker.py`. Both load the same weights, must give the same values, and take turns. The table has the
median of the rounds' ratios, and the least and largest: speeds differ only if both are on the same side of 1.
"""

import json
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
from timing import Rounds, check_equal, machine, print_table
from worker import Worker
from workload import random_model, some_sentences

ROOT = Path(__file__).parents[1]
WORKER = Path(__file__).with_name("compare_worker.py")
CASES = {
    "embed, batch 1": {"size": 1, "number": 16, "work": "embed"},
    "embed, batch 8": {"size": 8, "number": 6, "work": "embed"},
    "embed, batch 32": {"size": 32, "number": 2, "work": "embed"},
    "fine-tune, batch 32": {"size": 32, "number": 1, "work": "fine-tune"},
    "pretrain, 32 rows of 20 words": {"size": 32, "number": 1, "work": "pretrain"},
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
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 7,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    small: Annotated[bool, typer.Option(help="Use a tiny model, to check that everything runs.")] = False,
) -> None:
    """Measure and print a table."""
    torch.set_num_threads(threads)
    print(f"{machine()}; {sentences.name}, {rounds} rounds{', tiny model' if small else ''}")
    with checkout(reference) as tree, tempfile.TemporaryDirectory() as folder:
        random_model(small).save_pretrained(folder)
        packages = {"this": ROOT, reference: tree}
        workers = {
            name: Worker(Path(sys.executable), WORKER, package, folder, threads) for name, package in packages.items()
        }
        rows = [[case, *compare(case, sentences, workers, reference, Path(folder), rounds)] for case in CASES]
        for worker in workers.values():
            worker.close()
    print_table(["", "this, s", f"{reference}, s", "times faster", "least", "most"], rows)


def compare(
    case: str, sentences: Path, workers: dict[str, Worker], reference: str, folder: Path, rounds: int
) -> list[str]:
    """The cells of a table row."""
    size, number, work = CASES[case].values()
    texts = folder / "sentences.json"
    texts.write_text(json.dumps(some_sentences(sentences, size * number)), encoding="utf-8")
    request = {"sentences": str(texts), "size": size, "work": work}
    values = []
    for worker in workers.values():
        worker.ask(**request, output=str(folder / "values.npy"))
        values.append(torch.from_numpy(np.load(folder / "values.npy")))
    check_equal(reference, values[1], values[0])
    turns = Rounds(
        {name: (lambda worker=worker: worker.ask(**request)["seconds"]) for name, worker in workers.items()}, rounds
    )
    ratios = turns.ratios(reference, "this")
    seconds = [f"{turns.median(name):.3f}" for name in workers]
    return [*seconds, f"{turns.ratio(reference, 'this'):.2f}", f"{min(ratios):.2f}", f"{max(ratios):.2f}"]


if __name__ == "__main__":
    typer.run(main)
