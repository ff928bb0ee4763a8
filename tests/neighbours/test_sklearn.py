"""`ElmoVectorizer` in scikit-learn: its estimator checks, pipelines, tables, clones and pickles."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.neighbours import TEXTS, each_pooling, pooled

pytest.importorskip("sklearn")

import torch
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.validation import validate_data

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import _loaded
from elmo_hf.sklearn import ElmoVectorizer


class NumbersAsTexts(ElmoVectorizer):
    """Scikit-learn's checks give tables of numbers; here each row is a text."""

    def fit(self, X: Any, y: Any = None) -> "NumbersAsTexts":
        super().fit(self._rows(X, reset=True), y)
        return self

    def transform(self, X: Any) -> np.ndarray:
        return super().transform(self._rows(X, reset=False))

    def _rows(self, X: Any, reset: bool) -> list[str]:
        return [" ".join(f"{number:.3g}" for number in row) for row in validate_data(self, X, reset=reset)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, False, True
        return tags


def test_scikit_learns_checks_of_an_estimator_pass(folder: Path) -> None:
    results = estimator_checks.check_estimator(NumbersAsTexts(str(folder)), on_skip=None, on_fail="raise")
    assert len(results) > 40
    # It runs only where SCIPY_ARRAY_API is set, and is for arrays of other libraries.
    assert {each["check_name"] for each in results if each["status"] != "passed"} <= {"check_array_api_input"}


@each_pooling
def test_rows_are_the_pooler_output_in_the_order_of_the_texts_without_fitting(folder: Path) -> None:
    found = ElmoVectorizer(folder, batch_words=30).transform(iter(TEXTS))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, pooled(folder, TEXTS), atol=1e-6, rtol=0)
    assert not found[TEXTS.index("")].any()


def test_pipelines_and_cross_validation_load_the_model_once_and_pickle_no_weights(folder: Path) -> None:
    _loaded.cache_clear()
    texts, labels = [f"{word} {n}" for n in range(6) for word in ("ferry", "train")], [0, 1] * 6
    pipeline = make_pipeline(ElmoVectorizer(str(folder)), LogisticRegression())
    assert cross_val_score(pipeline, texts, labels, cv=3).shape == (3,)
    expected = pipeline.fit(texts, labels).predict_proba(texts)
    assert _loaded.cache_info().misses == 1
    pickled = pickle.dumps(pipeline)
    assert len(pickled) < 3000
    np.testing.assert_array_equal(pickle.loads(pickled).predict_proba(texts), expected)


@pytest.mark.parametrize("column", ["text", ["text"]], ids=["a series", "a table of one column"])
def test_columns_of_tables_become_data_frames(column: Any, folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"n": range(len(TEXTS)), "text": TEXTS}, index=list("vwxyz"))
    found = ColumnTransformer([("t", ElmoVectorizer(folder), column)]).set_output(transform="pandas")
    frame = found.fit_transform(table)
    assert list(frame.index) == list("vwxyz")
    assert list(frame.columns[:2]) == ["t__elmo0", "t__elmo1"]
    np.testing.assert_allclose(frame.to_numpy(), pooled(folder, TEXTS), atol=1e-6, rtol=0)


def test_a_folder_in_bfloat16_gives_numbers_that_numpy_has(tiny_folder: Path, tmp_path: Path) -> None:
    ElmoModel.from_pretrained(tiny_folder, dtype=torch.bfloat16).save_pretrained(tmp_path)
    ElmoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path)
    assert ElmoVectorizer(str(tmp_path)).transform(TEXTS).dtype == np.float32
