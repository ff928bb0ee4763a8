"""`nlp.add_pipe("elmo")`: the model's vectors on tokens, spans and docs."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo_hf import ElmoModel, ElmoTokenizer
from tests.helpers.neighbours import each_pooling, pooled

spacy = pytest.importorskip("spacy")

TEXT = "The ferry left  the harbour.\n\nYes, it did."


def pipeline(folder: Path, **config: Any) -> Any:
    """A pipeline of the component alone; the module that holds it is not imported here."""
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"model": str(folder)} | config)
    return nlp


def words_of(doc: Any) -> list[str]:
    return [token.text for token in doc if not token.is_space]


def test_tokens_have_the_elmo_vectors_and_blanks_have_zeros(folder: Path) -> None:
    doc = pipeline(folder)(TEXT)
    assert [token.i for token in doc if token.is_space] == [3, 7]
    inputs = ElmoTokenizer.from_pretrained(folder)([words_of(doc)], is_split_into_words=True, return_tensors="pt")
    expected = ElmoModel.from_pretrained(folder)(**inputs).last_hidden_state[0, 1:-1].detach().numpy()
    np.testing.assert_array_equal(np.stack([token.vector for token in doc if not token.is_space]), expected)
    assert not doc[3].vector.any()
    assert not doc[3].has_vector
    assert doc[2].has_vector
    np.testing.assert_allclose(doc[2].vector_norm, np.linalg.norm(expected[2]), rtol=1e-6)


@each_pooling
def test_docs_and_spans_are_pooled_as_the_model_does(folder: Path) -> None:
    doc = pipeline(folder)(TEXT)
    model_output = pooled(folder, [" ".join(words_of(doc))])[0]
    np.testing.assert_allclose(doc.vector, model_output, atol=1e-6, rtol=0)
    words = np.stack([doc[2].vector, doc[4].vector])  # the blank between them does not count
    expected = words.max(axis=0) if folder.name == "max" else words.mean(axis=0)
    np.testing.assert_allclose(doc[2:5].vector, expected, atol=1e-6, rtol=0)


def test_similarity_is_the_cosine_and_0_for_blanks(folder: Path) -> None:
    nlp = pipeline(folder)
    doc, other = nlp(TEXT), nlp("The train was late.")
    for one, two in ((doc, other), (doc[0:2], other), (doc[1], other[1]), (doc[1], doc[2:4])):
        cosine = one.vector @ two.vector / np.linalg.norm(one.vector) / np.linalg.norm(two.vector)
        assert one.similarity(two) == pytest.approx(cosine, abs=1e-6)
    assert doc.similarity(doc[3]) == 0
    with pytest.raises(ValueError, match="mismatch"):
        doc.similarity(spacy.blank("en")("Yes"))


def test_a_pipe_of_docs_gives_what_single_calls_give_in_their_order(folder: Path) -> None:
    nlp = pipeline(folder, batch_words=20)
    texts = ["No. " * 12, "", "Yes", " ", TEXT, "A ferry", "Two ferries"]
    docs = list(nlp.pipe(texts, batch_size=5))
    assert [doc.text for doc in docs] == texts
    for doc in docs:
        np.testing.assert_allclose(doc.tensor, nlp(doc.text).tensor, atol=1e-6, rtol=0)
        assert doc.tensor.shape == (len(doc), 16)
        assert doc.vector.shape == (16,)


def test_a_saved_pipeline_holds_the_model(folder: Path, tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    component = nlp.add_pipe("elmo", config={"model": str(tmp_path / "gone")})
    component.from_disk(folder)
    nlp.to_disk(tmp_path / "saved")
    np.testing.assert_array_equal(spacy.load(tmp_path / "saved")(TEXT).tensor, pipeline(folder)(TEXT).tensor)


@pytest.mark.filterwarnings("ignore:.*W109.*:UserWarning")
def test_lost_hooks_are_set_again(folder: Path) -> None:
    nlp = pipeline(folder)
    doc = nlp(TEXT)
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert not np.array_equal(again.vector, doc.vector)
    set_hooks = importlib.import_module("elmo_hf.spacy").set_hooks
    assert set_hooks(again) is again
    np.testing.assert_array_equal(again.vector, doc.vector)
    np.testing.assert_array_equal(again[1:3].vector, doc[1:3].vector)
    assert again[1].similarity(again[2]) == doc[1].similarity(doc[2])
    np.testing.assert_array_equal(set_hooks(doc, "max")[1:3].vector, doc.tensor[1:3].max(axis=0))
