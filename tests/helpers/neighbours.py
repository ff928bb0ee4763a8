"""Texts for other libraries, and the vectors that these should find."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer

TEXTS = ["The ferry left the harbour at 7:45, ten minutes late.", "", "Yes", "naïve Übung 日本語", "No. " * 30]
each_pooling = pytest.mark.parametrize("folder", ["mean", "max"], indirect=True)


@torch.no_grad()
def pooled(folder: Path, texts: list[str]) -> Tensor:
    """The `pooler_output` of each text alone."""
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    return torch.cat([model(**tokenizer([text], return_tensors="pt")).pooler_output for text in texts])
