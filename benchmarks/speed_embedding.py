"""Rows of `speed.py`: embedding from character ids to the scalar mix, without gradients."""

import tempfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import torch
from allennlp_loop import LoopElmo
from allennlp_peer import AllenNlp
from projected_lstm import ProjectedLstms
from timing import Contestant, Rounds, check_equal, print_table, timed
from torch import Tensor
from workload import Batch, batches_of, flops, num_words, random_model, some_sentences

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import folder_to_allennlp

# A large matrix product, at whose rate the machine could work at best.
MATRIX_SIZE = 4096
# Sentences of a measurement by batch size: enough words for a second or so.
NUM_SENTENCES = {1: 16, 8: 48}
LEAST_BATCHES = 2


@torch.no_grad()
def embedding(sentences: Path, sizes: Sequence[int], allennlp: Path | None, rounds: int, small: bool) -> None:
    """Words a second by batch size, ours and the peers'; then of the biLM alone beside torch's LSTM.

    Batches hold sentences at random, so they are ragged.
    """
    model = random_model(small)
    loop = LoopElmo(model)
    lstms = ProjectedLstms(model)
    check_lstms(lstms, some_sentences(sentences, 8), small)
    matrix = torch.randn(64 if small else MATRIX_SIZE, 64 if small else MATRIX_SIZE)
    whole, alone = [], []
    with tempfile.TemporaryDirectory() as folder:
        peer = None if allennlp is None else start_peer(allennlp, model, Path(folder))
        for size in sizes:
            drawn = some_sentences(sentences, max(NUM_SENTENCES.get(size, 0), LEAST_BATCHES * size))
            batches = batches_of(drawn, size)
            vectors = [model(**batch.inputs).token_embeddings for batch in batches]
            contestants: dict[str, Contestant] = {
                "ours": timed(each(batches, lambda batch: model(**batch.inputs))),
                "loop": timed(each(batches, lambda batch: loop(batch.input_ids))),
            }
            for batch in batches:
                check_equal("the loop", loop(batch.input_ids).mix, model(**batch.inputs).elmo_representations[0])
            if peer is not None:
                contestants["AllenNLP"] = peer_contestant(peer, drawn, size, Path(folder), model, batches)
            contestants["biLM"] = timed(
                each(list(zip(vectors, batches, strict=True)), lambda pair: bilm_alone(model, *pair))
            )
            contestants["nn.LSTM"] = timed(
                each(list(zip(vectors, batches, strict=True)), lambda pair: lstms(pair[0], pair[1].attention_mask > 0))
            )
            contestants["matrix"] = timed(lambda: torch.mm(matrix, matrix))
            turns, words = Rounds(contestants, rounds), num_words(batches)
            rate = flops(model.config, batches) / turns.median("ours")
            peak = 2 * len(matrix) ** 3 / turns.median("matrix")
            whole.append(
                [
                    f"{size}",
                    *(f"{words / turns.median(name):,.0f}" for name in contestants if name in ("ours", "loop")),
                    f"{turns.ratio('loop', 'ours'):.2f}",
                    f"{words / turns.median('AllenNLP'):,.0f}" if peer else "",
                    f"{turns.ratio('AllenNLP', 'ours'):.2f}" if peer else "",
                    f"{rate / 1e9:,.0f} of {peak / 1e9:,.0f}",
                    f"{rate / peak:.0%}",
                ]
            )
            alone.append(
                [
                    f"{size}",
                    *(f"{words / turns.median(name):,.0f}" for name in ("biLM", "nn.LSTM")),
                    f"{turns.ratio('nn.LSTM', 'biLM'):.2f}",
                ]
            )
        if peer is not None:
            peer.close()
            print(f"AllenNLP 2.10.1 under {peer.facts['versions']}: loads in {peer.facts['load_seconds']:.1f} s")
    print_table(
        ["batch", "ours, words/s", "loop", "times", "AllenNLP", "times", "GFLOP/s of a large product's", "share"], whole
    )
    print_table(["batch, biLM alone", "ours, words/s", "`nn.LSTM(proj_size)`, no clips", "times"], alone)


