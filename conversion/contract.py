"""The argument and the result of every reader: the files that the user names, and an ELMo with our names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo_hf.public import ElmoConfig, ElmoTokenizer

from .witness.reference import ReferenceElmo

Report = Callable[[str], None]  # gives a message to the user


@dataclass(frozen=True)
class NamedFiles:
    """Files that a user names besides SOURCE; a reader looks for those that are None in SOURCE."""

    options: Path | None = None  # the options file
    weights: Path | None = None  # the biLM's hdf5 file, or the `.index` of a TensorFlow checkpoint
    vocabulary: Path | None = None  # the words of word input and of the softmax, one a line
    softmax: Path | None = None  # the hdf5 file with the softmax of the language models; `weights` may hold it instead
    # The dump of the vocabulary's token vectors that bilm-tf wrote; it replaces the character CNN.
    token_embeddings: Path | None = None


@dataclass(frozen=True)
class Checkpoint:
    """An ELMo read from a foreign format."""

    config: ElmoConfig  # the architecture
    # The weights by our names: an `ElmoForPreTraining`'s if the config has a softmax, else an `ElmoModel`'s.
    # Scalar mixes are included only if the source has them.
    tensors: dict[str, np.ndarray]
    tokenizer: ElmoTokenizer  # turns text into the model's inputs
    sources: dict[str, Path]  # the files with settings and numbers that were read, by their names without folders
    make_reference: Callable[[], ReferenceElmo] | None = None  # makes the witness for the check; None if there is none
    notes: tuple[str, ...] = ()  # messages for the user about the parts of the source that the folder lacks


def drop_message(message: str) -> None:
    """A `Report` that tells the user nothing."""
