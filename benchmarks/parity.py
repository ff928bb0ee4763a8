"""The largest differences from AllenNLP's golden values: layers, states and mixes of every stateful call.

    python benchmarks/parity.py tests/fixtures/*/

A case is a folder with `options.json`, `weights.hdf5`, `sentences.json` and `expected.npz`, as tests/fixtures/README.md
describes; other folders are skipped. Tests compare the same values to fixed tolerances; this prints the differences.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from elmo_hf import BiLMState, ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source

KINDS = ("layers", "hidden", "cell", "mixes", "mixes, batch norm")


def largest_differences(case: Path) -> dict[str, float]:
    """The largest absolute difference over all calls of one case, by kind of value."""
    expected = np.load(case / "expected.npz")
    sentences = json.loads((case / "sentences.json").read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}

    def compare(kind: str, actual: torch.Tensor, key: str, mask: torch.Tensor | None = None) -> None:
        difference = (actual - torch.from_numpy(expected[key])).abs()
        found[kind].append((difference if mask is None else difference[:, mask]).max().item())

    with tempfile.TemporaryDirectory() as folder:
        convert_source(case, Path(folder) / "elmo", NamedFiles())
        tokenizer = ElmoTokenizer.from_pretrained(Path(folder) / "elmo")
        state: BiLMState | None = None
        model = ElmoModel.from_pretrained(Path(folder) / "elmo").eval()
        for call in sorted(sentences):
            inputs = tokenizer(sentences[call], is_split_into_words=True, padding=True, return_tensors="pt")
            before = None if state is None else state.resize(len(sentences[call]))
            output = model(**inputs, state=before, output_hidden_states=True)
            state = output.state if state is None else state.update(output.state)
            prefix = "" if call == "call1" else f"{call}_"
            compare("layers", torch.stack(output.hidden_states), f"{prefix}layers_with_boundaries")
            compare("hidden", state.hidden, f"{call}_state_h")
            compare("cell", state.cell, f"{call}_state_c")
        for kind, norm, key in (("mixes", "none", "mix"), ("mixes, batch norm", "batch", "mix_layer_norm")):
            model = ElmoModel.from_pretrained(
                Path(folder) / "elmo", num_output_representations=3, scalar_mix_layer_norm=norm
            ).eval()
            for mix, scalars, gamma in zip(
                model.scalar_mixes, expected["mix_scalars"], expected["mix_gammas"], strict=True
            ):
                mix.set_weights(torch.from_numpy(scalars).softmax(0).tolist(), scale=float(gamma))
            inputs = tokenizer(sentences["call1"], is_split_into_words=True, padding=True, return_tensors="pt")
            mixes = torch.stack(model(**inputs).elmo_representations)
            compare(kind, mixes, f"{key}_with_boundaries", inputs["attention_mask"].bool())
    return {kind: max(values) for kind, values in found.items()}


def main(folders: Annotated[list[Path], typer.Argument(help="Folders of golden cases.")]) -> None:
    """Measure and print a table."""
    cases = [
        folder for folder in folders if (folder / "expected.npz").is_file() and (folder / "weights.hdf5").is_file()
    ]
    if not cases:
        raise typer.BadParameter("expected folders of golden cases, found none.")
    with torch.inference_mode():
        rows = {case.resolve().name: largest_differences(case) for case in cases}
    print(f"| | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{row[kind]:.1e}' for kind in KINDS)} |")


if __name__ == "__main__":
    typer.run(main)
