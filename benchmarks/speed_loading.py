"""The loading group of `speed.py`: loading a saved model, and the memory that embedding takes."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from speed_embedding import start_peer
from timing import Contestant, Rounds, peak_memory, print_table, timed
from transformers.utils.logging import disable_progress_bar
from workload import batches_of, random_model, some_sentences

from elmo_hf import ElmoModel

BATCH_SIZE = 32
MIB = 2**20
PAGE = 4096


def loading(sentences: Path, allennlp: Path | None, rounds: int, small: bool) -> None:
    """Seconds of `from_pretrained` and of reading the file, from the disk and from the system's cache.

    Weights are mapped into memory and read from the file at first use, so every page is used once.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(small)
        model.save_pretrained(folder)
        file = Path(folder) / "model.safetensors"
        os.sync()

        def read() -> None:
            file.read_bytes()

        def load() -> None:
            for parameter in ElmoModel.from_pretrained(folder).parameters():
                parameter.detach().flatten()[:: PAGE // parameter.element_size()].sum()

        def from_disk(run: Callable[[], None]) -> Contestant:
            def contestant() -> float:
                forget(file)
                return timed(run)()

            return contestant

        turns = Rounds(
            {
                "read, cached": timed(read),
                "load, cached": timed(load),
                "read, from disk": from_disk(read),
                "load, from disk": from_disk(load),
            },
            rounds,
        )
        rows = [
            [
                where,
                f"{turns.median(f'read, {where}'):.3f}",
                f"{turns.median(f'load, {where}'):.3f}",
                f"{turns.ratio(f'load, {where}', f'read, {where}'):.2f}",
            ]
            for where in ("cached", "from disk")
        ]
        size = file.stat().st_size / MIB
        print_table([f"file of {size:.0f} MiB", "reading it, s", "`from_pretrained`, s", "times"], rows)
        peaks = peaks_of_embedding(Path(folder), sentences)
        if allennlp is not None:
            peer = start_peer(allennlp, model, Path(folder), quick_start=False)
            peer.close()
            row = ["AllenNLP 2.10.1", f"{peer.facts['load_seconds']:.1f}", f"{peer.facts['loaded_mib']:.0f}"]
            print_table(["once", "loading, s", "memory of it, MiB"], [row])
    weights, outputs, peak = (peaks[name] for name in ("weights", "outputs", "peak"))
    print_table(
        [f"memory of embedding, batch {BATCH_SIZE}, MiB", "weights", "outputs", "peak", "times both"],
        [["fresh process", f"{weights:.0f}", f"{outputs:.1f}", f"{peak:.0f}", f"{peak / (weights + outputs):.2f}"]],
    )


def forget(file: Path) -> None:
    """Drops `file` from the system's cache."""
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def peaks_of_embedding(folder: Path, sentences: Path) -> dict[str, float]:
    """Runs `embed_once` in a separate process and returns what it prints."""
    command = [sys.executable, __file__, str(folder), str(sentences), str(torch.get_num_threads())]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@torch.no_grad()
def embed_once(folder: Path, sentences: Path, threads: int) -> None:
    """Loads a model and embeds a batch; prints MiB of weights, of all outputs, and of the peak above the imports."""
    torch.set_num_threads(threads)
    disable_progress_bar()
    (batch,) = batches_of(some_sentences(sentences, BATCH_SIZE), BATCH_SIZE)
    torch.ones(64, 64) @ torch.ones(64, 64)  # so that torch makes its one-time allocations
    before = peak_memory()
    model = ElmoModel.from_pretrained(folder).eval()
    output = model(**batch.inputs)
    peak = peak_memory() - before
    tensors = [output.pooler_output, output.token_embeddings]
    tensors += [*output.elmo_representations, *output.state]
    sizes = {
        "weights": sum(parameter.nbytes for parameter in model.parameters()) / MIB,
        "outputs": sum(tensor.nbytes for tensor in tensors) / MIB,
        "peak": peak,
    }
    print(json.dumps(sizes))


if __name__ == "__main__":
    embed_once(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
