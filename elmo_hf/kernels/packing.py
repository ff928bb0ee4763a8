"""Keeps a second copy of large weights in a layout that is faster (`PackedProducts`)."""

from torch import nn

from ..model.layers_elmo import BiLMLayer
from ..model.scan_elmo import kernels
from .processor_kernels import ProcessorKernels


def pack(model: nn.Module) -> None:
    """Packs W_h and W_p of the layers whose directions run one after the other, where that is faster.

    Call it again after changing weights; until then the changed weights are used unpacked.
    """
    chosen = kernels()
    assert isinstance(chosen, ProcessorKernels)
    layers = [layer for layer in model.modules() if isinstance(layer, BiLMLayer) and layer.can_scan_fast()]
    for lstms in (layer.lstms for layer in layers):
        if chosen.at_once([lstm.weights() for lstm in lstms]) == 1:
            for linear in (linear for lstm in lstms for linear in (lstm.recurrent_linear, lstm.projection)):
                if linear is not None:
                    chosen.pack(linear.weight)
