"""The option `--check`: compares the numbers of a written folder with a witness's and with published numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.public import ElmoModel

from .contract import Checkpoint
from .published import PUBLISHED, Published, name_of
from .refusals import ConversionError, require
from .witness.reference import ReferenceElmo
from .witness.reference_outputs import STREAMS, TOLERANCE, Layers, Stream

# Sentences of different lengths and scripts, with one word longer than the 48 bytes that the model reads.
CHECK_SENTENCES = (
    "The ferry left the harbour at 7:45 , ten minutes late .".split(),
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64: golden cases with random weights differ by at most 5e-6, real weights by a little more.
CHECK_TOLERANCE = 1e-4


def check_folder(
    folder: Path,
    checkpoint: Checkpoint,
    streams: Sequence[Stream] = STREAMS,
    published: Mapping[str, Published] = PUBLISHED,
) -> tuple[float, list[str]]:
    """Compares the folder's model with the checkpoint's witness, and with numbers published for these weights.

    Returns:
        the largest absolute difference from the witness, and the published models whose numbers the folder reproduces.

    Raises:
        ConversionError: if there is no witness, or a difference is larger than the tolerance.
    """
    if checkpoint.make_reference is None:
        raise ConversionError("`--check` compares with a reference that reads characters; this model reads word ids.")
    model: ElmoModel = load_complete(folder)
    tokenizer = load_tokenizer(folder)
    difference = largest_difference(model, tokenizer, checkpoint.make_reference())
    # A NaN fails too.
    expected, found = f"within {CHECK_TOLERANCE:.0e} of its checkpoint", f"a difference of {difference:.2e}"
    require(difference <= CHECK_TOLERANCE, "the converted model", "", expected, found, "Nothing was written.")
    names = {path.name for path in checkpoint.sources.values()}
    size = f"{checkpoint.config.cell_size}/{checkpoint.config.projection_size}"
    compared = []
    for stream in streams:
        # No checksums were published, so a published model is recognised by its file's name and its sizes.
        about = published[stream.model]
        is_same = name_of(about.addresses["weights"][0]) in names and about.size == size
        if is_same and not checkpoint.config.aligned_layers:
            numbers = stream.measure(embed_stream(model, tokenizer, stream.sentences))
            largest = float(np.max(np.abs(np.array(stream.expected) - numbers)))
            expected = f"within {TOLERANCE:.0e} of the {stream.model} model's that {stream.source} has"
            advice = "Nothing was written. It is another model with the same file name, or its file is damaged."
            what = "the vectors of the converted model"
            require(largest <= TOLERANCE, what, "", expected, f"a difference of {largest:.6f}", advice)
            compared.append(stream.model)
    return difference, [*dict.fromkeys(compared)]


@torch.no_grad()
def largest_difference(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reference: ReferenceElmo) -> float:
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
