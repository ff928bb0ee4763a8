"""What old code does with AllenNLP's `Elmo`, as functions that take the class: AllenNLP's own, or the drop-in's.

`tests/fixtures/allennlp_parts/make.py` records what they return with AllenNLP 2.10.1, so this file imports only torch
and runs in Python 3.9 with torch 1.12 too. An `Elmo` here is one of the files, without dropout and state.
"""

import copy
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SENTENCES = [["The", "bank"], ["He"]]
BILM = "_elmo_lstm"
CHARACTERS = "_elmo_lstm._token_embedder"
LSTM = "_elmo_lstm._elmo_lstm"
# The parts that are documented, each by its path from an `Elmo`.
PARTS = [
    BILM,
    CHARACTERS,
    f"{CHARACTERS}.char_conv_0",
    f"{CHARACTERS}.char_conv_2",
    f"{CHARACTERS}._highways",
    f"{CHARACTERS}._highways._layers",
    f"{CHARACTERS}._highways._layers.1",
    f"{CHARACTERS}._projection",
    LSTM,
    f"{LSTM}.forward_layer_0",
    f"{LSTM}.backward_layer_0",
    f"{LSTM}.forward_layer_1",
    f"{LSTM}.backward_layer_1",
    f"{LSTM}.backward_layer_0.input_linearity",
    f"{LSTM}.forward_layer_1.state_linearity",
    f"{LSTM}.backward_layer_1.state_projection",
    "scalar_mix_0",
    "scalar_mix_0.scalar_parameters",
]
# Words to cache, and a batch of their numbers.
WORDS = ["<pad>", "the", "bank", "sat"]
NUMBERS = [[1, 2, 3], [2, 0, 0]]
NUM_STEPS = 5
Make = Callable[[], Any]  # makes an `Elmo` that trains
Batch = Tensor  # ids of `SENTENCES`


def no_state(elmo: Any) -> Any:
    """Switches the state off."""
    elmo._elmo_lstm._elmo_lstm.stateful = False
    return elmo


def vectors_of(elmo: Any, ids: Batch) -> Tensor:
    """The first mix, `(B, T, 2P)`."""
    return elmo(ids)["elmo_representations"][0]


def loss_of(elmo: Any, ids: Batch) -> Tensor:
    return (vectors_of(elmo, ids) ** 2).mean()


def part_of(elmo: Any, name: str) -> Any:
    for attribute in name.split("."):
        elmo = getattr(elmo, attribute)
    return elmo


def below(name: str, state: Any) -> dict[str, Tensor]:
    """The entries of a state dict below a part, by their names in it."""
    return {key[len(name) + 1 :]: tensor for key, tensor in state.items() if key.startswith(f"{name}.")}


def change(tensors: list[Tensor]) -> None:
    """Halves numbers, and adds another number to each tensor, because those of a mix are zero at first."""
    for index, tensor in enumerate(tensors):
        tensor.data *= 0.5
        tensor.data += 0.1 * index


# What is done with each part; each returns the `Elmo` that results.


def replace(make: Make, name: str, ids: Batch, state: Any) -> Any:
    """Puts a copy of the part with other numbers in its place."""
    elmo = make()
    changed = copy.deepcopy(part_of(elmo, name))
    change(list(changed.parameters()))
    parent, _, last = name.rpartition(".")
    setattr(part_of(elmo, parent) if parent else elmo, last, changed)
    return elmo


def load(make: Make, name: str, ids: Batch, state: Any) -> Any:
    """Loads the part alone from a state dict of the whole."""
    elmo = make()
    part_of(elmo, name).load_state_dict(below(name, state))
    return elmo


def replicate(make: Make, name: str, ids: Batch, state: Any) -> Any:
    """Changes the part of the second of two replicas, as `nn.DataParallel` makes them, but all on the CPU."""
    _, replica = replicas(make())
    tensors = []
    for module in part_of(replica, name).modules():
        values = [*vars(module).values(), *module._parameters.values()]
        tensors += [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]
    change(tensors)
    return replica


