"""LoRA without the names of modules: `target_modules="all-linear"`.

PEFT knows default modules only from a table of its own, by `model_type`; nothing in a model or its folder adds to it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from transformers import AutoModel
from transformers.integrations.peft import MIN_PEFT_VERSION

from elmo_hf import ElmoModel, ElmoTokenizer
from tests.helpers.neighbours import TEXTS
from tests.helpers.task_models import make_batch, make_task_model
from tests.helpers.tiny_inputs import assert_outputs_close

peft = pytest.importorskip("peft")
# A transformers may be released before the PEFT that its own adapters need.
needs_its_peft = pytest.mark.skipif(
    Version(peft.__version__) < Version(MIN_PEFT_VERSION),
    reason=f"adapters of this transformers need PEFT {MIN_PEFT_VERSION}, and {peft.__version__} is installed",
)


def test_all_linear_adapts_every_linear_layer_and_the_adapter_is_saved(folder: Path, tmp_path: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    before = model(**inputs).pooler_output
    names = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear")).eval()
    assert set(adapted.base_model.targeted_module_names) == names
    assert_outputs_close(adapted(**inputs).pooler_output, before)
    optimizer = torch.optim.SGD([each for each in adapted.parameters() if each.requires_grad], lr=0.1)
    for _ in range(2):  # in the first step only B learns, because B starts from zeros
        optimizer.zero_grad()
        adapted(**inputs).pooler_output.square().sum().backward()
        optimizer.step()
    learnt = {name: each for name, each in adapted.named_parameters() if each.requires_grad}
    assert len(learnt) == 2 * len(names)
    assert all(each.any() and each.grad.any() for each in learnt.values())
    after = adapted(**inputs).pooler_output
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(ElmoModel.from_pretrained(folder), tmp_path).eval()
    assert again(**inputs).pooler_output.equal(after)
    assert (after - before).abs().max() > 0.01


@needs_its_peft
def test_an_adapter_of_transformers_itself_is_saved_alone_and_loaded_by_every_way(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    before = model(**inputs).pooler_output
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["input_linear"], init_lora_weights=False))
    after = model(**inputs).pooler_output
    assert (after - before).abs().max() > 0.01
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    with_adapter = ElmoModel.from_pretrained(folder)
    with_adapter.load_adapter(str(tmp_path))
    for loaded in (
        with_adapter.eval(),
        ElmoModel.from_pretrained(tmp_path),
        AutoModel.from_pretrained(tmp_path, trust_remote_code=True),
    ):
        assert loaded(**inputs).pooler_output.equal(after)


@pytest.mark.parametrize(
    ("task", "task_type", "exclude"),
    [
        ("classification", "SEQ_CLS", None),
        # PEFT trains the classifier whole, and would adapt it too, in which it fails, as with BERT.
        ("labelling", "TOKEN_CLS", ["classifier"]),
        ("questions", "QUESTION_ANS", ["qa_outputs"]),
    ],
)
def test_all_linear_adapts_a_model_for_a_task_beside_its_classifier(task: str, task_type: str, exclude: Any) -> None:
    config = peft.LoraConfig(r=2, target_modules="all-linear", task_type=task_type, exclude_modules=exclude)
    adapted = peft.get_peft_model(make_task_model(task), config)
    adapted(**make_batch(task)).loss.backward()
    learnt = {name for name, each in adapted.named_parameters() if each.grad is not None and each.grad.any()}
    assert {name for name in learnt if "lora" not in name} == {
        name for name, each in adapted.named_parameters() if each.requires_grad and "lora" not in name
    }
    for layer in range(2):
        for direction in ("forward", "backward"):
            assert any(f"bilm.layers.{layer}.{direction}_lstm.recurrent_linear.lora_B" in name for name in learnt)
