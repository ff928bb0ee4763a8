"""Batches of texts of similar length, which keep padding small."""

from collections.abc import Iterator, Sequence

# The most positions of a batch, padding included, where its user names no other number.
BATCH_POSITIONS = 2048
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
