"""An ELMo with a memory: the LSTM state of each batch row goes from call to call, as in AllenNLP, bilm-tf and TF-Hub.

Row r of a call starts from the state that row r of the call before left. Rows beyond the earlier batch start from
zeros; rows beyond a smaller batch keep theirs and serve again later. This is for code that was written against those
libraries: `ElmoModel` itself has its state as input and output, and none otherwise.
"""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from .model.lstmp import BiLMState


class StatefulElmo(nn.Module):
    """An `ElmoModel` that remembers.

    Attributes:
        model: the model.
        stateful: whether the state is carried on; if False every call starts from zeros and leaves the memory alone.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Starts without a memory."""
        super().__init__()
        self.model = model
        self.stateful = True
        self._state: BiLMState | None = None

    def reset_states(self) -> None:
        """Forgets what earlier calls left."""
        self._state = None

    def forward(self, attention_mask: Tensor, **inputs: Any) -> Any:
        """Runs the model on a batch with `attention_mask` `(B, T)`: all layers, and its other outputs."""
        before = None
        if self.stateful and self._state is not None:
            before = BiLMState(*(tensor.to(attention_mask.device) for tensor in self._state))
        output = self.model(
            attention_mask=attention_mask,
            state=None if before is None else before.resize(len(attention_mask)),
            output_hidden_states=True,
            **inputs,
        )
        if self.stateful:
            self._state = output.state if before is None else before.update(output.state)
        return output
