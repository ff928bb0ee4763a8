"""A saved `ElmoModel` in BERTopic, as a pipeline of transformers and as a model of sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer
from tests.helpers.neighbours import TEXTS, pooled


@torch.no_grad()
def mean_of_positions(folder: Path, texts: list[str]) -> Tensor:
    """The mean of `last_hidden_state` over all positions of each text, boundaries included, scaled to length 1."""
    model = ElmoModel.from_pretrained(folder).eval()
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    vectors = [model(**tokenizer([text], return_tensors="pt")).last_hidden_state.mean(dim=1) for text in texts]
    return torch.nn.functional.normalize(torch.cat(vectors))


def test_a_pipeline_of_a_folder_embeds_by_this_model_and_no_other(folder: Path) -> None:
    backend = pytest.importorskip("bertopic.backend._utils")
    extract = transformers.pipeline("feature-extraction", model=str(folder), trust_remote_code=True, device="cpu")
    embedder = backend.select_backend(extract, language="english")
    assert embedder.embedding_model is extract
    np.testing.assert_allclose(embedder.embed(TEXTS), mean_of_positions(folder, TEXTS), rtol=0, atol=1e-6)


def test_a_model_of_sentence_transformers_embeds_by_the_pooler_output(folder: Path) -> None:
    backend = pytest.importorskip("bertopic.backend._utils")
    model = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu"
    )
    found = backend.select_backend(model).embed(TEXTS)
    np.testing.assert_allclose(found, pooled(folder, TEXTS), rtol=0, atol=1e-6)
