"""Golden cases with AllenNLP's numbers by call, one of them by name, and scripts written for AllenNLP."""

import json
import re
from typing import Any

import numpy as np
from checkpoints import FIXTURES, GOLDEN_CASES
from torch import Tensor

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
