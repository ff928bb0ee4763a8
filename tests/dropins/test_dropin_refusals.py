"""What the drop-ins refuse: each row names the word that must appear, and its kind."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from elmo_hf import tfhub
from elmo_hf.allennlp import Elmo, ElmoEmbedder, ScalarMix, batch_to_ids
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.dropins import simple_elmo
from elmo_hf.dropins.manylangs import Embedder
from tests.helpers.archives import PREFIX, golden_state
from tests.helpers.golden import BASE

FILES = BASE.files
FOUR_LAYERS = {name.removeprefix(PREFIX): array for name, array in golden_state("four_layer", 1).items()}


def embed_file(*lines: str) -> None:
    ElmoEmbedder(*FILES).embed_file(iter(lines), "/nowhere/out.hdf5", use_sentence_keys=True)


def embed_tokens(tokens: object, lengths: object) -> None:
    tfhub.load("tiny")({"tokens": tokens, "sequence_len": lengths}, signature="tokens")


def loaded() -> simple_elmo.ElmoModel:
    model = simple_elmo.ElmoModel()
    model.load("tiny")
    return model


def vectorize(texts: object) -> None:
    pytest.importorskip("elmo_hf.sklearn").ElmoVectorizer("tiny").fit_transform(texts)


REFUSED: dict[str, tuple[Callable[[], object], str, type[Exception]]] = {
    "no options": (lambda: Elmo("nowhere.json", FILES[1], 1), "nowhere.json", ConversionError),
    "no weights": (lambda: Elmo(FILES[0], "nowhere.hdf5", 1), "nowhere.hdf5", ConversionError),
    "no files and no module": (lambda: Elmo(None, None, 1), "`options_file` must be a path or an address", ValueError),
    "options alone": (lambda: Elmo(FILES[0], None, 1), "`weight_file` must be a path or an address", ValueError),
    "files and a module": (lambda: Elmo(*FILES, 1, module=nn.Identity()), "`module`", ValueError),
    "too few mix parameters": (lambda: Elmo(*FILES, 1, scalar_mix_parameters=[1]), "3 numbers", ValueError),
    "too few parameters of a mix": (
        lambda: ScalarMix(3, initial_scalar_parameters=[1]),
        "`initial_scalar_parameters` must be 3 numbers",
        ValueError,
    ),
    "a mix without a mask": (
        lambda: ScalarMix(1, do_layer_norm=True)([torch.zeros(1, 2, 3)]),
        "`mask` must be",
        ValueError,
    ),
    "strings for lists": (lambda: batch_to_ids(["abc"]), "abc", ValueError),
    "ids of 24 characters": (lambda: Elmo(*FILES, 1)(batch_to_ids([["a"]])[..., :24]), "50", ValueError),
    "blank keys": (lambda: embed_file("Yes", ""), "use_sentence_keys", ValueError),
    "equal keys": (lambda: embed_file("Yes", "Yes"), "use_sentence_keys", ValueError),
    "an address": (
        lambda: tfhub.Module("https://tfhub.dev/google/elmo/3"),
        "or give `original`, the published weights",
        ValueError,
    ),
    "a string": (lambda: tfhub.load("tiny")("Yes"), "'Yes'", ValueError),
    "no sentence": (lambda: tfhub.load("tiny")([]), "at least one text", ValueError),
    "no tokens": (lambda: embed_tokens([], []), "at least one text", ValueError),
    "a tag": (lambda: tfhub.load("tiny", tags={"train"}), "'train'", ValueError),
    "tokens without lengths": (
        lambda: tfhub.load("tiny")({"tokens": [["Yes"]]}, signature="tokens"),
        "tokens and sequence_len",
        ValueError,
    ),
    "tokens for text": (lambda: tfhub.load("tiny")({"tokens": [["Yes"]]}), "with text", ValueError),
    "no such signature": (lambda: tfhub.load("tiny")(["Yes"], signature="words"), "one of default, tokens", ValueError),
    "a string for simple_elmo": (lambda: loaded().get_elmo_vectors(["Yes"]), "'Yes'", ValueError),
    "no texts for simple_elmo": (lambda: loaded().get_elmo_vectors([]), "texts", ValueError),
    "layers of simple_elmo": (lambda: loaded().get_elmo_vectors([["Yes"]], layers="first"), "layers", ValueError),
    "simple_elmo's language models": (
        lambda: simple_elmo.ElmoModel().load("tiny", full=True),
        "`predict_words`",
        ValueError,
    ),
    "simple_elmo's old top layer": (lambda: simple_elmo.ElmoModel().load("tiny", top=True), 'layers="top"', ValueError),
    "a string for ELMoForManyLangs": (lambda: Embedder("tiny").sents2elmo(["Yes"]), "'Yes'", ValueError),
    "a layer of ELMoForManyLangs": (lambda: Embedder("tiny").sents2elmo([["Yes"]], 3), "output_layer", ValueError),
    "no folder of an old embedder": (lambda: Embedder("nowhere"), "nowhere", ValueError),
    "a state dict of another architecture": (
        lambda: Elmo(*FILES, 1).load_state_dict(FOUR_LAYERS),
        "size mismatch",
        RuntimeError,
    ),
    "a string for scikit-learn": (lambda: vectorize("Yes"), "'Yes'", ValueError),
    "two columns for scikit-learn": (lambda: vectorize(np.array([["a", "b"]])), "size", ValueError),
    "no text for scikit-learn": (lambda: vectorize(["a", None]), "None", ValueError),
    "a string for words": (lambda: embed_tokens(["ab"], [2]), "'ab'", ValueError),
    "one length of two": (lambda: embed_tokens([["Yes"], ["No"]], 1), "shorter", ValueError),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_named(name: str) -> None:
    call, word, kind = REFUSED[name]
    with pytest.raises(kind) as error:
        call()
    assert word in str(error.value)
