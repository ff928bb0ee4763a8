"""Where the time of a call or a training step goes, by kind of operation.

    python benchmarks/operations.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz

The time of an operation, which torch's profiler records, is without that of the operations that it calls. A product has
few vectors if one of the sizes of its factors is less than 64: so have those of a scan's steps. The profiler itself
takes time for each operation, most in small batches.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from speed_training import draw, language_model, step_of
from timing import machine, print_table
from torch import Tensor
from transformers.utils.logging import disable_progress_bar
from workload import Batch, batches_of, random_model, some_sentences

FEW_VECTORS = 64
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "mkldnn::_linear_pointwise")
COPIES = ("aten::copy_", "aten::cat", "aten::index_select", "aten::index_copy_", "aten::fill_")
OPTIMISER = ("aten::_fused_adagrad_", "aten::linalg_vector_norm", "Optimizer.zero_grad#Adagrad.zero_grad")
KINDS = (
    f"products, {FEW_VECTORS} vectors or more",
    "products, fewer vectors",
    "copies",
    "optimiser",
    "all other operations",
)


def main(
    sentences: Annotated[Path, typer.Argument(help="Real sentences, split into words: .conllu or .jsonl.")],
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    rounds: Annotated[int, typer.Option(help="Runs of each case; the table has their means.")] = 3,
    small: Annotated[bool, typer.Option(help="Use a tiny model, to check that everything runs.")] = False,
) -> None:
    """Measure and print a table in milliseconds."""
    torch.set_num_threads(threads)
    disable_progress_bar()
    print(f"{machine()}; {sentences.name}, means of {rounds} runs{', tiny model' if small else ''}")
    cases = {
        "embed, batch 1": embedding(sentences, 1, small),
        "embed, batch 32": embedding(sentences, 32, small),
        "fine-tune, batch 32": fine_tuning(sentences, small),
        "pretrain, 16 rows of 20": pretraining(sentences, small),
    }
    times = [milliseconds(run, rounds) for run in cases.values()]
    rows = [[kind, *(f"{time[kind]:,.0f}" for time in times)] for kind in KINDS]
    rows.append(["together", *(f"{time.total():,.0f}" for time in times)])
    print_table(["ms", *cases], rows)


def embedding(sentences: Path, size: int, small: bool) -> Callable[[], object]:
    """The call of a model for a batch."""
    batch = batch_of(sentences, size)
    model = random_model(small)

    @torch.no_grad()
    def embed() -> Tensor:
        return model(**batch.inputs).last_hidden_state

    return embed


def fine_tuning(sentences: Path, small: bool) -> Callable[[], object]:
    """A forward and a backward pass through the whole model."""
    batch = batch_of(sentences, 32)
    model = random_model(small).train()

    def fine_tune() -> None:
        model.zero_grad()
        model(**batch.inputs).last_hidden_state.square().sum().backward()

    return fine_tune


def pretraining(sentences: Path, small: bool) -> Callable[[], object]:
    """A step of bilm-tf's training."""
    model, window = language_model(sentences, small)
    return step_of(model, lambda: model(**window, candidates=draw(model)).loss)


def batch_of(sentences: Path, size: int) -> Batch:
    """A batch of some sentences."""
    (batch,) = batches_of(some_sentences(sentences, size), size)
    return batch


def milliseconds(run: Callable[[], object], rounds: int) -> Counter[str]:
    """The mean time of each kind of operations in a run."""
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(rounds):
            run()
    times: Counter[str] = Counter()
    for operation in recorded.key_averages(group_by_input_shape=True):
        times[kind_of(operation)] += operation.self_cpu_time_total / 1000 / rounds
    return times


def kind_of(operation: Any) -> str:
    """The row of the table for an operation."""
    many, few, copies, optimiser, others = KINDS
    if operation.key in PRODUCTS:
        sizes = [size for shape in operation.input_shapes if len(shape) > 1 for size in shape[-2:]]
        return few if min(sizes) < FEW_VECTORS else many
    if operation.key in COPIES:
        return copies
    if operation.key in OPTIMISER:
        return optimiser
    return others


if __name__ == "__main__":
    typer.run(main)
