"""Keeps a second copy of large weights in a layout that is faster, and puts the weights into huge pages."""

from torch import nn

from ..model.layers_elmo import BiLMLayer
from ..model.scan_elmo import current_kernels
from .processor_kernels import ProcessorKernels


def pack(model: nn.Module) -> None:
    """Packs W_h and W_p of the layers whose directions run one after the other (`ProcessorKernels.pack`).

    Call it again after changing weights; until then the changed weights are used unpacked.
    """
    kernels = current_kernels()
    assert isinstance(kernels, ProcessorKernels)
    for layer in model.modules():
        if not isinstance(layer, BiLMLayer) or not layer.can_scan_fast():
            continue
        weights = [lstm.weights() for lstm in layer.lstms]
        if kernels.scan_for(weights[0]).directions_per_step(weights) > 1:
            continue
        for lstm in layer.lstms:
            kernels.pack(lstm.recurrent_linear.weight)
            if lstm.projection is not None:
                kernels.pack(lstm.projection.weight)
