"""Words per second of the whole tokenizer call, against a plain per-character Python loop, on a text file.

    python benchmarks/tokenizer.py $ELMO_HF_DATA/wikitext2/test.txt

The loop does what AllenNLP's `batch_to_ids` does: it builds a list of ids for each word, character by character, and
then a tensor. First both must give the same ids; then they take turns, `--rounds` times, and medians are printed. The
text has one sentence or paragraph per line, words separated by blanks; for raw text the tokenizer splits the same lines
again. Batches have 256 lines and are padded to tensors.
"""

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import tokenizers
import torch
import transformers
import typer

from elmo_hf import ElmoTokenizer

BATCH_SIZE = 256
MAX_WORD_LENGTH = 50


def loop_row(word: str) -> list[int]:
    """One word's row, character by character."""
    if word in ("<S>", "</S>"):
        middle = [257 if word == "<S>" else 258]
    else:
        middle = [byte + 1 for byte in word.encode("utf-8", "ignore")[: MAX_WORD_LENGTH - 2]]
    row = [261] * MAX_WORD_LENGTH
    row[0] = 259
    for place, character in enumerate(middle, start=1):
        row[place] = character
    row[len(middle) + 1] = 260
    return row


def loop_batch(texts: list[list[str]]) -> torch.Tensor:
    """A batch of words with boundaries, `(B, T, 50)`; padding tensors is faster than AllenNLP's padding of lists."""
    rows = []
    for words in texts:
        rows.append(torch.tensor([loop_row(word) for word in ("<S>", *words, "</S>")]))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def check_equal_ids(tokenizer: ElmoTokenizer, batches: list[list[list[str]]]) -> None:
    """Ends the program if the tokenizer and the loop give different ids."""
    for batch in batches:
        ids = tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")["input_ids"]
        if not torch.equal(ids, loop_batch(batch)):
            raise SystemExit("the tokenizer and the loop give different ids")


def words_per_second(run: Callable[[], None], num_words: int) -> float:
    """Words per second of one run."""
    start = time.perf_counter()
    run()
    return num_words / (time.perf_counter() - start)


def main(
    text: Annotated[Path, typer.Argument(help="One sentence or paragraph per line, words separated by blanks.")],
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 5,
) -> None:
    """Measure and print a table."""
    split = [line.split() for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    raw = [" ".join(words) for words in split]
    tokenizer = ElmoTokenizer(max_word_length=MAX_WORD_LENGTH)
    starts = range(0, len(split), BATCH_SIZE)

    def loop() -> None:
        for start in starts:
            loop_batch(split[start : start + BATCH_SIZE])

    def from_words() -> None:
        for start in starts:
            batch = split[start : start + BATCH_SIZE]
            tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")

    def from_text() -> None:
        for start in starts:
            tokenizer(raw[start : start + BATCH_SIZE], padding=True, return_tensors="pt")

    check_equal_ids(tokenizer, [split[start : start + BATCH_SIZE] for start in starts])
    num_words = sum(map(len, split))
    num_pieces = sum(len(tokenizer.tokenize(line)) for line in raw)
    runs = {
        "per-character loop, split words": (loop, num_words),
        "ElmoTokenizer, split words": (from_words, num_words),
        "ElmoTokenizer, raw text": (from_text, num_pieces),
    }
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (run, count) in runs.items():
            speeds[name].append(words_per_second(run, count))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    base = medians["per-character loop, split words"]
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, Python {platform.python_version()}, ", end="")
    print(f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}, torch {torch.__version__}")
    print(f"{text.name}: {num_words:,} words, {rounds} rounds, medians\n")
    print("| | words/s | times the loop |\n|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:,.0f} | {median / base:.1f} |")


if __name__ == "__main__":
    typer.run(main)
