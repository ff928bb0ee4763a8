"""What each of two processes does in `test_sharded_training.py`: they train a classifier.

Each process reads its own half of a batch, so the two see the batch as one process does.
"""

import copy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from elmo_hf.model.layers_elmo import BiLMLayer, CharacterCNN
from tests.helpers.task_models import make_batch, make_task_model

STEPS = 3
RATE = 0.1


def wrapped(model: nn.Module, version: int) -> nn.Module:
    """The model under the first or the second version of FSDP, wrapped part by part as accelerate does."""
    if version == 1:
        policy = ModuleWrapPolicy({CharacterCNN, BiLMLayer})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True
        )
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for part in (model.elmo.token_encoder, *model.elmo.bilm.layers, model):
        fully_shard(part, mesh=mesh)
    return model


def whole_weights(model: nn.Module, version: int) -> dict[str, Tensor]:
    """All weights by the names of the model without FSDP."""
    if version == 1:
        with FullyShardedDataParallel.summon_full_params(model):
            names = (name.replace("_fsdp_wrapped_module.", "") for name, _ in model.named_parameters())
            tensors = [parameter.detach().clone() for parameter in model.parameters()]
            return dict(zip(names, tensors, strict=True))
    weights = {}
    for name, parameter in model.named_parameters():
        assert isinstance(parameter, DTensor)
        weights[name] = parameter.full_tensor().detach().clone()
    return weights


def train(model: nn.Module, batches: list[dict[str, Tensor]]) -> None:
    """Descends the mean of the batches' losses."""
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = [model(**batch).loss for batch in batches]
        torch.stack(losses).mean().backward()
        optimizer.step()


def main(folder: Path) -> None:
    """Trains under each version of FSDP, and compares the weights with those of one process."""
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    batches = [make_batch("classification", rows=slice(row, row + 1)) for row in (0, 1)]
    start = make_task_model("classification", freeze_bilm=False, representation_dropout=0.0).train()
    whole = copy.deepcopy(start)
    train(whole, batches)
    for version in (1, 2):
        model = wrapped(copy.deepcopy(start), version)
        train(model, [batches[rank]])
        weights = whole_weights(model, version)
        for name, expected in whole.named_parameters():
            # Sums of the two gradients are taken in another order.
            torch.testing.assert_close(weights[name], expected.detach(), rtol=1e-4, atol=1e-6)
        scale = "elmo.scalar_mixes.0.scale"
        assert not weights[scale].equal(start.get_parameter(scale))
    (folder / f"done-{rank}").touch()


def train_uneven(folder: Path) -> None:
    """Trains where one process has three batches and the other one, and compares the weights with those of one process.

    DDP divides the sum of the gradients by the number of processes, also when a process has no more batches.
    """
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    rows = [[0, 1, 2], [1]]
    start = make_task_model("classification", freeze_bilm=False, representation_dropout=0.0).train()
    whole = copy.deepcopy(start)
    optimizer = torch.optim.SGD(whole.parameters(), lr=RATE)
    for step in range(3):
        optimizer.zero_grad()
        for rows_of_rank in rows:
            if step < len(rows_of_rank):
                (loss_of_row(whole, rows_of_rank[step]) / 2).backward()
        optimizer.step()
    model = DistributedDataParallel(copy.deepcopy(start))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with Join([model]):
        for row in rows[rank]:
            optimizer.zero_grad()
            loss_of_row(model, row).backward()
            optimizer.step()
    for name, expected in whole.named_parameters():
        # Sums of the two gradients are taken in another order.
        torch.testing.assert_close(model.module.get_parameter(name), expected, rtol=1e-4, atol=1e-6)
    assert not whole.classifier.weight.equal(start.classifier.weight)
    (folder / f"done-{rank}").touch()


def loss_of_row(model: nn.Module, row: int) -> Tensor:
    """The loss of one text."""
    loss: Tensor = model(**make_batch("classification", rows=slice(row, row + 1))).loss
    return loss
