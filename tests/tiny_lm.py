"""A tiny language model in which no two sizes are equal, its vocabulary, and text for it."""

from pathlib import Path
from typing import Any

import torch

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.pretraining import ElmoForPreTraining

WORDS = "<S> </S> <UNK> the ferry left harbour at dawn , . Yes naïve 日本語 Übung late ten".split()
# Of different lengths, one without words; `unseen` and the long one are outside the vocabulary.
SENTENCES = [
    "the ferry left at dawn .".split(),
    [],
    ["Yes"],
    "ten naïve unseen 日本語 Übung , late extraordinarily".split(),
    "the harbour .".split(),
    "the ferry left at dawn .".split(),
    "at ten , the ferry unseen".split(),
]
SIZES = {
    "max_word_length": 11,
    "char_embedding_size": 5,
    "char_filters": [[1, 3], [2, 4], [3, 6]],
    "num_highway_layers": 1,
    "projection_size": 7,
    "cell_size": 9,
    "num_hidden_layers": 2,
    "cell_clip": 0.6,
    "projection_clip": 0.4,
    "num_softmax_words": len(WORDS),
    "num_softmax_samples": 8,
}


def tiny_lm(**fields: Any) -> ElmoForPreTraining:
    """A model in evaluation mode, whose weights are large enough for clips and words to matter."""
    model = ElmoForPreTraining(ElmoConfig(**SIZES | fields)).eval()
    with torch.no_grad():
        for parameter in model.elmo.bilm.parameters():
            parameter.mul_(3)
        for parameter in model.softmax.parameters():
            parameter.normal_()
    return model


def tiny_word_lm(**fields: Any) -> ElmoForPreTraining:
    """The same with word input."""
    return tiny_lm(token_encoder="word_embedding", vocab_size=len(WORDS) + 1, **fields)


def words_path(folder: Path) -> str:
    path = folder / "words.txt"
    path.write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    return str(path)


def tiny_tokenizer_of(model: ElmoForPreTraining, folder: Path) -> ElmoTokenizer:
    """A tokenizer with the vocabulary of the model's softmax."""
    if model.config.token_encoder == "word_embedding":
        return ElmoTokenizer(token_encoder="word_embedding", vocab_file=words_path(folder))
    return ElmoTokenizer(max_word_length=11, words_file=words_path(folder))
