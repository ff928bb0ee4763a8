"""A saved folder computes the same where torch and transformers have lost the names that they do not document.

`docs/architecture.md` and `model/scan_elmo.py` list these names.
"""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoPreTrainedModel, ElmoTokenizer
from elmo_hf.model import scan_elmo
from elmo_hf.model.configuration_elmo import CODE_FILES
from elmo_hf.model.heads_elmo import LSTM
from tests.helpers import hidden_names
from tests.helpers.checkpoints import run_python
from tests.helpers.fresh_process import without
from tests.helpers.tiny_inputs import TINY

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
SCAN = "torch._higher_order_ops.scan.scan"
TORCH = [
    "torch._C._are_functorch_transforms_active",
    SCAN,
    "torch.utils._pytree._register_namedtuple",
    "torch.cpu._is_amx_tile_supported",
    "torch.cpu._is_avx512_bf16_supported",
    "torch.ops.mkldnn._is_mkldnn_bf16_supported",
    "torch.ops.mkldnn._linear_pointwise",
    "torch.ops.mkldnn._reorder_linear_weight",
    "torch.lstm",
    "torch.get_autocast_dtype",
    "torch.jit.is_tracing",
]
# Attributes of `torch` itself are hidden in a test without a process of its own, because hiding them takes long.
ASKED_EVERYWHERE = {"torch.lstm", "torch.get_autocast_dtype"}
TRANSFORMERS = [
    "transformers.modeling_layers.GradientCheckpointingLayer",
    "transformers.conversion_mapping.register_checkpoint_conversion_mapping",
    "transformers.core_model_loading.ConversionOps",
    "transformers.core_model_loading.WeightConverter",
]
NAMES = [name for name in (*TORCH, *TRANSFORMERS) if name not in ASKED_EVERYWHERE]
# The largest difference, as a part of the largest number. With fewer names, bfloat16 is rounded elsewhere.
TOLERANCES = {"outputs": 1e-6, "exported": 1e-6, "transforms": 1e-5, "autocast": 2**-5, "bfloat16": 2**-5}
OF_TRAINING = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("durable") / "model"
    ElmoForPreTraining(ElmoConfig(**TINY | {"max_word_length": 20}, num_softmax_words=6)).save_pretrained(folder)
    ElmoTokenizer(max_word_length=20).save_pretrained(folder)
    return folder


def computed(folder: Path, exports: bool, *changes: str) -> dict[str, dict[str, Any]]:
    result = folder.with_name("result.json")
    program = Path(hidden_names.__file__).read_text(encoding="utf-8") + "\nmain()\n"
    run_python(without("elmo_hf", "conversion", "h5py") + program, folder.parent, result, folder, exports, *changes)
    return json.loads(result.read_text(encoding="utf-8"))


def assert_same(folder: Path, exports: bool, *changes: str) -> None:
    results = computed(folder, exports, *changes)
    expected = results.pop("")
    assert [*results] == [*changes]
    for change, numbers in results.items():
        if exports and SCAN in change:
            assert "export with torch 2.13" in numbers.pop("exported")
        for what, values in numbers.items():
            wanted = np.array(expected[what])
            difference = np.abs(np.array(values) - wanted).max() / np.abs(wanted).max()
            assert difference <= TOLERANCES.get(what, OF_TRAINING), f"{what} without {change}: {difference}"


def test_a_folder_computes_the_same_without_all_these_names(folder: Path) -> None:
    """It loads, embeds in three precisions and learns in every class."""
    assert_same(folder, False, " ".join(NAMES))


@pytest.mark.slow
def test_a_folder_computes_the_same_without_each_of_these_names(folder: Path) -> None:
    assert_same(folder, True, *NAMES)


def test_without_these_names_of_torch_the_same_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    lstm, inputs = LSTM(3, 2, batch_first=True), torch.randn(4, 5, 3)
    outputs = lstm(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        monkeypatch.delattr(torch, "lstm")
        monkeypatch.delattr(torch, "get_autocast_dtype")
        monkeypatch.delattr(torch.jit, "is_tracing")
        assert scan_elmo.autocast_dtype("cpu") == torch.bfloat16
    assert scan_elmo.autocast_dtype("cpu") is None
    assert not scan_elmo.is_tracing()
    torch.testing.assert_close(lstm(inputs), outputs, rtol=0, atol=1e-6)


def test_a_module_whose_hooks_cannot_be_seen_counts_as_hooked() -> None:
    module = torch.nn.Linear(1, 1)
    assert not scan_elmo.is_hooked(module)
    del module._forward_pre_hooks
    assert scan_elmo.is_hooked(module)


def test_exporting_without_the_scan_operator_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._higher_order_ops.scan", None)
    with pytest.raises(ImportError, match=r"which torch \S+ does not have .* export with torch 2\.13"):
        scan_elmo.scan_operator()


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap, torch.func.functionalize])
def test_a_transform_is_seen_without_asking_torch(transform: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []

    def function(tensor: torch.Tensor) -> torch.Tensor:
        answers.append((scan_elmo.has_transforms(), scan_elmo.is_refused_by_transforms()))
        return tensor.sum()

    function(torch.ones(2))
    transform(function)(torch.ones(2))
    assert answers == [(False, False), (True, True)]


def private_names_of(tree: ast.AST) -> set[str]:
    """The names of torch with a part that begins with an underscore, or that are in the list above."""
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):
            used.add(ast.unparse(node))
    used = {name for name in used if re.fullmatch(r"torch(\.\w+)*\._[a-zA-Z]\w*(\.\w+)*", name) or name in TORCH}
    return {name for name in used if not any(other.startswith(f"{name}.") for other in used)}


def test_only_one_section_uses_private_names_of_torch_and_lists_them() -> None:
    used, used_elsewhere = set(), {}
    for name in CODE_FILES:
        source = Path(scan_elmo.__file__).with_name(name).read_text(encoding="utf-8")
        if name == "scan_elmo.py":
            before, section, after = re.split(
                "^# ---- (?:Private names of torch|A loop over words) -+$", source, flags=re.M
            )
            used = {name.removesuffix(".binary") for name in private_names_of(ast.parse(section))}
            assert [name for name in TORCH if f"# {' ' * 4}{name}" not in section] == []
            source = before + after
        used_elsewhere[name] = private_names_of(ast.parse(source))
    assert used == set(TORCH)
    assert {name: names for name, names in used_elsewhere.items() if names} == {}


@pytest.mark.parametrize("cls", [ElmoConfig, ElmoPreTrainedModel, ElmoModel, ElmoTokenizer])
def test_the_page_lists_the_private_names_of_transformers_that_a_class_replaces(cls: type) -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    own = [name for name in vars(cls) if name.startswith("_") and not name.startswith(("__", "_abc_"))]
    replaced = [name for name in own if any(hasattr(base, name) for base in cls.__mro__[1:-1])]
    assert [name for name in replaced if f"`{name}`" not in page] == []
