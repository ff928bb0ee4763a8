"""One checkout's process of `compare.py`; it uses only names of `elmo_hf` that both commits have."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from worker import serve

VOCABULARY, WINDOW = 5000, 20


def main(package: Path, folder: Path, threads: int) -> None:
    """Loads the model in `folder` with the `elmo_hf` in `package`, and runs cases on request."""
    import_package(package / "elmo_hf")
    from timing import timed
    from workload import batches_of

    from elmo_hf import ElmoForPreTraining, ElmoModel

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = ElmoModel.from_pretrained(folder).eval()
    language_models = ElmoForPreTraining.from_pretrained(folder, num_softmax_words=VOCABULARY, lm_dropout=0.0).train()

    def embed(batches: list[Any]) -> list[Tensor]:
        with torch.no_grad():
            return [model(**batch.inputs).last_hidden_state for batch in batches]

    def fine_tune(batches: list[Any]) -> list[Tensor]:
        model.zero_grad()
        sum(model(**batch.inputs).last_hidden_state.square().sum() for batch in batches).backward()
        return [model.bilm.layers[0].backward_lstm.recurrent_linear.weight.grad]

    def pretrain(batches: list[Any]) -> list[Tensor]:
        """A window that is the same from both ends, because commits differ in the order of the backward window."""
        language_models.zero_grad()
        ids = batches[0].inputs["input_ids"][:, 1 : WINDOW // 2 + 1]
        ids = torch.cat([ids, ids.flip(1)], dim=1)
        targets = ids.sum(dim=-1) % VOCABULARY
        output = language_models(
            input_ids=ids, backward_input_ids=ids, forward_targets=targets, backward_targets=targets
        )
        output.loss.backward()
        return [language_models.elmo.bilm.layers[0].backward_lstm.recurrent_linear.weight.grad]

    runs = {"embed": embed, "fine-tune": fine_tune, "pretrain": pretrain}

    def answer(sentences: str, size: int, work: str, output: str | None = None) -> dict[str, float]:
        """Times a pass over batches in seconds; writes the mixes, or a gradient, into `output`."""
        batches = batches_of(json.loads(Path(sentences).read_text(encoding="utf-8")), size)
        seconds = timed(lambda: runs[work](batches))()
        if output is not None:
            np.save(output, torch.cat([value.flatten() for value in runs[work](batches)]).numpy())
        return {"seconds": seconds}

    serve(answer)


def import_package(package: Path) -> None:
    """Makes `elmo_hf` this package, whichever is installed."""
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), int(sys.argv[3]))
