"""Trains a small English model on the text of `build_corpus.py`: `python examples/tiny_model/train_corpus.py TEXT OUT`.

Sizes, vocabulary and learning rate are options, so that designs can be compared. Repeating the command resumes an
interrupted run exactly. The held-out text that chooses the checkpoint is `TEXT/dev.txt`.
"""

import argparse
from pathlib import Path

from train import HERE, train


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="folder that build_corpus.py has written")
    parser.add_argument("output", type=Path, help="folder for vocabulary and run")
    parser.add_argument("--config", type=Path, default=HERE / "config.json", help="fields of ElmoConfig")
    parser.add_argument("--vocabulary", type=int, default=20_000, help="words of the softmax")
    parser.add_argument("--steps", type=int, default=50_000, help="of ROWS rows and 20 words")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--schedule", default="constant", help="of the learning rate: constant, linear or cosine")
    parser.add_argument("--checkpoint-steps", type=int, default=1000, help="steps from checkpoint to checkpoint")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    train(
        arguments.text / "train.txt",
        arguments.text / "dev.txt",
        arguments.output,
        arguments.config,
        arguments.vocabulary,
        max_steps=arguments.steps,
        per_device_train_batch_size=arguments.rows,
        learning_rate=arguments.learning_rate,
        lr_scheduler_type=arguments.schedule,
        save_steps=arguments.checkpoint_steps,
        eval_steps=arguments.checkpoint_steps,
    )


if __name__ == "__main__":
    main()
