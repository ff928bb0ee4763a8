"""What the embedding of documents and batches refuses: the kind of error, and what its message must name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vectors import embed_file, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
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


def test_vectors_that_are_nan_are_refused_with_the_first_sentence(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    inputs = tiny_tokenizer([["Übung"]], is_split_into_words=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        mixed_model.token_encoder.embedding.weight[inputs[0, 1, 1]] = torch.nan  # a byte of sentence 3 alone
    for dtype in ("float32", "int8"):
        for output in ("v.npz", "v/"):
            with pytest.raises(ValueError, match="NaN for sentence 3, counted from 0"):
                embed_file(
                    mixed_model,
                    tiny_tokenizer,
                    corpus,
                    f"{tmp_path}/{dtype}{output}",
                    dtype=dtype,
                    window_characters=59,
                )
    options = {"window_characters": 59, "allow_nan": True, "layers": "top"}
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "v.npz", **options)
    assert [np.isnan(each).any() for each in read_vectors(tmp_path / "v.npz")] == [n == 3 for n in range(6)]
