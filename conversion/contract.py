"""The argument and the result of every reader: the files that the user gave, and an ELMo with our names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from elmo_hf.model.configuration_elmo import ElmoConfig
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

from .witness.reference import ReferenceElmo


@dataclass(frozen=True)
class Given:
    """Files and settings that a user may give besides SOURCE; for None the format decides.

    Attributes:
        options: the options file.
        weights: the biLM's hdf5 file, or the `.index` of a TensorFlow checkpoint.
        vocabulary: the words of word input and of the softmax, one a line.
        softmax: the hdf5 file with the softmax of the language models; `weights` may hold it instead.
        token_embeddings: bilm-tf's dump of the vocabulary's token vectors, which replaces the character CNN.
        word_splitter: how the tokenizer splits raw text.
    """

    options: Path | None = None
    weights: Path | None = None
    vocabulary: Path | None = None
    softmax: Path | None = None
    token_embeddings: Path | None = None
    word_splitter: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """An ELMo read from a foreign format.

    Attributes:
        config: the architecture.
        tensors: the weights by our names: an `ElmoForPreTraining`'s if the config has a softmax, else an
            `ElmoModel`'s. Scalar mixes are included only if the source has them.
        tokenizer: turns text into the model's inputs.
        sources: the files whose digests the model card lists, by the names that the card prints.
        make_reference: makes the witness for `--check`; None if there is none.
        notes: messages for the user about the parts of the source that the folder lacks.
    """

    config: ElmoConfig
    tensors: dict[str, np.ndarray]
    tokenizer: ElmoTokenizer
    sources: dict[str, Path]
    make_reference: Callable[[], ReferenceElmo] | None = None
    notes: tuple[str, ...] = ()
