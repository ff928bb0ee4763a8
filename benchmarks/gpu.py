"""Embedding and training on a GPU, against AllenNLP's loop and torch's LSTM (cuDNN's) on the same GPU.

    python benchmarks/gpu.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz

First the values are compared, in float32; nothing is timed if they differ. Then the contestants take turns, and medians
are printed. Every contestant computes in the number format of its table row; a row's share is relative to the rate of a
large product in that format.

Only figures from a GPU mean anything. `--device cpu --small` checks that everything runs, with the packed scan.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Annotated

import torch
import typer
from allennlp_loop import LoopElmo
from projected_lstm import ProjectedLstms
from timing import Contestant, Rounds, check_equal, machine, print_table, timed
from torch import Tensor, nn
from workload import Batch, batches_of, flops, num_words, random_model, some_sentences

from elmo_hf import ElmoModel
from elmo_hf.kernels.triton_scan import is_available

# For "TF32", torch's name is precision "high" of float32 products.
FORMATS = {
    "float32": torch.float32,
    "TF32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
NUM_BATCHES, MATRIX_SIZE = 4, 8192


@contextmanager
def products_of(name: str) -> Iterator[torch.dtype]:
    """Sets the format of products; yields the dtype."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "TF32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "TF32"
    try:
        yield FORMATS[name]
    finally:
        torch.set_float32_matmul_precision(before)


def finished(run: Callable[[], object], device: torch.device) -> Contestant:
    """A contestant that ends when the device has finished its work."""

    def contestant() -> None:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return timed(contestant)


def mixes_of(model: ElmoModel, batches: list[Batch]) -> list[Tensor]:
    """The mix `(B, T, 2P)` of each batch."""
    return [model(**batch.inputs).last_hidden_state for batch in batches]


@torch.no_grad()
def inference(model: ElmoModel, batches: list[Batch], rounds: int, device: torch.device) -> None:
    """Words per second from character ids to the mix, and of the biLM alone; then errors against float32."""
    loop, lstms = LoopElmo(model).to(device), ProjectedLstms(model).to(device)
    label = f"batch {len(batches[0].input_ids)}"
    with products_of("float32"):
        expected = [loop(batch.input_ids).mix for batch in batches]
        for mix, ours in zip(expected, mixes_of(model, batches), strict=True):
            check_equal("the loop", mix, ours)
        vectors = [(model(**batch.inputs).token_embeddings, batch.attention_mask > 0) for batch in batches]
        exact = torch.cat([mix[batch.attention_mask > 0] for mix, batch in zip(expected, batches, strict=True)])
    rows, errors = [], []
    for name in FORMATS:
        with products_of(name) as dtype:
            rounded, rounded_loop, rounded_lstms = (deepcopy(part).to(dtype) for part in (model, loop, lstms))
            rows.append([name, *speeds(rounded, rounded_loop, rounded_lstms, batches, vectors, rounds)])
            mixes = mixes_of(rounded, batches)
        found = torch.cat([mix[batch.attention_mask > 0] for mix, batch in zip(mixes, batches, strict=True)])
        relative = (found.float() - exact).norm(dim=-1) / exact.norm(dim=-1)
        errors.append([name, f"{relative.mean():.1e}", f"{relative.max():.1e}"])
    header = [f"inference, {label}", "words/s", "loop", "times", "biLM alone", "`nn.LSTM(proj_size)`", "times"]
    print_table([*header, "TFLOP/s", "of a large product", "share"], rows)
    print_table(["error of a word's mix", "mean", "largest"], errors)


