"""The contract of a saved folder: saved again, and where the package is not installed, it computes the same bits.

The text of this file is also a program, RESULT FOLDER..., for a process that refuses the package; so it imports none of
the package, and no other helper, on top.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

TEXTS = ["The ferry left at noon .", "Yes", "We waited on the quay ."]
SECOND = ["It left early", "He said no , twice , and went", "All day"]
PACKAGE, FOLDER = "elmo_hf", "transformers_modules"


def assert_same_without_the_package(*folders: Path) -> None:
    """Compares outputs, gradients, pipelines and more with those of the folders' own code; each is a round trip too.

    All folders should be called `model`, so that transformers imports their code once. A `sentences.json` beside one
    has the words that it reads.
    """
    from tests.helpers.checkpoints import run_python
    from tests.helpers.fresh_process import without

    result = folders[0].with_name("without.npz")
    program = without(PACKAGE, "conversion", "h5py") + Path(__file__).read_text(encoding="utf-8") + "\nmain()\n"
    run_python(program, folders[0].parent, result, *folders)
    found = dict(np.load(result))
    for number, folder in enumerate(folders):
        expected = numbers_of(folder, PACKAGE)
        assert len(expected) > 2
        for key, array in expected.items():
            # Only the package adds the gradients of the full softmax by blocks.
            is_near = "ElmoForPreTraining" in class_of(folder) and array.dtype.kind == "f"
            other, message = found.pop(f"{number}.{key}"), f"{folder} {key}"
            if is_near:
                np.testing.assert_allclose(other, array, rtol=1e-5, atol=1e-6, err_msg=message)
            else:
                np.testing.assert_array_equal(other, array, err_msg=message)
    assert not found


def assert_roundtrip(folder: Path, home: str = PACKAGE) -> tuple[Any, Any]:
    """Loads a folder, saves it beside itself and loads that: the same files, weights and outputs, by whichever code."""
    model, tokenizer = load(folder, home)
    copy = folder.with_name(f"by {home}") / folder.name
    model.save_pretrained(copy)
    tokenizer.save_pretrained(copy)
    again = load(copy, home)
    parts = (outputs(each, inputs_of(folder, each, words)) for each, words in ((model, tokenizer), again))
    assert all(map(torch.equal, *parts))
    weights = model.state_dict()
    assert weights.keys() == again[0].state_dict().keys()
    assert all(torch.equal(weight, weights[name]) for name, weight in again[0].state_dict().items())
    for path in folder.iterdir():
        if path.suffix in (".json", ".py", ".txt") and path.name != "tokenizer_config.json":  # it says where it was
            assert (copy / path.name).read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), path
    return model, tokenizer


def class_of(folder: Path) -> str:
    return "".join(json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"])


def load(folder: Path, home: str) -> tuple[Any, Any]:
    """A model in evaluation mode and its tokenizer, of the package's classes or of the folder's."""
    auto_class = getattr(transformers, f"Auto{class_of(folder).removeprefix('Elmo').replace('For', 'ModelFor')}")
    loaders = (auto_class, transformers.AutoTokenizer)
    parts = [loader.from_pretrained(folder, trust_remote_code=home == FOLDER) for loader in loaders]
    assert all(type(part).__module__.startswith(f"{home}.") for part in parts), [type(part) for part in parts]
    return parts[0].eval(), parts[1]


def inputs_of(folder: Path, model: Any, tokenizer: Any) -> dict[str, Any]:
    words = folder.with_name("sentences.json")
    texts = [json.loads(words.read_text(encoding="utf-8"))["call1"]] if words.exists() else [TEXTS]
    texts += [SECOND] * takes_pairs(model)
    inputs = dict(tokenizer(*texts, is_split_into_words=words.exists(), padding=True, return_tensors="pt"))
    marks = inputs["attention_mask"].cumsum(dim=1) % 2  # of every other word
    return inputs | ({} if model.config.mark_size is None else {"marks": marks})


def takes_pairs(model: Any) -> bool:
    return model.config.text_pairs or type(model).__name__ == "ElmoForQuestionAnswering"


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


def piped(folder: Path, home: str, model: Any, tokenizer: Any) -> str:
    """What every pipeline that the config names gives, as text."""
    found = {}
    for task in sorted(model.config.custom_pipelines):
        if home == PACKAGE:
            part = model.elmo if task == "feature-extraction" and hasattr(model, "elmo") else model
            run = import_module(PACKAGE).pipeline(task, part, tokenizer, device="cpu")
        else:
            run = transformers.pipeline(task, model=str(folder), trust_remote_code=True, device="cpu")
        pairs = [{"text": one, "text_pair": other} for one, other in zip(TEXTS, SECOND, strict=True)]
        found[task] = str(run(pairs if takes_pairs(model) and task == "text-classification" else TEXTS, batch_size=2))
    return json.dumps(found)


def numbers_of(folder: Path, home: str) -> dict[str, np.ndarray]:
    model, tokenizer = assert_roundtrip(folder, home)
    inputs = inputs_of(folder, model, tokenizer)
    if type(model).__name__ == "ElmoForPreTraining":
        inputs["labels"] = inputs["attention_mask"] * 3
    found: dict[str, list] = {"outputs": outputs(model, inputs), "gradients": gradients(model, inputs)}
    if not folder.with_name("sentences.json").exists():
        # A biLM without dropout can be trained to the same numbers, and exported.
        is_plain = type(model).__name__ == "ElmoModel" and model.config.representation_dropout == 0
        model.gradient_checkpointing_enable()
        found["checkpointed"] = (gradients if is_plain else outputs)(model.train(is_plain), inputs)
        model.gradient_checkpointing_disable()
        model.eval()
        if model.config.mark_size is None:  # pipelines make no marks
            found["pipelines"] = [piped(folder, home, model, tokenizer)]
        if is_plain:
            program = torch.export.export(model, (), kwargs={**inputs, "return_dict": False})
            found["exported"] = tensors(program.module()(**inputs, return_dict=False))
        found["bfloat16"] = outputs(model.to(torch.bfloat16), inputs)
    return {
        f"{what}.{index}": part.detach().float().numpy() if torch.is_tensor(part) else np.array(part)
        for what, parts in found.items()
        for index, part in enumerate(parts)
    }


def main() -> None:
    """Fills RESULT with the numbers of each FOLDER, by its own code."""
    arrays = [numbers_of(Path(folder), FOLDER) for folder in sys.argv[2:]]
    np.savez(
        sys.argv[1], **{f"{index}.{key}": part for index, parts in enumerate(arrays) for key, part in parts.items()}
    )
