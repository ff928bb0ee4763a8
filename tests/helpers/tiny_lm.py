"""A tiny language model in which no two sizes are equal, its vocabulary, text for it, and the text as its inputs."""

import functools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoTokenizer
from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.streams import SentenceStream, window_arguments
from tests.helpers.language_models import words_file
from tests.helpers.tiny_inputs import TINY

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
# A text, and the two rows of 12 steps in which a stream reads it.
IN_ORDER = [SENTENCES[0], SENTENCES[3], SENTENCES[1], SENTENCES[4], SENTENCES[4][:1], SENTENCES[1]]
ROWS = [[IN_ORDER[0], IN_ORDER[2], IN_ORDER[3]], [IN_ORDER[1], IN_ORDER[4], IN_ORDER[5]]]
SIZES = TINY | {"num_softmax_words": len(WORDS), "num_softmax_samples": 8}


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
    return tiny_lm(token_encoder="word_embedding", vocab_size=len(WORDS) + 1, **fields)


@functools.cache
def tokenizer_with(words: tuple[str, ...] = tuple(WORDS), token_encoder: str = "char_cnn") -> ElmoTokenizer:
    name = "words_file" if token_encoder == "char_cnn" else "vocab_file"
    with TemporaryDirectory() as folder:
        path = words_file(Path(folder), [*words])
        return ElmoTokenizer(token_encoder, max_word_length=TINY["max_word_length"], **{name: str(path)})


def tokenizer_of(model: ElmoForPreTraining) -> ElmoTokenizer:
    return tokenizer_with(token_encoder=model.config.token_encoder)


def inputs_of(model: ElmoForPreTraining, sentences: list[list[str]] = SENTENCES, side: str = "right") -> BatchEncoding:
    """Ids, mask and labels; labels on padding are words too, which nobody may read."""
    tokenizer = tokenizer_of(model)
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, padding_side=side, return_tensors="pt")
    inputs["labels"] = torch.full_like(inputs["attention_mask"], WORDS.index("ferry"))
    for row, words in enumerate(sentences):
        classes = torch.from_numpy(tokenizer.word_classes(["<S>", *words, "</S>"]))
        inputs["labels"][row][inputs["attention_mask"][row].bool()] = classes
    return inputs


def stream_of(model: ElmoForPreTraining) -> dict[str, Tensor]:
    """One window with all steps of `ROWS`."""
    corpus = Corpus.from_sentences(IN_ORDER, tokenizer_of(model))
    streams = [SentenceStream(corpus, len(ROWS), is_backward=is_backward) for is_backward in (False, True)]
    return window_arguments(corpus, *(stream.take(12) for stream in streams))


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)
