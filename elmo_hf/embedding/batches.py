"""Runs a model over many texts, in batches of texts of similar length, which keeps padding small."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..model.modeling_elmo import ElmoModel
from ..tokenizer.tokenization_elmo import ElmoTokenizer

# A batch has at most this many texts, or one for every 16 positions if that is more. More texts would take more memory
# and save no time on a CPU.
MOST_TEXTS = 128


def batches_by_length(lengths: Sequence[int], batch_words: int) -> Iterator[list[int]]:
    """Gives the indices of each batch's texts; the longest texts come first.

    Args:
        lengths: the texts' lengths in positions, boundaries included.
        batch_words: the most positions of a batch, padding included; a longer text is alone. A batch has at most
            `MOST_TEXTS` texts, or `batch_words` / 16 if that is more.
    """
    most_texts = max(MOST_TEXTS, batch_words // 16)
    rest = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(rest):
        size = max(1, min(most_texts, batch_words // max(1, lengths[rest[start]])))
        yield rest[start : start + size]
        start += size


@torch.inference_mode()
def outputs_in_batches(
    model: ElmoModel, tokenizer: ElmoTokenizer, texts: Sequence[Sequence[str]], batch_words: int
) -> Iterator[tuple[list[int], Any]]:
    """Gives for each batch the indices of its texts, and its `ElmoModelOutput`; the longest texts come first.

    Args:
        model: in evaluation mode, on the device to run on.
        tokenizer: the model's.
        texts: the words of each text.
        batch_words: as in `batches_by_length`.
    """
    num_boundaries = tokenizer.num_special_tokens_to_add()
    for batch in batches_by_length([len(text) + num_boundaries for text in texts], batch_words):
        words = [list(texts[index]) for index in batch]
        inputs = tokenizer(words, is_split_into_words=True, padding=True, padding_side="right", return_tensors="pt")
        yield batch, model(**inputs.to(model.device))
