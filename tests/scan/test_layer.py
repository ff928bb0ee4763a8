"""What `BatchLayout` derives from a batch: once for all layers, and copied once to each device."""

import torch
from scan_layers import LENGTHS, B, H, P, T, mask_of

from elmo_hf import ElmoConfig
from elmo_hf.model.bilm import BiLM
from elmo_hf.scan.reading_order import BatchLayout


def test_all_layers_share_one_reading_order() -> None:
    bilm, layouts = BiLM(ElmoConfig(projection_size=P, cell_size=H, num_hidden_layers=3)), []
    for layer in bilm.layers:
        layer.register_forward_pre_hook(lambda _, arguments: layouts.append(arguments[1]))
    bilm(torch.randn(B, T, P), mask_of(LENGTHS["padded"]))
    assert layouts == [layouts[0]] * 3
    assert layouts[0].order is layouts[0].order


def test_mask_and_resets_are_copied_to_another_device() -> None:
    mask, device = mask_of(LENGTHS["padded"]), torch.device("meta")
    layout = BatchLayout(mask, (mask, ~mask))
    copy = layout.on(device)
    assert copy.on(device) is copy
    assert layout.on(mask.device) is layout
    assert [tensor.device for tensor in (copy.mask, *copy.resets)] == [device] * 3
