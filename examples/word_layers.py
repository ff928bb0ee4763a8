"""The layers of every word of many sentences, sentence by sentence, with a progress bar."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from tqdm import tqdm

from elmo_hf import ElmoModel, ElmoTokenizer

BATCH = 64


@torch.inference_mode()
def word_layers(
    model: ElmoModel, tokenizer: ElmoTokenizer, sentences: Sequence[list[str]], name: str = "biLM"
) -> Iterator[tuple[int, np.ndarray]]:
    """Gives the index of each sentence and its layers `(L + 1, words, 2P)`, without boundaries; short sentences first.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        sentences: lists of words; those without words are left out.
        name: the name of the progress bar.
    """
    order = sorted((index for index, words in enumerate(sentences) if words), key=lambda index: len(sentences[index]))
    with tqdm(total=sum(map(len, sentences)), desc=name, unit="word") as bar:
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            words = [sentences[index] for index in chosen]
            inputs = tokenizer(words, is_split_into_words=True, padding=True, return_tensors="pt")
            layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).numpy()
            for row, index in enumerate(chosen):
                yield index, layers[:, row, 1 : len(sentences[index]) + 1]
                bar.update(len(sentences[index]))
