"""Speed and memory of embedding, training and loading at the original's size, against AllenNLP and torch's LSTM.

    python benchmarks/speed.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz --allennlp ALLENNLP/bin/python

Each group first checks that its contestants compute the same values, to `timing.TOLERANCE`, and stops if they do not.
Then they take turns, and medians are printed. `--only` chooses groups. `workload.py` has the workload; the peers are
`allennlp_loop.py`, `projected_lstm.py` and `allennlp_peer.py`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import speed_embedding
import speed_loading
import speed_training
import torch
import typer
from timing import machine
from transformers.utils.logging import disable_progress_bar


class Group(StrEnum):
    """Groups of table rows."""

    embedding = "embedding"
    by_length = "by-length"
    frozen = "frozen"
    fine_tuning = "fine-tuning"
    pretraining = "pretraining"
    loading = "loading"


def main(
    sentences: Annotated[Path, typer.Argument(help="Real sentences, split into words: .conllu or .jsonl.")],
    only: Annotated[list[Group] | None, typer.Option(help="Groups of table rows; default: all.")] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="For `embedding` (default: 1, 8, 32, 64) and `by-length` (64).")
    ] = None,
    allennlp: Annotated[Path | None, typer.Option(help="Python of an environment with AllenNLP 2.10.1.")] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 5,
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    small: Annotated[bool, typer.Option(help="Use a tiny model, to check that everything runs.")] = False,
) -> None:
    """Measure and print tables."""
    torch.set_num_threads(threads)
    disable_progress_bar()
    print(f"{machine()}; {sentences.name}, {rounds} rounds, medians{', tiny model' if small else ''}")
    groups = {
        Group.embedding: lambda: speed_embedding.embedding(
            sentences, batch_size or [1, 8, 32, 64], allennlp, rounds, small
        ),
        Group.by_length: lambda: speed_embedding.embedding(
            sentences, batch_size or [64], allennlp, rounds, small, by_length=True
        ),
        Group.frozen: lambda: speed_training.frozen(sentences, rounds, small),
        Group.fine_tuning: lambda: speed_training.fine_tuning(sentences, rounds, small),
        Group.pretraining: lambda: speed_training.pretraining(sentences, rounds, small),
        Group.loading: lambda: speed_loading.loading(sentences, allennlp, rounds, small),
    }
    for group, measure in groups.items():
        if not only or group in only:
            measure()


if __name__ == "__main__":
    typer.run(main)
