"""Small models saved for other libraries, and the vectors that these should find in them."""

from pathlib import Path

import torch
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer

TEXTS = ["The ferry left the harbour at 7:45, ten minutes late.", "", "Yes", "naïve Übung 日本語", "No. " * 30]


def save_mixed(source: Path, folder: Path, **fields: str) -> Path:
    """Saves a model whose mix is none of its layers, nor their mean."""
    model = ElmoModel.from_pretrained(source, **fields)
    model.scalar_mixes[0].set_weights([0.2, 0.5, 0.3], scale=1.5)
    model.save_pretrained(folder)
    ElmoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


@torch.no_grad()
def pooled(folder: Path, texts: list[str]) -> Tensor:
    """The `pooler_output` of each text alone."""
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    return torch.cat([model(**tokenizer([text], return_tensors="pt")).pooler_output for text in texts])


@torch.no_grad()
def elmo_vectors(folder: Path, words: list[str]) -> Tensor:
    """The ELMo vectors of words, without boundaries."""
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    return model(**tokenizer([words], is_split_into_words=True, return_tensors="pt")).last_hidden_state[0, 1:-1]
