"""Repeats bilm-tf's reference runs of pretraining: held-out perplexity by seed, and text tokens per second.

The setting is that of bilm-tf's runs on 235,854 words of WikiText-2: 32 rows of 20 steps, word vectors of size 64 from
characters, two layers of 256 cells, 14,032 words, dropout 0.1, Adagrad 0.2, four passes. DATA holds `train.txt`,
`heldout.txt` and `vocab_full.txt`. A text token is a position in a row, with one prediction in each direction.
Perplexity is bilm-tf's: state carried along 32 rows from zero, full softmax.

    python benchmarks/pretraining.py DATA --softmax full --seeds 1 2 3
    python benchmarks/pretraining.py DATA --softmax sampled --steps 150        # speed only
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import TrainerCallback, set_seed

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.text.sentences import read_sentences
from elmo_hf.training.run import new_language_model
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments

CONFIG = {
    "char_filters": [[1, 16], [2, 16], [3, 32], [4, 64], [5, 64]],
    "num_highway_layers": 1,
    "cell_size": 256,
    "projection_size": 64,
    "num_softmax_samples": 1024,
}
ROWS, STEPS = 32, 20
WARM_UP = 20


class StepTimes(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        """Starts without any steps."""
        self.ends: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """Records the time."""
        self.ends.append(time.perf_counter())


def main() -> None:
    """Prints a table row for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--softmax", choices=("full", "sampled"), default="full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--reset-probability", type=float, default=0.0, help="0 is bilm-tf's")
    parser.add_argument(
        "--steps", type=int, default=-1, help="time this many steps, without scores, instead of four passes"
    )
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{'softmax':8}{'seed':>5}{'reset':>6}{'tokens/s':>10}  perplexity: carried, from zero (forward, backward)")
    for seed in arguments.seeds:
        set_seed(seed)
        model, tokenizer = new_language_model(arguments.data / "vocab_full.txt", **CONFIG, softmax=arguments.softmax)
        train, held_out = (
            Corpus.from_sentences(filter(None, map(str.split, read_sentences(arguments.data / name))), tokenizer)
            for name in ("train.txt", "heldout.txt")
        )
        times = StepTimes()
        with TemporaryDirectory() as folder:
            settings = PretrainingArguments(
                folder,
                seed=seed,
                per_device_train_batch_size=ROWS,
                unroll_steps=STEPS,
                num_train_epochs=4,
                max_steps=arguments.steps,
                reset_probability=arguments.reset_probability,
                save_strategy="no",
                report_to="none",
                logging_steps=100,
                disable_tqdm=True,
            )
            trainer = ElmoPretrainer(model, settings, train_dataset=train, eval_dataset=held_out, callbacks=[times])
            trainer.train()
            ends = times.ends[WARM_UP:]
            seconds = statistics.median(after - before for before, after in itertools.pairwise(ends))
            row = f"{arguments.softmax:8}{seed:>5}{arguments.reset_probability:>6}{ROWS * STEPS / seconds:>10,.0f}"
            if arguments.steps < 0:
                scores = trainer.evaluate()
                for state in ("carried_", ""):
                    row += "  " + " ".join(
                        f"{scores[f'eval_{state}{d}_perplexity']:8.2f}" for d in ("forward", "backward")
                    )
            print(row, flush=True)


if __name__ == "__main__":
    main()
