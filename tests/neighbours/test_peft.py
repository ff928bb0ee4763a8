"""LoRA without the names of modules: `target_modules="all-linear"`.

PEFT knows default modules only from a table of its own, by `model_type`; nothing in a model or its folder adds to it.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from transformers import AutoModel, TorchAoConfig
from transformers.integrations.peft import MIN_PEFT_VERSION

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.kernels.processor_kernels import ProcessorKernels
from elmo_hf.model.scan_elmo import using
from tests.helpers.neighbours import TEXTS
from tests.helpers.scan_layers import PACKS
from tests.helpers.task_models import make_batch, make_task_model
from tests.helpers.tiny_inputs import TINY, assert_outputs_close

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


def tiny_model_of(dtype: torch.dtype) -> ElmoModel:
    torch.manual_seed(3)
    model = ElmoModel(ElmoConfig(**TINY)).eval()
    for parameter in model.bilm.parameters():
        parameter.data.mul_(3)
    return model.to(dtype)


def adapted_by_two(model: ElmoModel) -> Any:
    """A model with the adapters `default`, which is active, and `other`; both are far from zero."""
    config = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    adapted.add_adapter("other", config)
    return adapted.eval()


def base_weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights beside those of adapters, by their names in a model without adapters."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items() if "lora" not in name}
    return {name.replace("base_layer.", ""): tensor for name, tensor in state.items()}


def vectors_of(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.randint(1, 200, (4, 6, TINY["max_word_length"]), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return model(ids).last_hidden_state.float()


def vectors_of_weights(weights: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """The vectors of a new model, of which no copies are kept."""
    model = tiny_model_of(dtype)
    model.load_state_dict(weights)
    return vectors_of(model)


# Adapters change vectors by more than 0.5. In bfloat16 a merged weight is rounded, and sums have other last bits.
MERGING = pytest.mark.parametrize(
    ("dtype", "multiplies_bfloat16", "tolerance"),
    [(torch.float32, True, 2e-5), (torch.bfloat16, True, 0.05), (torch.bfloat16, False, 0.05)],
)


@MERGING
def test_kept_copies_of_weights_follow_an_adapter_that_is_merged_and_unmerged(
    dtype: torch.dtype, multiplies_bfloat16: bool, tolerance: float
) -> None:
    with using(ProcessorKernels(**PACKS, multiplies_bfloat16=multiplies_bfloat16)):
        model = tiny_model_of(dtype)
        model.pack()
        weights, before = base_weights_of(model), vectors_of(model)
        adapted = adapted_by_two(model)
        active = vectors_of(adapted)
        assert (active - before).abs().max() > 0.5
        adapted.merge_adapter()
        model.pack()
        assert_outputs_close(vectors_of(adapted), active, tolerance)
        assert_outputs_close(vectors_of(adapted), vectors_of_weights(base_weights_of(model), dtype), tolerance)
        with adapted.disable_adapter():  # PEFT unmerges each layer when it runs
            assert_outputs_close(vectors_of(adapted), before, tolerance)
        assert_outputs_close(base_weights_of(model), weights, 0.02)  # what merging and unmerging rounds in bfloat16
        assert_outputs_close(vectors_of(adapted), active, tolerance)


@MERGING
def test_a_model_into_which_adapters_are_merged_equals_a_new_model_of_its_weights(
    dtype: torch.dtype, multiplies_bfloat16: bool, tolerance: float
) -> None:
    with using(ProcessorKernels(**PACKS, multiplies_bfloat16=multiplies_bfloat16)):
        model = tiny_model_of(dtype)
        model.pack()
        before = vectors_of(model)
        adapted = adapted_by_two(model)
        adapted.base_model.set_adapter(["default", "other"])
        both = vectors_of(adapted)
        merged = adapted.merge_and_unload()
        assert merged is model
        expected = vectors_of_weights(base_weights_of(merged), dtype)
        assert vectors_of(merged).equal(expected)
        merged.pack()
        assert_outputs_close(vectors_of(merged), expected, tolerance)
        assert_outputs_close(expected, both, tolerance)
        assert (both - before).abs().max() > 0.5


def test_an_adapter_is_merged_into_weights_in_eight_bits(folder: Path) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    in_eight_bits = TorchAoConfig(torchao.Int8WeightOnlyConfig())
    model = ElmoModel.from_pretrained(folder, quantization_config=in_eight_bits).eval()
    inputs = ElmoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    torch.manual_seed(3)
    config = peft.LoraConfig(r=2, target_modules=["input_linear", "recurrent_linear"], init_lora_weights=False)
    with torch.no_grad():
        before = model(**inputs).last_hidden_state
        adapted = peft.get_peft_model(model, config).eval()
        active = adapted(**inputs).last_hidden_state
        merged = adapted.merge_and_unload()
        found = merged(**inputs).last_hidden_state
    assert all(layer.can_scan_fast() for layer in merged.bilm.layers)
    assert (active - before).norm() > 0.1 * before.norm()
    assert (found - active).norm() < 0.02 * active.norm()  # merged weights are rounded to eight bits again
