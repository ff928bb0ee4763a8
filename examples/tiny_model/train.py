"""Trains the small English model that the package ships: `python examples/tiny_model/train.py DATA OUT`.

DATA is the folder with the books of `books.tsv`, which names their sources; all are in the public domain. OUT receives
the text, the vocabulary, the run and the finished model. Repeating the command resumes an interrupted run.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from books import list_books, write_sentences
from transformers import set_seed

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.training.corpora import count_words, make_vocabulary, read_corpora
from elmo_hf.training.run import new_language_model, pretrain
from elmo_hf.training.trainer import ElmoPretrainer, PretrainingArguments

HERE = Path(__file__).parent
SEED = 1
VOCABULARY_SIZE = 10_000


def main() -> None:
    """Writes text and vocabulary, then trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with the books")
    parser.add_argument("output", type=Path, help="folder for text, vocabulary and run")
    parser.add_argument("--steps", type=int, default=4500, help="of 64 rows and 20 words")
    arguments = parser.parse_args()
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)

    texts = {part: output / f"{part}.txt" for part in ("train", "dev", "test")}
    for part, text in texts.items():
        count = write_sentences([arguments.data / book for book in list_books(part)], text)
        print(f"{text}: {count:,} sentences")
    train(texts["train"], texts["dev"], output, HERE / "config.json", VOCABULARY_SIZE, max_steps=arguments.steps)


def train(
    train_text: Path, dev_text: Path, output: Path, config: Path, vocabulary_size: int, **settings: Any
) -> ElmoPretrainer:
    """Makes a vocabulary and trains on it in `output/model`, or resumes; `settings` are of `PretrainingArguments`."""
    words = output / "words.txt"
    if not words.exists():
        vocabulary = make_vocabulary(count_words(read_corpora([str(train_text)])), vocabulary_size)
        words.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    set_seed(SEED)
    model, tokenizer = new_language_model(words, **json.loads(config.read_text(encoding="utf-8")))
    corpora = (Corpus.from_sentences(read_corpora([str(text)]), tokenizer) for text in (train_text, dev_text))
    defaults: dict[str, Any] = {
        "seed": SEED,
        "per_device_train_batch_size": 64,
        "save_strategy": "steps",
        "save_steps": 1000,
        "eval_strategy": "steps",
        "eval_steps": 1000,
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_perplexity",
        "greater_is_better": False,
        "logging_steps": 100,
        "report_to": "none",
    }
    return pretrain(model, tokenizer, *corpora, PretrainingArguments(str(output / "model"), **(defaults | settings)))


if __name__ == "__main__":
    main()
