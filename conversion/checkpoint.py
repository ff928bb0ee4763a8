"""What every reader of a foreign format is given, and what it returns: an ELMo in our terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer


class Reference(Protocol):
    """A witness in NumPy, made of the source's own arrays."""

    def embed(self, words: Sequence[str]) -> np.ndarray:
        """`(L + 1, n + 2, 2P)` of n words, boundaries included."""


@dataclass(frozen=True)
class Given:
    """What a user may give beside the SOURCE; None where it is left to the format.

    Attributes:
        options: the options file.
        vocabulary: the words of word input and of the softmax, one a line.
        softmax: the released softmax of the language models.
        token_embeddings: bilm-tf's dump of that vocabulary's token vectors.
        word_splitter: how the tokenizer splits raw text.
    """

    options: Path | None = None
    vocabulary: Path | None = None
    softmax: Path | None = None
    token_embeddings: Path | None = None
    word_splitter: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """An ELMo out of a foreign format.

    Attributes:
        config: the architecture.
        tensors: the weights by our names: those of an `ElmoForPreTraining` if the config has a softmax, else of an
            `ElmoModel`; scalar mixes among them where the source has any.
        tokenizer: what makes the model's inputs.
        sources: the files to take fingerprints of, by the names that the model card gives them.
        make_reference: makes a witness for `--check`; None where there is none.
        notes: what was found and is not carried, for the user.
    """

    config: ElmoConfig
    tensors: dict[str, np.ndarray]
    tokenizer: ElmoTokenizer
    sources: dict[str, Path]
    make_reference: Callable[[], Reference] | None = None
    notes: tuple[str, ...] = ()