@torch.no_grad()
def precision(sentences: Path, rounds: int, small: bool) -> None:
    """Words a second in other number formats, with the error against float32: of each word's mix, |x - y| / |y|."""
    batches = batches_of(some_sentences(sentences, LEAST_BATCHES * 32), 32)
    model = random_model(small)
    models: dict[str, ElmoModel] = {
        "float32": model,
        "bfloat16": deepcopy(model).bfloat16(),
    }

    def mixes(model: ElmoModel) -> Tensor:
        found = [model(**batch.inputs).elmo_representations[0][batch.attention_mask > 0] for batch in batches]
        return torch.cat(found).float()

    exact = mixes(model)
    turns = Rounds(
        {
            name: timed(each(batches, lambda batch, other=other: other(**batch.inputs)))
            for name, other in models.items()
        },
        rounds,
    )
    rows = []
    for name, other in models.items():
        errors = (mixes(other) - exact).norm(dim=-1) / exact.norm(dim=-1)
        rows.append(
            [
                name,
                f"{num_words(batches) / turns.median(name):,.0f}",
                f"{turns.ratio('float32', name):.2f}",
                f"{errors.mean():.1e}",
                f"{errors.max():.1e}",
            ]
        )
    print_table(["batch 32", "words/s", "times float32", "mean error", "largest error"], rows)


def bilm_alone(model: ElmoModel, vectors: Tensor, batch: Batch) -> None:
    """Ours from word vectors on; the mix, which is in it, is small."""
    model(inputs_embeds=vectors, attention_mask=batch.attention_mask)


def each(batches: Sequence, embed: Callable) -> Callable[[], None]:
    """A run over all batches."""

    def run() -> None:
        for batch in batches:
            embed(batch)

    return run


def check_lstms(lstms: ProjectedLstms, sentences: list[list[str]], small: bool) -> None:
    """Torch's LSTMs compute what our biLM does without clips."""
    without_clips = random_model(small, cell_clip=None, projection_clip=None)
    (batch,) = batches_of(sentences, len(sentences))
    ours = without_clips(**batch.inputs, output_hidden_states=True)
    theirs = lstms(ours.token_embeddings, batch.attention_mask > 0)
    for layer, expected in zip(theirs, ours.hidden_states[1:], strict=True):
        check_equal("`nn.LSTM`", layer, expected)


def start_peer(python: Path, model: ElmoModel, folder: Path) -> AllenNlp:
    """AllenNLP with the weights of `model`; `folder` is for files."""
    model.save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    folder_to_allennlp(folder / "model", folder / "checkpoint")
    return AllenNlp(python, folder / "checkpoint", torch.get_num_threads())


def peer_contestant(
    peer: AllenNlp, sentences: list[list[str]], size: int, folder: Path, model: ElmoModel, batches: list[Batch]
) -> Contestant:
    """AllenNLP's turn with the same sentences, whose values are compared first; its pipe is not counted."""
    files = []
    for number, start in enumerate(range(0, len(sentences), size)):
        ids = ElmoTokenizer()(
            sentences[start : start + size],
            is_split_into_words=True,
            add_special_tokens=False,
            padding=True,
            return_tensors="np",
        )["input_ids"]
        files.append(folder / f"{size}_{number}.npy")
        np.save(files[-1], ids.astype(np.int64))
    peer.embed(files, folder / "mixes.npz")
    mixes = np.load(folder / "mixes.npz")
    for number, batch in enumerate(batches):
        ours = model(**batch.inputs).elmo_representations[0]
        for row, theirs in enumerate(torch.from_numpy(mixes[f"arr_{number}"])):
            length = int(batch.attention_mask[row].sum()) - 2
            check_equal("AllenNLP", theirs[:length], ours[row, 1 : length + 1])
    return lambda: peer.embed(files)["seconds"]
