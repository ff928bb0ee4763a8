"""The embedding groups of `speed.py`: from character ids to the scalar mix, without gradients."""

import copy
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from allennlp_loop import LoopElmo
from allennlp_peer import AllenNlp
from projected_lstm import ProjectedLstms
from timing import Contestant, Rounds, check_equal, print_table, timed
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from workload import Batch, all_sentences, batches_of, flops, num_words, random_model, some_sentences

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.convert import folder_to_allennlp

# Side of the large matrix product that shows the machine's best rate.
MATRIX_SIZE = 4096
# Count of batches in a measurement, by batch size: enough words for about a second.
NUM_BATCHES = {1: 16, 8: 4}


@torch.no_grad()
def embedding(
    sentences: Path, sizes: Sequence[int], allennlp: Path | None, rounds: int, small: bool, by_length: bool = False
) -> None:
    """Words per second by batch size, ours and the peers'; then of the biLM alone beside torch's LSTM.

    Batches have random sentences, so they are ragged. With `by_length`, all sentences of the file are sorted by length
    and batched, as in `elmo-hf embed`, and the middle batch of each quarter is timed.
    """
    model = random_model(small)
    loop = LoopElmo(model)
    lstms = ProjectedLstms(model)
    others = other_formats(model)
    check_lstms(lstms, some_sentences(sentences, 3), small)
    side = 64 if small else MATRIX_SIZE
    matrix = torch.randn(side, side)
    whole: list[list[str]] = []
    alone: list[list[str]] = []
    in_formats: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        peer = None if allennlp is None else start_peer(allennlp, model, Path(folder))
        for size in sizes:
            batches = batches_by_length(sentences, size) if by_length else random_batches(sentences, size)
            contestants = with_loop(model, loop, batches) | with_others(others, batches)
            if peer is not None:
                contestants["AllenNLP"] = with_allennlp(model, peer, batches, Path(folder))
            contestants |= bilms(model, lstms, batches)
            contestants["matrix"] = timed(lambda: torch.mm(matrix, matrix))
            turns = Rounds(contestants, rounds)
            rate = flops(model.config, batches) / turns.median("ours")
            peak = 2 * side**3 / turns.median("matrix")
            speeds = {name: f"{num_words(batches) / turns.median(name):,.0f}" for name in contestants}
            label = f"{size}, by length" if by_length else f"{size}"
            with_peer = [speeds["AllenNLP"], f"{turns.ratio('AllenNLP', 'ours'):.2f}"] if peer else ["", ""]
            shares = [f"{rate / 1e9:,.0f}", f"{peak / 1e9:,.0f}", f"{rate / peak:.0%}"]
            ratio = f"{turns.ratio('loop', 'ours'):.2f}"
            whole.append([label, speeds["ours"], speeds["loop"], ratio, *with_peer, *shares])
            slowest = "AllenNLP" if peer else "loop"
            in_formats.append(
                [label] + [f"{speeds[name]} ({turns.ratio(slowest, name):.2f})" for name in ["ours", *others]]
            )
            alone.append([label, speeds["biLM"], speeds["nn.LSTM"], f"{turns.ratio('nn.LSTM', 'biLM'):.2f}"])
        if peer is not None:
            peer.close()
            print(f"AllenNLP 2.10.1: {peer.facts['versions']}")
    header = ["whole model, batch", "words/s", "loop", "times", "AllenNLP", "times"]
    print_table([*header, "GFLOP/s", "of a large product", "share"], whole)
    slowest = "the loop" if peer is None else "AllenNLP"
    print_table([f"words/s (times {slowest}), batch", "float32", *others], in_formats)
    print_table(["biLM alone, batch", "words/s", "`nn.LSTM(proj_size)`", "times"], alone)


def random_batches(path: Path, size: int) -> list[Batch]:
    """Batches of random sentences of a file."""
    return batches_of(some_sentences(path, NUM_BATCHES.get(size, 1) * size), size)


