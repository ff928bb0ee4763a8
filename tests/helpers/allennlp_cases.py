"""Golden cases with AllenNLP's numbers by call, and scripts written for AllenNLP."""

import json
from typing import Any

import numpy as np
from checkpoints import FIXTURES, GOLDEN_CASES
from torch import Tensor

TOLERANCE = 2e-5
# AllenNLP's words always have 50 characters.
CASES = [name for name in GOLDEN_CASES if name != "ext_max_chars_24"]
MODULES = ("modules.elmo", "modules.token_embedders", "modules.scalar_mix", "commands.elmo", "nn.util")
CHANGED_IMPORTS = {
    f"from allennlp.{module} import": "from elmo_hf.allennlp import"
    for module in (*MODULES, "data.token_indexers.elmo_indexer")
}


class Golden:
    """A case that AllenNLP computed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files = (str(FIXTURES / name / "options.json"), str(FIXTURES / name / "weights.hdf5"))
        self.sentences: dict[str, list[list[str]]] = json.loads((FIXTURES / name / "sentences.json").read_text())
        self.expected = dict(np.load(FIXTURES / name / "expected.npz"))

    def layers(self, call: str) -> np.ndarray:
        """`(L+1, B, T, 2P)`, without boundaries."""
        prefix = "" if call == "call1" else f"{call}_"
        return np.stack(
            [trimmed(layer, self.lengths(call)) for layer in self.expected[f"{prefix}layers_with_boundaries"]]
        )

    def lengths(self, call: str) -> list[int]:
        return [len(words) for words in self.sentences[call]]


def trimmed(vectors: np.ndarray, lengths: list[int]) -> np.ndarray:
    """`(B, T+2, D)` to `(B, T, D)`: `<S>` and `</S>` cut off, zero behind."""
    result = np.zeros_like(vectors[:, 2:])
    for row, length in enumerate(lengths):
        result[row, :length] = vectors[row, 1 : 1 + length]
    return result


def assert_close(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def run_legacy(script: str, **names: Any) -> dict[str, Any]:
    """Runs an old script and changes only its import lines."""
    for old, new in CHANGED_IMPORTS.items():
        script = script.replace(old, new)
    assert "allennlp" in script
    assert "from allennlp" not in script
    exec(compile(script, "legacy", "exec"), names)
    return names
