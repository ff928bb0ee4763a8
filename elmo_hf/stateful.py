"""An ELMo that carries each batch row's LSTM state from call to call, as AllenNLP, bilm-tf and DeepPavlov do.

Row r starts from the final state of row r in the previous call, or from zeros if no earlier batch had that many rows.
The states of rows beyond a smaller batch are kept for later calls. Use this for code written for those libraries;
`ElmoModel` itself takes and returns its state and keeps none.
"""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from .model.bilm import BiLMState


class StatefulElmo(nn.Module):
    """An `ElmoModel` that keeps its state between calls.

    Attributes:
        model: the model.
        stateful: whether calls read and update the kept state; if False, every call starts from zeros.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        """Starts without a state; a `ValueError` if the model has one direction, as none in those libraries has."""
        super().__init__()
        if not model.config.bidirectional:
            raise ValueError(
                "the models of AllenNLP, bilm-tf and TF-Hub read in two directions, found `bidirectional=False`; use "
                "`ElmoModel` itself, which takes and returns its state."
            )
        self.model = model
        self.stateful = True
        self._state: BiLMState | None = None
        self._stream = ""
        self._states: dict[str, BiLMState | None] = {}

    def reset_states(self) -> None:
        """Forgets the state of earlier calls, in every stream."""
        self._state = None
        self._states = {}

    def switch_to(self, stream: str) -> None:
        """Goes on with the state of another stream of calls; the present one's is kept until it is switched to."""
        self._states[self._stream] = self._state
        self._stream, self._state = stream, self._states.get(stream)

    def forward(self, attention_mask: Tensor, **inputs: Any) -> Any:
        """Runs the model with `attention_mask` `(B, T)` and returns its output with all layers."""
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
