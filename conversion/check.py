"""The check behind `--check`: whether a written folder gives the numbers of a witness, and those published."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from elmo_hf.folder.loading import load_complete, load_tokenizer

from .contract import Checkpoint, Reference
from .published import PUBLISHED, Published
from .refusals import ConversionError
from .witness.reference_outputs import STREAMS, TOLERANCE, Layers, Stream

# Sentences of different lengths and scripts, with one word longer than the 48 bytes that the model reads.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64. Golden cases with random weights differ by at most 5e-6, real weights by a little more.
CHECK_TOLERANCE = 1e-4


def check_folder(folder: Path, checkpoint: Checkpoint, streams: Sequence[Stream] = STREAMS) -> tuple[float, list[str]]:
    """Compares the folder's model with the checkpoint's witness, and with what others published about these weights.

    Returns:
        the largest absolute difference from the witness, and the published models whose numbers the folder gives.

    Raises:
        ConversionError: if there is no witness, or a difference is larger than the tolerance.
    """
    if checkpoint.make_reference is None:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    model, tokenizer = load_complete(folder), load_tokenizer(folder)
    difference = largest_difference(model, tokenizer, checkpoint.make_reference())
    if not difference <= CHECK_TOLERANCE:  # a NaN fails too
        raise ConversionError(
            f"the converted model differs from its checkpoint by {difference:.2e}, more than "
            f"{CHECK_TOLERANCE:.0e}; nothing was written. Please report this checkpoint's options."
        )
    streams = [stream for stream in streams if _is_of(checkpoint, PUBLISHED[stream.model])]
    for stream in streams:
        _compare(embed_stream(model, tokenizer, stream.sentences), stream)
    return difference, [*dict.fromkeys(stream.model for stream in streams)]


@torch.no_grad()
def largest_difference(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reference: Reference) -> float:
    """Largest absolute difference between a model and the witness, over all layers of `CHECK_SENTENCES`."""
    inputs = tokenizer(
        [list(words) for words in CHECK_SENTENCES], is_split_into_words=True, padding=True, return_tensors="pt"
    )
    layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).double().numpy()
    differences = []
    for row, words in enumerate(CHECK_SENTENCES):
        expected = reference.embed(words)
        differences.append(np.abs(layers[:, row, : expected.shape[1]] - expected).max())
    return float(np.max(differences))  # unlike max, it keeps a NaN


@torch.no_grad()
def embed_stream(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Layers:
    """Embeds sentences in turn, passing the state on: `(L+1, n, 2P)` each, without boundaries."""
    state, layers = None, []
    for sentence in sentences:
        inputs = tokenizer([sentence.split(" ")], is_split_into_words=True, return_tensors="pt")
        output = model(**inputs, state=state, output_hidden_states=True)
        state = output.state
        layers.append(torch.stack(output.hidden_states)[:, 0, 1:-1].numpy())
    return layers


def _is_of(checkpoint: Checkpoint, published: Published) -> bool:
    """Whether a checkpoint has the file name and the sizes of a published one; no checksums were published."""
    names = {path.name for path in checkpoint.sources.values()}
    sizes = f"{checkpoint.config.cell_size}/{checkpoint.config.projection_size}"
    return published.weights.rpartition("/")[2] in names and published.size == sizes


def _compare(layers: Layers, stream: Stream) -> None:
    for check in stream.checks:
        expected, found = np.array(check.expected), check.measure(layers)
        worst = int(np.argmax(np.abs(expected - found)))  # finds a NaN too
        if not abs(expected[worst] - found[worst]) <= TOLERANCE:
            raise ConversionError(
                f"{check.name}: {stream.source} has {expected[worst]:.6f} for the published {stream.model} model, this "
                f"checkpoint gives {found[worst]:.6f}; nothing was written. It is another model with the same file "
                "name, or its file is damaged."
            )
