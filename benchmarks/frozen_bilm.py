"""The cost of a frozen biLM in training: peak memory of a step, and time of an epoch with precomputed layers.

    python benchmarks/frozen_bilm.py --projection-size 128 --cell-size 1024

Memory: each contestant is a separate process; its peak is measured above the memory before the pass. All run the same
batch: a forward pass of the labeller without gradients, a training step with the biLM frozen, and one with everything
learning. Time: an epoch of training steps over random sentences, with the biLM run and with layers kept by
`add_bilm_layers`; both must give the same loss. The contestants take turns, `--rounds` times; medians are printed.
"""

import multiprocessing
import platform
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import datasets
import numpy as np
import torch
import transformers
import typer
from transformers import DataCollatorForTokenClassification

from elmo_hf import ElmoConfig, ElmoForTokenClassification, ElmoTokenizer
from elmo_hf.embedding.feature_cache import add_bilm_layers

BATCH_SIZE, NUM_WORDS, NUM_LABELS = 32, 25, 9
CONTESTANTS = ("forward pass", "step, biLM frozen", "step, everything learns")


def make_model(sizes: dict[str, int], freeze_bilm: bool) -> ElmoForTokenClassification:
    """A labeller with the paper's task encoder."""
    torch.manual_seed(0)
    config = ElmoConfig(
        **sizes, num_highway_layers=1, freeze_bilm=freeze_bilm, task_encoder="lstm", num_labels=NUM_LABELS
    )
    return ElmoForTokenClassification(config)


def make_sentences(number: int) -> list[list[str]]:
    """Random words of up to 12 letters."""
    generator = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lengths = generator.integers(NUM_WORDS // 2, NUM_WORDS * 3 // 2, number)

    def word() -> str:
        return "".join(generator.choice(letters, generator.integers(1, 13)))

    return [[word() for _ in range(length)] for length in lengths]


def peak_memory(contestant: str, sizes: dict[str, int]) -> float:
    """Peak MiB of one pass above the memory before it."""
    torch.set_num_threads(1)
    model = make_model(sizes, freeze_bilm=contestant != CONTESTANTS[2])
    words = make_sentences(BATCH_SIZE)
    batch = ElmoTokenizer()(words, is_split_into_words=True, padding=True, return_tensors="pt")
    labels = torch.zeros(batch["attention_mask"].shape, dtype=torch.long)
    model(batch["input_ids"][:1, :3])  # so that one-time allocations are made
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if contestant == CONTESTANTS[0]:
        with torch.no_grad():
            model.eval()(**batch)
    else:
        model.train()(**batch, labels=labels).loss.backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def epoch(
    model: ElmoForTokenClassification, dataset: datasets.Dataset, tokenizer: ElmoTokenizer
) -> tuple[float, float]:
    """Seconds and summed loss of one epoch."""
    collate = DataCollatorForTokenClassification(tokenizer)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0)
    torch.manual_seed(0)
    start, total = time.perf_counter(), 0.0
    for batch in torch.utils.data.DataLoader(dataset, BATCH_SIZE, collate_fn=collate):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
    return time.perf_counter() - start, total


def main(
    projection_size: Annotated[int, typer.Option(help="P")] = 128,
    cell_size: Annotated[int, typer.Option(help="H")] = 1024,
    sentences: Annotated[int, typer.Option(help="Sentences of an epoch.")] = 320,
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 3,
) -> None:
    """Measure and print two tables."""
    sizes: dict[str, Any] = {"projection_size": projection_size, "cell_size": cell_size}
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, ", end="")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, P = {projection_size}, H = {cell_size}")
    peaks: dict[str, list[float]] = {contestant: [] for contestant in CONTESTANTS}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["datasets", "elmo_hf.embedding.feature_cache"])  # imported once for all processes
    for _ in range(rounds):
        for contestant in CONTESTANTS:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                peaks[contestant].append(pool.submit(peak_memory, contestant, sizes).result())
    medians = {contestant: statistics.median(values) for contestant, values in peaks.items()}
    print(f"\n| batch of {BATCH_SIZE} x about {NUM_WORDS} words | peak MiB | times the forward pass |\n|---|---|---|")
    for contestant, median in medians.items():
        print(f"| {contestant} | {median:.0f} | {median / medians[CONTESTANTS[0]]:.2f} |")

    torch.set_num_threads(1)
    tokenizer, model = ElmoTokenizer(), make_model(sizes, freeze_bilm=True).train()
    words = make_sentences(sentences)
    encoded = tokenizer(words, is_split_into_words=True)
    labels = []
    for text in words:
        labels.append([-100, *(len(word) % NUM_LABELS for word in text), -100])
    plain = datasets.Dataset.from_dict({**encoded, "labels": labels}).with_format("numpy")
    start = time.perf_counter()
    kept = add_bilm_layers(plain, model, tokenizer)
    once = time.perf_counter() - start
    contestants = {"biLM run": plain, "layers kept": kept}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    losses = {}
    for _ in range(rounds):
        for name, dataset in contestants.items():
            seconds, losses[name] = epoch(model, dataset, tokenizer)
            times[name].append(seconds)
    if abs(losses["biLM run"] - losses["layers kept"]) > 1e-3:
        raise SystemExit(f"the losses differ: {losses}")
    slow = statistics.median(times["biLM run"])
    print(f"\n| epoch of {sentences} sentences, one thread | s | times faster |\n|---|---|---|")
    for name, values in times.items():
        print(f"| {name} | {statistics.median(values):.2f} | {slow / statistics.median(values):.1f} |")
    print(f"| making them, once | {once:.2f} | |")


if __name__ == "__main__":
    typer.run(main)
