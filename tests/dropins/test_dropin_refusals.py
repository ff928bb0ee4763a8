"""What the drop-ins refuse: each row names the word that must appear, and its kind."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from checkpoints import BASE
from torch import nn

from elmo_hf import tfhub
from elmo_hf.allennlp import Elmo, ElmoEmbedder, batch_to_ids
from elmo_hf.conversion.refusals import ConversionError

FILES = (str(BASE / "options.json"), str(BASE / "weights.hdf5"))


def embed_file(*lines: str) -> None:
    ElmoEmbedder(*FILES).embed_file(iter(lines), "/nowhere/out.hdf5", use_sentence_keys=True)  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[], object], str, type[Exception]]] = {
    "no options": (lambda: Elmo("nowhere.json", FILES[1], 1), "nowhere.json", ConversionError),
    "no weights": (lambda: Elmo(FILES[0], "nowhere.hdf5", 1), "nowhere.hdf5", ConversionError),
    "files and a module": (lambda: Elmo(*FILES, 1, module=nn.Identity()), "`module`", ValueError),
    "too few mix parameters": (lambda: Elmo(*FILES, 1, scalar_mix_parameters=[1]), "3 numbers", ValueError),
    "strings for lists": (lambda: batch_to_ids(["abc"]), "abc", ValueError),  # type: ignore[list-item]
    "ids of 24 characters": (lambda: Elmo(*FILES, 1)(batch_to_ids([["a"]])[..., :24]), "50", ValueError),
    "blank keys": (lambda: embed_file("Yes", ""), "use_sentence_keys", ValueError),
    "equal keys": (lambda: embed_file("Yes", "Yes"), "use_sentence_keys", ValueError),
    "an address": (lambda: tfhub.Module("https://tfhub.dev/google/elmo/3"), "--model original", ValueError),
    "a string": (lambda: tfhub.load("tiny")("Yes"), "'Yes'", ValueError),
    "a string of Keras": (lambda: tfhub.KerasLayer("tiny")("Yes"), "'Yes'", ValueError),
    "a string for words": (
        lambda: tfhub.load("tiny")({"tokens": ["ab"], "sequence_len": [2]}, signature="tokens"),
        "'ab'",
        ValueError,
    ),
    "one length of two": (
        lambda: tfhub.load("tiny")({"tokens": [["Yes"], ["No"]], "sequence_len": 1}, signature="tokens"),
        "shorter",
        ValueError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(name: str) -> None:
    call, word, kind = REFUSED[name]
    with pytest.raises(kind) as error:
        call()
    assert word in str(error.value)


@pytest.mark.parametrize(("texts", "word"), [("Yes", "'Yes'"), (np.array([["a", "b"]]), "size"), (["a", None], "None")])
def test_what_is_no_list_of_texts_is_named(texts: object, word: str, tiny_folder: Path) -> None:
    vectorizer = pytest.importorskip("elmo_hf.sklearn").ElmoVectorizer(tiny_folder)
    with pytest.raises(ValueError) as error:  # noqa: PT011
        vectorizer.fit_transform(texts)
    assert word in str(error.value)
