"""What saved folders compute, as arrays: run by a process that has this package and by one that refuses it.

    folder_numbers.py SAVED RESULT AGAIN auto|package

Every SAVED/NAME/model is loaded, with the Auto classes and its own code or with the package's classes; what it computes
is kept in RESULT; it is saved once more in AGAIN, loaded from there, and must compute the same.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoTokenizer, pipeline

TEXTS = ["The ferry left at noon .", "Yes", "We waited on the quay ."]
SECOND = ["It left early", "He said no , twice , and went", "All day"]


def load(folder: Path, architecture: str) -> tuple[Any, Any]:
    """A model in evaluation mode and its tokenizer."""
    if sys.argv[4] == "package":
        import elmo_hf

        parts = getattr(elmo_hf, architecture).from_pretrained(folder), elmo_hf.ElmoTokenizer.from_pretrained(folder)
    else:
        auto_class = architecture.replace("ElmoFor", "AutoModelFor").replace("ElmoModel", "AutoModel")
        parts = (
            getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True),
            AutoTokenizer.from_pretrained(folder, trust_remote_code=True),
        )
    home = "elmo_hf." if sys.argv[4] == "package" else "transformers_modules."
    assert all(type(part).__module__.startswith(home) for part in parts), [type(part) for part in parts]
    return parts[0].eval(), parts[1]


def tensors(value: Any) -> list[torch.Tensor]:
    if torch.is_tensor(value):
        return [value]
    return [each for part in value for each in tensors(part)] if isinstance(value, (tuple, list)) else []


def outputs(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    with torch.no_grad():
        options = {"output_hidden_states": True} if type(model).__name__ == "ElmoModel" else {}
        return tensors(model(**inputs, **options).to_tuple())


def gradients(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Of every parameter, for the sum of squares of all that the model gives."""
    model.requires_grad_(True)
    model.zero_grad()
    output = model(**inputs)
    parts = [part for key, part in output.items() if key != "state"]
    sum(part.double().square().sum() for part in tensors(parts) if part.requires_grad).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def piped(folder: Path, model: Any, tokenizer: Any, has_pairs: bool) -> str:
    """What every pipeline that the config names gives, as text."""
    found = {}
    for task in sorted(model.config.custom_pipelines):
        if sys.argv[4] == "package":
            kind = import_module("elmo_hf.pipelines").PIPELINES[task]
            model = load(folder, "ElmoModel")[0] if task == "feature-extraction" else model
            run = pipeline(task, model=model, tokenizer=tokenizer, pipeline_class=kind)
        else:
            run = pipeline(task, model=str(folder), trust_remote_code=True)
        pairs = [{"text": one, "text_pair": other} for one, other in zip(TEXTS, SECOND, strict=True)]
        found[task] = str(run(pairs if has_pairs and task == "text-classification" else TEXTS, batch_size=2))
    return json.dumps(found)


def compute(name: str, folder: Path, copy: Path) -> dict[str, list]:
    """What one folder computes."""
    asked = json.loads((folder.parent / "asked.json").read_text())
    model, tokenizer = load(folder, asked["architecture"])
    texts = [asked.get("sentences", TEXTS), *[SECOND] * asked["has_pairs"]]
    is_split = "sentences" in asked
    inputs = dict(tokenizer(*texts, is_split_into_words=is_split, padding=True, return_tensors="pt"))
    if asked["architecture"] == "ElmoForPreTraining":
        inputs["labels"] = inputs["attention_mask"] * 3
    found: dict[str, list] = {"outputs": outputs(model, inputs)}
    model.save_pretrained(copy)
    tokenizer.save_pretrained(copy)
    reloaded, _ = load(copy, asked["architecture"])
    assert all(map(torch.equal, outputs(reloaded, inputs), found["outputs"])), name
    found["files"] = sorted(path.name for path in copy.glob("*.py"))
    found["gradients"] = gradients(model, inputs)
    if is_split:
        return found
    model.gradient_checkpointing_enable()
    # The biLM alone is made without dropout, so that it can be trained to the same numbers.
    found["checkpointed"] = (gradients if asked.get("graphs") else outputs)(
        model.train(bool(asked.get("graphs"))), inputs
    )
    model.gradient_checkpointing_disable()
    model.eval()
    found["bfloat16"] = outputs(load(folder, asked["architecture"])[0].to(torch.bfloat16), inputs)
    found["pipelines"] = [piped(folder, model, tokenizer, asked["has_pairs"])]
    if asked.get("graphs"):
        program = torch.export.export(model, (), kwargs={**inputs, "return_dict": False})
        found["exported"] = tensors(program.module()(**inputs, return_dict=False))
    return found


def main() -> None:
    """Fills RESULT."""
    saved, result, again = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    arrays: dict[str, np.ndarray] = {}
    for place in sorted(saved.iterdir()):
        for what, values in compute(place.name, place / "model", again / place.name / "model").items():
            assert values, (place.name, what)
            parts = [each.detach().float().numpy() if torch.is_tensor(each) else np.array(each) for each in values]
            arrays |= {f"{place.name}.{what}.{index}": part for index, part in enumerate(parts)}
    np.savez(result, **arrays)


main()
