"""How sentences are embedded: what one file of vectors and a folder of shards have in common."""

from typing import NamedTuple

from .arguments import BATCH_WORDS
from .chosen_words import ChosenWords
from .processes import Processes
from .window_vectors import Wanted


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
    """

    layers: str = "all"
    dtype: str = "float32"
    words: ChosenWords | None = None
    batch_words: int = BATCH_WORDS
    show_progress: bool = False
    processes: Processes | None = None

    @property
    def wanted(self) -> Wanted:
        """What is kept of a sentence."""
        return Wanted(self.layers, self.dtype, self.words)
