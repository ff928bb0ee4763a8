"""What `BatchLayout` derives from a batch: once for all layers, and copied once to each device."""

from typing import Any

import pytest
import torch
from scan_layers import LENGTHS, B, H, P, T, mask_of
from torch import Tensor

from elmo_hf import ElmoConfig
from elmo_hf.model.bilm import BiLM
from elmo_hf.scan import reading_order as reading_order_module
from elmo_hf.scan.path import scan_path
from elmo_hf.scan.reading_order import BatchLayout, reading_order


def test_all_layers_share_one_reading_order(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []

    def counted(mask: Tensor, *arguments: Any) -> Any:
        masks.append(mask)
        return reading_order(mask, *arguments)

    monkeypatch.setattr(reading_order_module, "reading_order", counted)
    bilm = BiLM(ElmoConfig(projection_size=P, cell_size=H, num_hidden_layers=3))
    mask = mask_of(LENGTHS["padded"])
    with scan_path("packed"):
        for batch in (1, 2):
            outputs, _ = bilm(torch.randn(B, T, P), mask)
            assert (len(outputs), len(masks)) == (4, batch)


def test_mask_and_resets_are_copied_to_another_device() -> None:
    mask, device = mask_of(LENGTHS["padded"]), torch.device("meta")
    layout = BatchLayout(mask, (mask, ~mask))
    copy = layout.on(device)
    assert copy.on(device) is copy
    assert layout.on(mask.device) is layout
    assert [tensor.device for tensor in (copy.mask, *copy.resets)] == [device] * 3
