"""Shared fixtures: a tiny model with all sizes different, and a converted folder."""

import contextlib
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.kernels.path import scan_path
from tests.helpers.checkpoints import BASE, allennlp_to_folder
from tests.helpers.language_models import tiny_files
from tests.helpers.loopback_hub import LoopbackHub, talk_to
from tests.helpers.rows import C
from tests.helpers.tiny_inputs import TINY


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Makes garbage collections rare, and spares those that every Trainer asks for what was imported before."""
    gc.set_threshold(100_000, 50, 100)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _scan_path(request: pytest.FixtureRequest) -> Iterator[None]:
    path = request.config.getoption("--scan-path")
    with contextlib.nullcontext() if path is None else scan_path(path):
        yield


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20180608)


@pytest.fixture
def tiny_config() -> ElmoConfig:
    """A config in which no two sizes are equal."""
    return ElmoConfig(**TINY)


@pytest.fixture
def tiny_model(tiny_config: ElmoConfig) -> ElmoModel:
    """A model whose weights are large enough for both clips to act."""
    model = ElmoModel(tiny_config).eval()
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(3)
    return model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base case, converted and checked."""
    folder = tmp_path_factory.mktemp("conversion") / "tiny"
    allennlp_to_folder(BASE, folder, check=True, source_name="our_tiny")
    return folder


@pytest.fixture(scope="session")
def tiny_lm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bilm-tf's own tiny language model, converted and checked."""
    folder = tmp_path_factory.mktemp("conversion") / "tiny_lm"
    assert allennlp_to_folder(tiny_files(), folder, source_name="tiny", check=True) < 1e-5
    return folder


@pytest.fixture(scope="module")
def tokenizer() -> ElmoTokenizer:
    return ElmoTokenizer(max_word_length=C)


@pytest.fixture(scope="module")
def word_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ElmoTokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nthe\ncat\nthe\n!!!MAXTERMID\nsaß\n", encoding="utf-8")
    return ElmoTokenizer(token_encoder="word_embedding", vocab_file=str(path))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_folder: Path) -> ElmoTokenizer:
    return ElmoTokenizer.from_pretrained(tiny_folder)


@pytest.fixture(params=["boundaries", "no boundaries", "padding on the left"])
def each_tokenizer(request: pytest.FixtureRequest, tiny_tokenizer: ElmoTokenizer) -> ElmoTokenizer:
    """The tiny model's tokenizer, one of a model without boundaries, and one that pads in front."""
    side = "left" if request.param == "padding on the left" else "right"
    has_boundaries = request.param != "no boundaries"
    return ElmoTokenizer(
        max_word_length=tiny_tokenizer.max_word_length, add_boundaries=has_boundaries, padding_side=side
    )


@pytest.fixture
def mixed_model(tiny_folder: Path) -> ElmoModel:
    """The tiny model, its mix being none of the layers nor their mean."""
    mixed_model = ElmoModel.from_pretrained(tiny_folder)
    mixed_model.scalar_mixes[0].set_weights([0.2, 0.5, 0.3], scale=1.5)
    return mixed_model


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()


@pytest.fixture
def online(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LoopbackHub:
    """This process talks to the loopback Hub."""
    talk_to(hub, tmp_path, monkeypatch)
    return hub
