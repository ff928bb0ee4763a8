"""An ELMo that keeps each batch row's LSTM state from call to call, as AllenNLP, bilm-tf and DeepPavlov do.

Row r starts from the final state of row r in the previous call, or from zeros if no earlier batch had that many rows.
After a smaller batch, the states of the other rows are kept for later calls. Use this class for code written for those
libraries; `ElmoModel` itself takes and returns its state and keeps none.
"""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from .public import BiLMState


class StatefulElmo(nn.Module):
    """An `ElmoModel` that keeps its state between calls.

    Attributes:
        model: the model.
        stateful: whether calls read and update the kept state; if False, every call starts from zeros.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Starts without a state."""
        super().__init__()
        self.model = model
        self.stateful = True
        self._states: dict[str, BiLMState] = {}

    def reset_states(self) -> None:
        """Forgets the state of earlier calls, in every stream."""
        self._states = {}

    def forward(self, attention_mask: Tensor, stream: str = "", **inputs: Any) -> Any:
        """Runs the model and returns its output with all layers.

        Args:
            attention_mask: `(B, T)`.
            stream: the name of a stream; calls with the same stream share a state.
            **inputs: the model's other inputs.
        """
        before = self._states.get(stream) if self.stateful else None
        if before is not None:
            before = BiLMState(*(tensor.to(attention_mask.device) for tensor in before))
        output = self.model(
            attention_mask=attention_mask,
            state=None if before is None else before.resize(len(attention_mask)),
            output_hidden_states=True,
            **inputs,
        )
        if self.stateful:
            self._states[stream] = output.state if before is None else before.update(output.state)
        return output
