"""How sentences are embedded: what one file of vectors and a folder of shards have in common."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

from ..sentences import raw_texts
from .chosen_words import ChosenWords
from .processes import Processes
from .window_vectors import BATCH_WORDS, Wanted


class How(NamedTuple):
    """The arguments that `embed_file` and `embed_documents` share.

    Attributes:
        layers: a key of `LAYERS`.
        dtype: of the numbers in the files, one of `DTYPES`. The model computes in its own.
        words: those whose vectors are kept; None keeps all.
        batch_words: the most positions of a batch, boundaries and padding included; a longer text is alone.
        show_progress: shows a bar of the first process's sentences.
        processes: those that share the work, each calling the function with the same arguments; or Ray's workers, for
            shards alone; None: this process alone.
        look: gets the raw texts among the first sentences.
    """

    layers: str = "all"
    dtype: str = "float32"
    words: ChosenWords | None = None
    batch_words: int = BATCH_WORDS
    show_progress: bool = False
    processes: Processes | None = None
    look: Callable[[list[str]], None] = lambda texts: None

    @property
    def wanted(self) -> Wanted:
        """What is kept of a sentence."""
        return Wanted(self.layers, self.dtype, self.words)

    def looked_at(self, windows: Iterator[Any]) -> Iterator[Any]:
        """The windows, lists of places and sentences, after `look` got the texts of the first one."""
        first = list(islice(windows, 1))
        self.look(raw_texts(sentence for window in first for _, sentence in window))
        return chain(first, windows)