def batches_by_length(path: Path, size: int) -> list[Batch]:
    """Batches the sentences of a file by length, and returns the middle batch of each quarter.

    Raises:
        ValueError: if there are fewer than four batches.
    """
    by_length = sorted(all_sentences(path), key=len)
    number = len(by_length) // size
    if number < 4:
        raise ValueError(f"{path} has {len(by_length)} sentences, and {4 * size} are needed.")
    starts = [size * (place * number // 8) for place in (1, 3, 5, 7)]
    return [batch for start in starts for batch in batches_of(by_length[start : start + size], size)]


def each(batches: Sequence, embed: Callable) -> Callable[[], None]:
    """A run over all batches."""

    def run() -> None:
        for batch in batches:
            embed(batch)

    return run


def with_loop(model: ElmoModel, loop: LoopElmo, batches: list[Batch]) -> dict[str, Contestant]:
    """Our model and the loop, after a check that they give the same mixes."""
    for batch in batches:
        check_equal("the loop", loop(batch.input_ids).mix, model(**batch.inputs).last_hidden_state)
    return {
        "ours": timed(each(batches, lambda batch: model(**batch.inputs))),
        "loop": timed(each(batches, lambda batch: loop(batch.input_ids))),
    }


def other_formats(model: ElmoModel) -> dict[str, ElmoModel]:
    """Copies of the model: with packed weights, in bfloat16, and with weights in eight bits."""
    packed, eight_bit = copy.deepcopy(model), copy.deepcopy(model)
    packed.pack()
    quantize_(eight_bit, Int8WeightOnlyConfig())
    return {"float32, packed": packed, "bfloat16": copy.deepcopy(model).bfloat16(), "int8 weights": eight_bit}


def with_others(others: dict[str, ElmoModel], batches: list[Batch]) -> dict[str, Contestant]:
    """The same model in other formats; docs/speed.md has their errors."""
    return {
        name: timed(each(batches, lambda batch, other=other: other(**batch.inputs))) for name, other in others.items()
    }


def bilms(model: ElmoModel, lstms: ProjectedLstms, batches: list[Batch]) -> dict[str, Contestant]:
    """Our biLM from word vectors to the mix (which costs little), and torch's LSTMs."""
    vectors = [(model(**batch.inputs).token_embeddings, batch.attention_mask) for batch in batches]
    return {
        "biLM": timed(each(vectors, lambda pair: model(inputs_embeds=pair[0], attention_mask=pair[1]))),
        "nn.LSTM": timed(each(vectors, lambda pair: lstms(pair[0], pair[1] > 0))),
    }


def check_lstms(lstms: ProjectedLstms, sentences: list[list[str]], small: bool) -> None:
    """Checks that torch's LSTMs compute what our biLM does without clips."""
    without_clips = random_model(small, cell_clip=None, projection_clip=None)
    (batch,) = batches_of(sentences, len(sentences))
    ours = without_clips(**batch.inputs, output_hidden_states=True)
    theirs = lstms(ours.token_embeddings, batch.attention_mask > 0)
    for layer, expected in zip(theirs, ours.hidden_states[1:], strict=True):
        check_equal("`nn.LSTM`", layer, expected)


def start_peer(python: Path, model: ElmoModel, folder: Path, quick_start: bool = True) -> AllenNlp:
    """Starts AllenNLP with the weights of `model`; `folder` is for files."""
    model.save_pretrained(folder / "model")
    ElmoTokenizer().save_pretrained(folder / "model")
    folder_to_allennlp(folder / "model", folder / "checkpoint")
    return AllenNlp(python, folder / "checkpoint", torch.get_num_threads(), quick_start)


def with_allennlp(model: ElmoModel, peer: AllenNlp, batches: list[Batch], folder: Path) -> Contestant:
    """AllenNLP, after a check that it gives our mixes; it measures its own seconds, without the exchange of files."""
    files = [folder / f"batch_{number}.npy" for number in range(len(batches))]
    for file, batch in zip(files, batches, strict=True):
        # AllenNLP adds `<S>` and `</S>` itself.
        ids = batch.input_ids.masked_fill(model.boundaries(batch.input_ids).unsqueeze(-1), 0)
        np.save(file, ids[:, 1:-1].numpy())
    peer.embed(files, folder / "mixes.npz")
    mixes = np.load(folder / "mixes.npz")
    for number, batch in enumerate(batches):
        ours = model(**batch.inputs).last_hidden_state
        is_word = (batch.attention_mask > 0) & ~model.boundaries(batch.input_ids)
        theirs = torch.from_numpy(mixes[f"arr_{number}"])
        check_equal("AllenNLP", theirs[is_word[:, 1:-1]], ours[is_word])
    return lambda: peer.embed(files)
