"""Saving and loading, in every precision that a model loads in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_inputs import assert_outputs_close, random_inputs
from transformers import AutoModel

from elmo_hf import ElmoModel


@pytest.mark.parametrize(
    ("dtype", "tolerance", "options"),
    [
        (torch.float32, 0, {}),
        (torch.float32, 0, {"device_map": "auto"}),
        (torch.float32, 0, {"dtype": "auto"}),
        (torch.float64, 1e-6, {"dtype": torch.float64}),
        (torch.bfloat16, 5e-2, {"dtype": torch.bfloat16}),
        (torch.float16, 5e-3, {"dtype": torch.float16}),
    ],
    ids=str,
)
def test_saving_in_shards_and_loading_gives_the_same_numbers_in_every_precision(
    dtype: torch.dtype, tolerance: float, options: dict[str, Any], tiny_model: ElmoModel, tmp_path: Path
) -> None:
    tiny_model.scalar_mixes[0].set_weights([0.1, 0.6, 0.3], scale=1.5)
    tiny_model.save_pretrained(tmp_path, max_shard_size="1KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    inputs = random_inputs(tiny_model.config, [5, 3]) | {"output_hidden_states": True}
    found, expected = (
        [*output.hidden_states, *output.to_tuple()[:-1]]
        for output in (ElmoModel.from_pretrained(tmp_path, **options).eval()(**inputs), tiny_model(**inputs))
    )
    assert {tensor.dtype for tensor in found} == {dtype}
    assert_outputs_close([tensor.float() for tensor in found], expected, tolerance)


@pytest.mark.parametrize("load", [ElmoModel.from_pretrained, AutoModel.from_pretrained], ids=["own", "auto"])
def test_a_learned_mix_is_loaded_frozen_or_replaced_as_asked(
    tiny_model: ElmoModel, tmp_path: Path, load: Callable[..., ElmoModel]
) -> None:
    tiny_model.scalar_mixes[0].set_weights([0.1, 0.6, 0.3], scale=1.5)
    tiny_model.save_pretrained(tmp_path)

    def mix_of(**config: Any) -> tuple[list[float], float, bool]:
        mix = load(tmp_path, **config).scalar_mixes[0]
        return pytest.approx(mix.weights.tolist(), abs=1e-6), mix.scale.item(), mix.logits.requires_grad

    assert mix_of() == ([0.1, 0.6, 0.3], 1.5, True)
    assert mix_of(scalar_mix_trainable=False) == ([0.1, 0.6, 0.3], 1.5, False)
    assert mix_of(scalar_mix_weights=[0, 0, 1]) == ([0, 0, 1], 1, True)
    assert mix_of(scalar_mix_weights=[0, 0, 1], scalar_mix_trainable=False) == ([0, 0, 1], 1, False)
    replaced = load(tmp_path, scalar_mix_weights=[0.2, 0.3, 0.5])
    replaced.scalar_mixes[0].set_weights([0.7, 0.2, 0.1])
    replaced.save_pretrained(tmp_path)
    assert mix_of() == ([0.7, 0.2, 0.1], 1, True)


def test_loading_can_ask_for_more_representations_and_other_initial_weights(
    tiny_model: ElmoModel, tmp_path: Path
) -> None:
    bilm_only = {name: tensor for name, tensor in tiny_model.state_dict().items() if "scalar_mixes" not in name}
    tiny_model.save_pretrained(tmp_path, state_dict=bilm_only)
    fields = {"num_output_representations": 2, "scalar_mix_weights": [0.2, 0.3, 0.5]}
    model, info = ElmoModel.from_pretrained(tmp_path, output_loading_info=True, **fields)
    assert not info["missing_keys"]
    weights = torch.stack([mix.weights.detach() for mix in model.scalar_mixes])
    assert_outputs_close(weights, torch.tensor([[0.2, 0.3, 0.5]] * 2))
