"""What a saved folder computes where torch and transformers lack names, as a later version may.

The text of this file is also a program, RESULT FOLDER EXPORTS NAMES..., for a process that refuses the package; so it
imports none of the package, and no other helper.
"""

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers

HOME = "transformers_modules"
HEADS = {
    "SequenceClassification": {"num_labels": 2},
    "TokenClassification": {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "use_crf": True, "task_encoder": "lstm"},
    "QuestionAnswering": {"task_encoder": "lstm"},
    "PreTraining": {},
    "CausalLM": {},
}
TEXTS = ["The bank of the river.", "Yes."] * 5  # as many vectors as oneDNN multiplies


def is_asked_by_folder(frame: Any) -> bool:
    return frame.f_globals.get("__name__", "").startswith(HOME)


@contextmanager
def hidden(names: list[str]) -> Iterator[None]:
    """Whoever of a folder's code asks for one of these attributes learns that there is none."""
    by_owner: dict[str, set[str]] = {}
    for name in names:
        owner, _, attribute = name.rpartition(".")
        by_owner.setdefault(owner, set()).add(attribute)
    undo = [hide(owner, attributes) for owner, attributes in by_owner.items()]
    try:
        yield
    finally:
        for owner, name, value in undo:
            setattr(owner, name, value)


def hide(path: str, names: set[str]) -> tuple[Any, str, Any]:
    """Hides attributes of a module or of torch's operators; returns what to set again."""

    def refuse(name: str, frame: Any) -> None:
        if name in names and is_asked_by_folder(frame):
            raise AttributeError(f"{path} has no attribute {name!r}")

    if path.startswith("torch.ops."):
        owner: Any = getattr(torch.ops, path.rpartition(".")[2])
        for name in names:
            vars(owner).pop(name, None)
    else:
        owner = importlib.import_module(path)
    base = type(owner)

    class Without(base):  # type: ignore[misc, valid-type]
        def __getattribute__(self, name: str) -> Any:
            refuse(name, sys._getframe(1))
            return base.__getattribute__(self, name)

        def __getattr__(self, name: str) -> Any:
            refuse(name, sys._getframe(1))
            return base.__getattr__(self, name)

    if not hasattr(base, "__getattr__"):
        del Without.__getattr__
    owner.__class__ = Without
    return owner, "__class__", base


def load(auto_class: str, folder: str, **fields: Any) -> Any:
    """A model of the folder's code, in which also small weights are multiplied as large ones are."""
    torch.manual_seed(0)
    model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True, **fields)
    scans = sys.modules[type(model).__module__.rpartition(".")[0] + ".scan_elmo"]
    repays = dict.fromkeys((torch.float32, torch.bfloat16), 1)
    scans.Kernels.default = scans.Kernels(joint_bytes=0, large_bytes=0, repays=repays)
    return model


def trained(head: str, folder: str, inputs: dict[str, Any], pairs: dict[str, Any]) -> list[float]:
    """The losses of a model before and after a step."""
    model = load(f"AutoModelFor{head}", folder, **HEADS[head]).eval()
    mask = inputs["attention_mask"]
    if head == "SequenceClassification":
        inputs = inputs | {"labels": torch.arange(len(mask)) % 2}
    elif head == "QuestionAnswering":
        first = torch.full((2,), pairs["input_ids"].shape[1] - 3)
        inputs = pairs | {"start_positions": first, "end_positions": first + 1}
    elif head == "TokenClassification":
        inputs = inputs | {"labels": torch.where(mask == 1, 1, -100)}
    else:
        inputs = inputs | {"labels": mask * 3}
    optimizer = torch.optim.SGD(model.requires_grad_(True).parameters(), lr=0.1)
    losses = []
    for _ in range(2):
        loss = model(**inputs).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    return losses


def gradient_by_transforms(model: Any, inputs: dict[str, Any]) -> list[float]:
    def loss(parameters: dict[str, Any]) -> Any:
        return torch.func.functional_call(model, parameters, kwargs=inputs).last_hidden_state.square().mean()

    gradients = torch.func.grad(loss)({name: each.detach() for name, each in model.named_parameters()})
    return [gradient.abs().sum().item() for gradient in gradients.values()]


def numbers_of(folder: str, exports: bool) -> dict[str, Any]:
    """What the folder computes, freshly imported."""
    for name in [name for name in sys.modules if name.startswith(f"{HOME}.")]:
        del sys.modules[name]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    pairs = dict(tokenizer(TEXTS[:1] * 2, TEXTS[:1] * 2, padding=True, return_tensors="pt"))
    results: dict[str, Any] = {}
    with torch.no_grad():
        model = load("AutoModel", folder).eval()
        results["outputs"] = model(**inputs).representations.flatten().tolist()
        with torch.autocast("cpu", torch.bfloat16):
            results["autocast"] = model(**inputs).last_hidden_state.float().flatten().tolist()
        half = load("AutoModel", folder, dtype=torch.bfloat16).eval()
        results["bfloat16"] = half(**inputs).last_hidden_state.float().flatten().tolist()
    results["transforms"] = gradient_by_transforms(model, inputs)
    for head in HEADS:
        results[head] = trained(head, folder, inputs, pairs)
    if not exports:
        return results
    try:
        program = torch.export.export(model, (), kwargs={**inputs, "return_dict": False}).module()
        results["exported"] = program(**inputs, return_dict=False)[0].flatten().tolist()
    except ImportError as error:
        results["exported"] = str(error)
    return results


def main() -> None:
    """Writes to RESULT what the FOLDER computes with every name, and then without each of the NAMES ("a b": both)."""
    result, folder, exports, *changes = sys.argv[1:]
    results = {}
    for change in ("", *changes):
        with hidden(change.split()):
            results[change] = numbers_of(folder, exports == "True")
    with open(result, "w", encoding="utf-8") as file:
        json.dump(results, file)
