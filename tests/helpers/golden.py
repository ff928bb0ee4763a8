"""Golden cases of AllenNLP, scripts written for it, and the contract: a converted model gives a case's numbers."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elmo_hf import BiLMState, ElmoModel, ElmoTokenizer
from tests.helpers.checkpoints import FIXTURES, GOLDEN_CASES
from tests.helpers.one_direction import half_of

TOLERANCE = 2e-5
# AllenNLP's words always have 50 characters.
CASES = [name for name in GOLDEN_CASES if name != "ext_max_chars_24"]


class Golden:
    def __init__(self, name: str) -> None:
        self.name = name
        self.files = (str(FIXTURES / name / "options.json"), str(FIXTURES / name / "weights.hdf5"))
        self.sentences: dict[str, list[list[str]]] = json.loads((FIXTURES / name / "sentences.json").read_text())
        self.expected = dict(np.load(FIXTURES / name / "expected.npz"))

    def arrays(self, call: str) -> list[np.ndarray]:
        """`(L+1, n, 2P)` for each sentence of n words."""
        layers = self.expected["layers_with_boundaries" if call == "call1" else f"{call}_layers_with_boundaries"]
        return [layers[:, row, 1 : 1 + len(words)] for row, words in enumerate(self.sentences[call])]

    def run(self, script: str, **names: Any) -> dict[str, Any]:
        """Runs a script that was written for AllenNLP on these files; changes only its import lines."""
        changed = re.sub(r"from allennlp\.\S+ import", "from elmo_hf.allennlp import", script)
        assert changed != script
        names |= {"options_file": self.files[0], "weight_file": self.files[1]}
        exec(compile(changed, "legacy", "exec"), names)
        return names


def assert_close(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def assert_all_close(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for array, exact in zip(actual, expected, strict=True):
        assert array.dtype == exact.dtype
        assert_close(array, exact)


BASE = Golden("base_2l_relu")
SENTENCES = BASE.sentences["call1"]


# Cells without clipping grow larger than outputs.
CELL_TOLERANCE = 5e-5


class Call(NamedTuple):
    """One batch and its numbers; those of a sentence, `(K, T, D)`, include its boundaries or not."""

    sentences: list[list[str]]
    layers: Sequence[np.ndarray]  # the last K layers of each sentence
    mixes: Sequence[np.ndarray] = ()  # the K mixes of each sentence
    state: Sequence[np.ndarray] = ()  # hidden and cell after the batch


def allennlp_calls(case: str, mixes: str = "") -> list[Call]:
    """The calls of a case of AllenNLP in turn; `mixes` are the first one's, `mix` or `mix_layer_norm`."""
    golden, calls = Golden(case), []
    for name, sentences in sorted(golden.sentences.items()):
        prefix = "" if name == "call1" else f"{name}_"
        masks, layers = (golden.expected[f"{prefix}{key}_with_boundaries"] for key in ("mask", "layers"))
        state = [golden.expected[f"{name}_state_{part}"] for part in ("h", "c")]
        calls.append(Call(sentences, by_sentence(layers, masks), state=state))
        if mixes and name == "call1":
            of_mixes = by_sentence(golden.expected[f"{mixes}_with_boundaries"], masks)
            calls[0] = calls[0]._replace(mixes=of_mixes)
    return calls


def by_sentence(arrays: np.ndarray, masks: np.ndarray) -> list[np.ndarray]:
    """`(K, B, T, D)` to `(K, n, D)` for each sentence of n words."""
    return [arrays[:, row, mask] for row, mask in enumerate(masks)]


def assert_golden(
    model: ElmoModel,
    calls: Sequence[Call],
    tolerance: float = TOLERANCE,
    cell_tolerance: float = CELL_TOLERANCE,
    carries_state: bool = True,
) -> None:
    """Runs a model that was loaded from a folder, with the folder's tokenizer, on one call after the other.

    A model of one direction has the forward halves of the numbers. Padding is zero.
    """
    tokenizer = ElmoTokenizer.from_pretrained(model.name_or_path)
    state: BiLMState | None = None

    def compare(found: Any, expected: np.ndarray, tolerance: float = tolerance) -> None:
        whole = torch.from_numpy(expected)
        wanted = whole if model.config.bidirectional else half_of(whole)
        torch.testing.assert_close(found, wanted, atol=tolerance, rtol=0)

    assert calls
    for call in calls:
        inputs = tokenizer(call.sentences, is_split_into_words=True, padding=True, return_tensors="pt")
        before = None if state is None else state.resize(len(call.sentences))
        with torch.no_grad():
            output = model.eval()(**inputs, state=before, output_hidden_states=True)
        masks = inputs["attention_mask"].bool()
        layers, mixes = torch.stack(output.hidden_states), torch.stack(output.elmo_representations)
        for vectors, of_sentences in ((layers, call.layers), (mixes, call.mixes)):
            for row, expected in enumerate(of_sentences):
                found = vectors[-len(expected) :, row, masks[row]]
                edge = (found.shape[1] - expected.shape[1]) // 2
                compare(found[:, edge : found.shape[1] - edge], expected)
            assert not vectors[:, ~masks].any()
        after = output.state if state is None else state.update(output.state)
        for found, expected, its_tolerance in zip(after, call.state, (tolerance, cell_tolerance), strict=False):
            compare(found, expected, its_tolerance)
        state = after if carries_state else None
