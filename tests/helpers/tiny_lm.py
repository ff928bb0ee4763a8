"""A tiny language model in which no two sizes are equal, its vocabulary, text for it, and the text as its inputs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from language_models import words_file
from tiny_inputs import TINY
from torch import Tensor
from transformers import BatchEncoding

from elmo_hf import ElmoConfig, ElmoTokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining

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
# Rows of a stream, of equal lengths.
ROWS = [[SENTENCES[0], SENTENCES[1], SENTENCES[4]], [SENTENCES[3], SENTENCES[4][:1], SENTENCES[1]]]
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
    """The same with word input."""
    return tiny_lm(token_encoder="word_embedding", vocab_size=len(WORDS) + 1, **fields)


MAKERS = [tiny_lm, tiny_word_lm]


def tiny_tokenizer_of(model: ElmoForPreTraining, folder: Path) -> ElmoTokenizer:
    """A tokenizer with the vocabulary of the model's softmax."""
    path = str(words_file(folder, WORDS))
    if model.config.token_encoder == "word_embedding":
        return ElmoTokenizer(token_encoder="word_embedding", vocab_file=path)
    return ElmoTokenizer(max_word_length=11, words_file=path)


def inputs_of(
    model: ElmoForPreTraining, folder: Path, sentences: list[list[str]], side: str = "right"
) -> BatchEncoding:
    """Ids, mask and labels; labels on padding are words too, which nobody may read."""
    tokenizer = tiny_tokenizer_of(model, folder)
    inputs = tokenizer(sentences, is_split_into_words=True, padding=True, padding_side=side, return_tensors="pt")
    inputs["labels"] = torch.full_like(inputs["attention_mask"], WORDS.index("ferry"))
    for row, words in enumerate(sentences):
        classes = torch.from_numpy(tokenizer.word_classes(["<S>", *words, "</S>"]))
        inputs["labels"][row][inputs["attention_mask"][row].bool()] = classes
    return inputs


def stream_of(model: ElmoForPreTraining, folder: Path, rows: list[list[list[str]]]) -> dict[str, Tensor]:
    """Rows of sentences joined as in windows of both streams, in text order; all rows must have one length."""
    tokenizer = tiny_tokenizer_of(model, folder)
    streams: dict[str, list[list[str]]] = {name: [] for name in ("forward", "forward+1", "backward", "backward-1")}
    for row in rows:
        streams["forward"].append([word for words in row for word in ("<S>", *words)])
        streams["forward+1"].append([word for words in row for word in (*words, "</S>")])
        # The backward stream reads the first sentence of the row first, which so comes last in text order.
        streams["backward"].append([word for words in row[::-1] for word in (*words, "</S>")])
        streams["backward-1"].append([word for words in row[::-1] for word in ("<S>", *words)])
    ids = {name: torch.tensor([tokenizer.convert_tokens_to_ids(row) for row in streams[name]]) for name in streams}
    classes = {name: torch.from_numpy(np.stack([tokenizer.word_classes(row) for row in streams[name]])) for name in ids}
    return {
        "input_ids": ids["forward"],
        "backward_input_ids": ids["backward"],
        "forward_targets": classes["forward+1"],
        "backward_targets": classes["backward-1"],
    }


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)
