"""The check of a conversion: compares a written folder's numbers with a witness's and with published numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from elmo_hf.folder.loading import load_complete, load_tokenizer

from .contract import Checkpoint
from .published import PUBLISHED, Published, name_of
from .refusals import AnotherModelError, ConversionError
from .witness.reference import ReferenceElmo
from .witness.reference_outputs import PUBLISHED_NUMBERS, PUBLISHED_TOLERANCE, Layers, PublishedNumbers

# Sentences of different lengths and scripts, with one word longer than the 48 bytes that the model reads.
CHECK_SENTENCES = (
    ["The", "ferry", "left", "the", "harbour", "at", "7:45", ",", "ten", "minutes", "late", "."],
    ["Yes"],
    ["naïve", "Übung", "日本語", "x" * 60, "!"],
)
# float32 against float64: golden cases with random weights differ by at most 5e-6, real weights by a little more.
CHECK_TOLERANCE = 1e-4


def check_conversion(
    folder: Path,
    checkpoint: Checkpoint,
    published_numbers: Sequence[PublishedNumbers] = PUBLISHED_NUMBERS,
    published: Mapping[str, Published] = PUBLISHED,
) -> tuple[float, list[str]]:
    """Compares the folder's model with the checkpoint's witness, and with numbers published for these weights.

    Returns:
        the largest absolute difference from the witness, and the published models whose numbers the folder reproduces.

    Raises:
        ConversionError: if there is no witness, or a difference is larger than the tolerance.
    """
    if checkpoint.make_reference is None:
        raise ConversionError(
            "the check compares with a reference, and this model has none, like every model that reads word ids; "
            "convert it without the check."
        )
    model, tokenizer = load_complete(folder), load_tokenizer(folder)
    difference = largest_difference(model, tokenizer, checkpoint.make_reference())
    is_close = difference <= CHECK_TOLERANCE  # a NaN is not
    if not is_close:
        raise ConversionError(
            f"the converted model must be within {CHECK_TOLERANCE:.0e} of its checkpoint, but a difference of "
            f"{difference:.2e} was found. Nothing was written."
        )
    reproduced = []
    for numbers in published_numbers:
        if not _may_be_published(checkpoint, published[numbers.model]):
            continue
        _compare_with_published(model, tokenizer, numbers)
        if numbers.model not in reproduced:
            reproduced.append(numbers.model)
    return difference, reproduced


def _may_be_published(checkpoint: Checkpoint, row: Published) -> bool:
    """Whether a checkpoint has the file name and the sizes of a published one, of which no checksums are known."""
    names = {path.name for path in checkpoint.sources.values()}
    config = checkpoint.config
    has_name = name_of(row.addresses["weights"][0]) in names
    has_size = row.size == f"{config.cell_size}/{config.projection_size}"
    return has_name and has_size and not config.aligned_layers


def _compare_with_published(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, published: PublishedNumbers
) -> None:
    """Raises AnotherModelError unless a model has the numbers that were published for its vectors."""
    numbers = published.measure(embed_in_turn(model, tokenizer, published.sentences))
    difference = float(np.max(np.abs(np.array(published.expected) - numbers)))
    is_close = difference <= PUBLISHED_TOLERANCE  # a NaN is not
    if not is_close:
        raise AnotherModelError(
            f"these are not the weights of the published `{published.model}`: the vectors of the converted model must "
            f"be within {PUBLISHED_TOLERANCE:.0e} of those that {published.source} has, but a difference of "
            f"{difference:.6f} was found. Nothing was written.",
            "Get the weights again or, if it is another model whose file has this name, rename the file.",
        )


@torch.no_grad()
def largest_difference(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, reference: ReferenceElmo) -> float:
    """Largest absolute difference between a model and the witness, over all layers of `CHECK_SENTENCES`."""
    inputs = tokenizer(list(CHECK_SENTENCES), is_split_into_words=True, padding=True, return_tensors="pt")
    layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).double().numpy()
    differences = []
    for row, words in enumerate(CHECK_SENTENCES):
        expected = reference.embed(words)
        differences.append(np.abs(layers[:, row, : expected.shape[1]] - expected).max())
    return float(np.max(differences))  # unlike max, it keeps a NaN


@torch.no_grad()
def embed_in_turn(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[str]) -> Layers:
    """Embeds sentences in turn, passing the state on: `(L+1, n, 2P)` each, without boundaries."""
    state = None
    layers = []
    for sentence in sentences:
        inputs = tokenizer([sentence.split(" ")], is_split_into_words=True, return_tensors="pt")
        output = model(**inputs, state=state, output_hidden_states=True)
        state = output.state
        layers.append(torch.stack(output.hidden_states)[:, 0, 1:-1].numpy())
    return layers
