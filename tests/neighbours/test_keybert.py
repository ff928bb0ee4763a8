"""KeyBERT on a saved folder: by sentence-transformers, and by the feature-extraction pipeline of transformers."""

from pathlib import Path

import numpy as np
import pytest
from neighbours import pooled
from transformers import pipeline

from elmo_hf import ElmoModel, ElmoTokenizer

keybert = pytest.importorskip("keybert")
sentence_transformers = pytest.importorskip("sentence_transformers")

TEXT = "The ferry left the harbour at noon, and a storm came from the north."


def test_keywords_are_the_words_nearest_to_the_pooler_output(folder: Path) -> None:
    model = sentence_transformers.SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    extractor = keybert.KeyBERT(model)
    document, words = extractor.extract_embeddings([TEXT])
    np.testing.assert_array_equal(document, pooled(folder, [TEXT]))
    names = ["came", "ferry", "harbour", "left", "noon", "north", "storm"]
    vectors = pooled(folder, names).numpy()
    np.testing.assert_allclose(words, vectors, atol=1e-6, rtol=0)
    cosines = vectors @ document[0] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(document)
    expected = [names[place] for place in np.argsort(-cosines)[:3]]
    assert [word for word, _ in extractor.extract_keywords(TEXT, top_n=3)] == expected


def test_the_pipeline_averages_the_first_output_with_its_boundaries(folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    first_output = model(**tokenizer([TEXT], return_tensors="pt"))[0].detach()
    expected = first_output.mean(dim=1).numpy()
    extractor = keybert.KeyBERT(pipeline("feature-extraction", model=str(folder), trust_remote_code=True))
    document, _ = extractor.extract_embeddings([TEXT])
    np.testing.assert_allclose(document, expected / np.linalg.norm(expected), atol=1e-6, rtol=0)
    assert len(extractor.extract_keywords(TEXT, top_n=3)) == 3
