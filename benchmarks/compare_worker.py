"""One checkout's process of `compare.py`."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from worker import serve


def main(package: Path, folder: Path, sentences: Path, threads: int) -> None:
    """Loads the model in `folder` with the `elmo_hf` in `package`, and runs cases when asked."""
    import_package(package / "elmo_hf")
    from timing import timed
    from workload import batches_of, some_sentences

    from elmo_hf import ElmoModel

    torch.set_num_threads(threads)
    model = ElmoModel.from_pretrained(folder).eval()
    learned = model.bilm.layers[0].backward_lstm.recurrent_linear.weight

    def answer(size: int, number: int, learns: bool, output: str | None = None) -> dict[str, float]:
        """Seconds of a pass over batches; into `output` the mixes, or a gradient."""
        batches = batches_of(some_sentences(sentences, size * number), size)

        def run() -> list[Tensor]:
            model.zero_grad()
            with torch.set_grad_enabled(learns):
                mixes = [model(**batch.inputs).elmo_representations[0] for batch in batches]
                if not learns:
                    return mixes
                sum(mix.square().mean() for mix in mixes).backward()
            return [learned.grad]

        seconds = timed(run)()
        if output is not None:
            np.save(output, torch.cat([value.flatten() for value in run()]).numpy())
        return {"seconds": seconds}

    serve(answer)


def import_package(package: Path) -> None:
    """Makes `package` what `elmo_hf` is from now on, whichever is installed."""
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]), int(sys.argv[4]))
