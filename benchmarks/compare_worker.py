"""One checkout's process of `compare.py`; it uses only names of `elmo_hf` that both commits have."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from worker import serve


def main(package: Path, folder: Path, threads: int) -> None:
    """Loads the model in `folder` with the `elmo_hf` in `package`, and runs cases on request."""
    import_package(package / "elmo_hf")
    from timing import timed
    from workload import batches_of

    from elmo_hf import ElmoModel

    torch.set_num_threads(threads)
    model = ElmoModel.from_pretrained(folder).eval()
    learned = model.bilm.layers[0].backward_lstm.recurrent_linear.weight

    def answer(sentences: str, size: int, learns: bool, output: str | None = None) -> dict[str, float]:
        """Times a pass over batches in seconds; writes the mixes, or a gradient, into `output`."""
        batches = batches_of(json.loads(Path(sentences).read_text(encoding="utf-8")), size)

        def run() -> list[Tensor]:
            model.zero_grad()
            with torch.set_grad_enabled(learns):
                mixes = [model(**batch.inputs).elmo_representations[0] for batch in batches]
                if not learns:
                    return mixes
                sum(mix.square().sum() for mix in mixes).backward()
            return [learned.grad]

        seconds = timed(run)()
        if output is not None:
            np.save(output, torch.cat([value.flatten() for value in run()]).numpy())
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