def replicas(elmo: Any) -> Any:
    """Two replicas of a module by torch, with copies of tensors in place of a broadcast to GPUs."""
    replication: Any = importlib.import_module("torch.nn.parallel.replicate")
    get_device_index = replication._get_device_index
    broadcast = replication._broadcast_coalesced_reshape
    try:
        replication._get_device_index = lambda device, *arguments: device
        replication._broadcast_coalesced_reshape = copies_of
        return replication.replicate(elmo, [0, 1])
    finally:
        replication._get_device_index = get_device_index
        replication._broadcast_coalesced_reshape = broadcast


def copies_of(tensors: Any, devices: Any, detach: bool = False) -> Any:
    return [[tensor.clone() for tensor in tensors] for _ in devices]


def decay(make: Make, name: str, ids: Batch, state: Any) -> Any:
    """Takes one step that trains only the part, with weight decay."""
    elmo = make()
    optimizer = torch.optim.SGD(part_of(elmo, name).parameters(), lr=0.1, weight_decay=0.5)
    loss_of(elmo, ids).backward()
    optimizer.step()
    return elmo


def freeze(make: Make, name: str, ids: Batch, state: Any) -> Any:
    """Takes one step after the part was frozen by the names of its parameters."""
    elmo = make()
    for key, parameter in elmo.named_parameters():
        if key.startswith(f"{name}."):
            parameter.requires_grad = False
    optimizer = torch.optim.SGD([parameter for parameter in elmo.parameters() if parameter.requires_grad], lr=0.1)
    loss_of(elmo, ids).backward()
    optimizer.step()
    return elmo


OPERATIONS: dict[str, Callable[[Make, str, Batch, Any], Any]] = {
    "replace": replace,
    "load": load,
    "replicate": replicate,
    "decay": decay,
    "freeze": freeze,
}


# What is done with the whole.


class Training:
    """Fine-tunes with Adam; `state` and `optimizer` can be saved and loaded."""

    def __init__(self, elmo: Any, ids: Batch) -> None:
        self.elmo = elmo
        self.ids = ids
        parameters = [parameter for parameter in elmo.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def steps(self, count: int) -> list[float]:
        """The loss before each step."""
        losses = []
        for _ in range(count):
            loss = loss_of(self.elmo, self.ids)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses


class Wrapped(nn.Module):
    """A module around an LSTM, as old code puts one there."""

    def __init__(self, lstm: Any) -> None:
        super().__init__()
        self.lstm = lstm

    def forward(self, inputs: Tensor, mask: Tensor) -> Any:
        return 2 * self.lstm(inputs, mask)


LSTM_SIZES = {"input_size": 5, "hidden_size": 8, "cell_size": 16}
LIMITS = {"memory_cell_clip_value": 0.3, "state_projection_clip_value": 0.2}


def waves(*shape: int) -> Tensor:
    """Numbers of all kinds that every torch computes alike."""
    return torch.arange(torch.Size(shape).numel()).double().sin().float().reshape(shape)


def fill(module: nn.Module) -> None:
    for index, parameter in enumerate(module.parameters()):
        parameter.data = waves(*parameter.shape) * 0.1 * (1 + index % 3)


def lstm_by_itself(make_lstm: Any) -> list[Tensor]:
    """The layers of two calls of an LSTM that was made by hand, and its state after them."""
    lstm = make_lstm(num_layers=2, **LSTM_SIZES, **LIMITS)
    fill(lstm)
    mask = torch.arange(4) < torch.tensor([2, 4, 3]).unsqueeze(1)
    first = lstm(waves(3, 4, 5), mask)
    second = lstm(-waves(2, 4, 5), mask[:2])
    return [first, second, *lstm._states]


def direction_by_itself(make_cell: Any) -> list[Tensor]:
    """The outputs and the last state of a backward direction; the longer text is the first, as AllenNLP needs."""
    cell = make_cell(go_forward=False, **LSTM_SIZES, **LIMITS)
    fill(cell)
    outputs, state = cell(waves(2, 4, 5), [4, 2], (waves(1, 2, 8) * 0.1, waves(1, 2, 16) * 0.1))
    return [outputs, *state]


def tied_softmax(elmo: Any) -> Tensor:
    """The loss of a softmax over the cached words whose matrix is their table."""
    numbers = torch.tensor(NUMBERS)
    table = elmo._elmo_lstm._word_embedding.weight
    logits = elmo(numbers, numbers)["elmo_representations"][0] @ torch.cat([table, table], dim=1).T
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), numbers[:, 1:].flatten(), ignore_index=0)
