"""Inputs and configs of tiny models, and a comparison of outputs."""

from typing import Any

import torch

from elmo_hf import ElmoConfig

# No two sizes are equal.
TINY: dict[str, Any] = {
    "max_word_length": 11,
    "char_embedding_size": 5,
    "char_filters": [[1, 3], [2, 4], [3, 6]],
    "num_highway_layers": 1,
    "projection_size": 7,
    "cell_size": 9,
    "num_hidden_layers": 2,
    "cell_clip": 0.6,
    "projection_clip": 0.4,
}


def random_inputs(config: ElmoConfig, lengths: list[int], seed: int = 3) -> dict[str, torch.Tensor]:
    """Random texts, padded on the right: `input_ids` (B, T, C) and `attention_mask` (B, T)."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 257, (len(lengths), max(lengths), config.max_word_length), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return {"input_ids": ids * mask.unsqueeze(-1), "attention_mask": mask.long()}


def word_config(**fields: Any) -> ElmoConfig:
    """Config of a tiny model with 18 input words."""
    return ElmoConfig(token_encoder="word_embedding", vocab_size=19, projection_size=7, cell_size=9, **fields)


def assert_outputs_close(actual: Any, expected: Any, tolerance: float = 1e-6) -> None:
    """Compares tensors, or tuples and dicts of them, absolutely."""
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)
