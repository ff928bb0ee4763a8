"""The folder that other libraries read."""

from pathlib import Path

import pytest

from elmo_hf import ElmoModel, ElmoTokenizer


@pytest.fixture(scope="session")
def folder(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose mix is none of its layers, nor their mean; `pooling` is the mean, or what `each_pooling` gives."""
    pooling = getattr(request, "param", "mean")
    folder = tmp_path_factory.mktemp("neighbours") / pooling
    model = ElmoModel.from_pretrained(tiny_folder, pooling=pooling)
    model.scalar_mixes[0].set_weights([0.2, 0.5, 0.3], scale=1.5)
    model.save_pretrained(folder)
    ElmoTokenizer.from_pretrained(tiny_folder).save_pretrained(folder)
    return folder
