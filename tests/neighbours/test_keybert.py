"""KeyBERT on a saved folder, by sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest
from neighbours import pooled

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