def speeds(
    model: ElmoModel,
    loop: LoopElmo,
    lstms: ProjectedLstms,
    batches: list[Batch],
    vectors: Sequence[tuple[Tensor, Tensor]],
    rounds: int,
) -> list[str]:
    """A row of the inference table, for the format of the models' weights."""
    device, dtype = model.device, model.dtype
    vectors = [(token_vectors.to(dtype), mask) for token_vectors, mask in vectors]
    side = 64 if device.type == "cpu" else MATRIX_SIZE
    matrix = torch.randn(side, side, device=device, dtype=dtype)
    turns = Rounds(
        {
            "ours": finished(lambda: mixes_of(model, batches), device),
            "loop": finished(lambda: [loop(batch.input_ids) for batch in batches], device),
            "biLM": finished(
                lambda: [model(inputs_embeds=tokens, attention_mask=mask) for tokens, mask in vectors], device
            ),
            "nn.LSTM": finished(lambda: [lstms(*pair) for pair in vectors], device),
            "matrix": finished(lambda: torch.mm(matrix, matrix), device),
        },
        rounds,
    )
    words = num_words(batches)
    rate = flops(model.config, batches) / turns.median("ours")
    peak = 2 * side**3 / turns.median("matrix")
    ours, theirs, alone, lstm = (f"{words / turns.median(name):,.0f}" for name in ("ours", "loop", "biLM", "nn.LSTM"))
    times = f"{turns.ratio('loop', 'ours'):.1f}"
    lstm_times = f"{turns.ratio('nn.LSTM', 'biLM'):.2f}"
    shares = [f"{rate / 1e12:.2f}", f"{peak / 1e12:.2f}", f"{rate / peak:.0%}"]
    return [ours, theirs, times, alone, lstm, lstm_times, *shares]


def training(model: ElmoModel, batches: list[Batch], rounds: int, device: torch.device) -> None:
    """Words per second forward and backward, with everything learning."""
    shapes = [(*batch.attention_mask.shape, model.config.hidden_size) for batch in batches]
    weights = [torch.randn(shape, device=device) for shape in shapes]

    def pass_over(parts: nn.Module, mix_of: Callable[[Batch], Tensor]) -> Tensor:
        parts.zero_grad()
        losses = []
        for batch, weight in zip(batches, weights, strict=True):
            loss = (mix_of(batch).float() * weight).mean()
            loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses)

    rows = []
    for name in FORMATS:
        with products_of(name) as dtype:
            ours = deepcopy(model).to(dtype).train()
            loop = LoopElmo(ours).to(device, dtype)
            passes = {
                "ours": lambda ours=ours: pass_over(ours, lambda batch: ours(**batch.inputs).last_hidden_state),
                "loop": lambda loop=loop: pass_over(loop, lambda batch: loop(batch.input_ids).mix),
            }
            if name == "float32":
                check_equal("the loop's loss", passes["loop"](), passes["ours"]())
                found = loop.bilm.backward_layers[0].state_linear.weight.grad
                check_equal(
                    "the loop's gradient", found, ours.bilm.layers[0].backward_lstm.recurrent_linear.weight.grad
                )
            turns = Rounds({each: finished(run, device) for each, run in passes.items()}, rounds)
        speed, theirs = (f"{num_words(batches) / turns.median(each):,.0f}" for each in ("ours", "loop"))
        rows.append([name, speed, theirs, f"{turns.ratio('loop', 'ours'):.1f}"])
    header = [f"forward and backward, batch {len(batches[0].input_ids)}", "words/s", "loop", "times"]
    print_table(header, rows)


def main(
    sentences: Annotated[Path, typer.Argument(help="Real sentences, split into words: .conllu or .jsonl.")],
    batch_size: Annotated[int, typer.Option(help="Sentences of a batch.")] = 64,
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 5,
    device: Annotated[str, typer.Option(help="Where to run.")] = "cuda",
    small: Annotated[bool, typer.Option(help="Use a tiny model, to check that everything runs.")] = False,
) -> None:
    """Measure and print tables."""
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here, so there is nothing to measure.")
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "no GPU"
    model = random_model(small).to(place)
    scan = "triton" if is_available(next(model.parameters()).device, torch.float32) else "packed"
    print(f"{machine()}; {name}, scan: {scan}; {sentences.name}, {rounds} rounds, medians")
    batches = [
        batch._replace(input_ids=batch.input_ids.to(place), attention_mask=batch.attention_mask.to(place))
        for batch in batches_of(some_sentences(sentences, NUM_BATCHES * batch_size), batch_size)
    ]
    inference(model, batches, rounds, place)
    training(model, batches, rounds, place)


if __name__ == "__main__":
    typer.run(main)
