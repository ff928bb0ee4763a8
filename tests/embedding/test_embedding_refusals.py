"""What the embedding of documents and batches refuses: the kind of error, and what its message must name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo_hf.embedding import Embedder, vector_files
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.vector_files import Record
from elmo_hf.embedding.window_vectors import Selection


def many_arrays() -> None:
    one = np.zeros(1, dtype=np.int8)
    record = Record(0, "", {"vectors": one, "scales": one})
    vector_files.write_safetensors(Path("v"), iter([record] * 3), most=1)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no such layers": (lambda: Selection("second").check(), ValueError, "'second'"),
    "no such dtype": (lambda: Selection(dtype="int4").check(), ValueError, "'int4'"),
    "words of pooled": (lambda: Selection("pooled", words=ChosenWords("a")).check(), ValueError, "with `words`"),
    "bfloat16 in NumPy": (lambda: Embedder(dtype="bfloat16"), ValueError, "NumPy"),
    "bfloat16 in hdf5": (lambda: Selection(dtype="bfloat16").check(".hdf5"), ValueError, ".hdf5"),
    "no file of words": (lambda: ChosenWords("words.txt"), FileNotFoundError, "words.txt"),
    "no pattern": (lambda: ChosenWords("(bank"), ValueError, "'(bank'"),
    "no column": (lambda: Embedder()({"body": ["a"]}), KeyError, "text"),
    "not a text": (lambda: Embedder()({"text": ["a", 17]}), ValueError, "found 17"),
    "a header that is too long": (many_arrays, ValueError, "at most 1 arrays"),
}


@pytest.mark.parametrize(("call", "kind", "named"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(
    call: Callable[[], Any], kind: type[Exception], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    assert named in str(caught.value)
