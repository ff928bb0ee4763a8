"""Shared fixtures: a tiny model with all sizes different, the golden cases, and the folder of third-party fixtures."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from elmo_hf import ElmoConfig, ElmoModel

FIXTURES = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).parents[2] / "shared"

# Each carries real AllenNLP numbers; see fixtures/README.md.
GOLDEN_CASES = [
    "base_2l_relu",
    "tight_clip_2l_tanh",
    "one_layer_n261_batch1",
    "three_layer_nohighway_noclip",
    "four_layer",
    "char_edges",
    "noskip_2l_long",
    "ext_max_chars_24",
]


def shared(*parts: str) -> Path:
    """A path below ../shared; the test is skipped where that folder is not."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs {path}, which is not part of this project")
    return path


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(20180608)


@pytest.fixture
def tiny_config() -> ElmoConfig:
    """A config in which no two sizes are equal."""
    return ElmoConfig(
        max_word_length=11,
        char_embedding_size=5,
        char_filters=[[1, 3], [2, 4], [3, 6]],
        num_highway_layers=1,
        projection_size=7,
        cell_size=9,
        num_hidden_layers=2,
        cell_clip=0.6,
        projection_clip=0.4,
    )


@pytest.fixture
def tiny_model(tiny_config: ElmoConfig) -> ElmoModel:
    """A model whose weights are large enough for both clips to act."""
    model = ElmoModel(tiny_config).eval()
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(3)
    return model


def random_inputs(config: ElmoConfig, lengths: list[int], seed: int = 3) -> dict[str, torch.Tensor]:
    """Random rows of characters, padded on the right: `input_ids` (B, T, C) and `attention_mask` (B, T)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 257, (len(lengths), max(lengths), config.max_word_length), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": ids * mask.unsqueeze(-1), "attention_mask": mask.long()}
