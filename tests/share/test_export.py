"""Exported files give the model's numbers, for any number of texts and words, by name, and stand there whole or not."""

import copy
import re
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from torch import Tensor

from elmo_hf import BiLMState, ElmoConfig, ElmoModel
from elmo_hf.folder.loading import load_complete
from elmo_hf.share.export import NamedTensors, example_inputs, export_model, load_for_export, program_of
from tests.helpers.checkpoints import run_python
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.fresh_process import without
from tests.helpers.task_models import LSTM, TASKS, make_batch, make_task_model
from tests.helpers.tiny_inputs import TINY, assert_outputs_close, word_config

# What ONNX Runtime's float32 may differ by in models as small as these.
TOLERANCE = 1e-5
Tensors = dict[str, Tensor]
Exported = tuple[NamedTensors, Path, torch.export.ExportedProgram]


def run_onnx(path: Path, inputs: Tensors) -> Tensors:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def assert_near(found: Tensors, expected: Tensors) -> None:
    """At most `TOLERANCE`, absolutely below 1 and relatively above, as the command compares; torch adds the two."""
    torch.testing.assert_close(found, expected, atol=TOLERANCE / 2, rtol=TOLERANCE / 2)


def ragged(module: NamedTensors, lengths: list[int]) -> Tensors:
    """As `example_inputs`, with the lengths that it cannot have: a row with one word."""
    longest = [max(length, 2) for length in lengths]
    inputs = example_inputs(module, longest)
    for row, length in enumerate(lengths):
        inputs["attention_mask"][row, : longest[row] - length] = 0
    return inputs


def outputs_of(model: ElmoModel, inputs: Tensors) -> Tensors:
    """What a file of the biLM must give, by the names in the file."""
    inputs = dict(inputs)
    state = BiLMState(inputs.pop("hidden"), inputs.pop("cell")) if "hidden" in inputs else None
    output = model(**inputs, state=state, output_hidden_states=True)
    names = ("last_hidden_state", "pooler_output", "representations", "token_embeddings")
    tensors = {name: output[name] for name in names}
    tensors |= {f"hidden_states.{k}": tensor for k, tensor in enumerate(output.hidden_states)}
    return tensors if state is None else tensors | {"next_hidden": output.state.hidden, "next_cell": output.state.cell}


def assert_gives_the_models_numbers(path: Path, model: ElmoModel, has_state: bool = False) -> None:
    for lengths in ([1], [6, 3], [2, 9, 4], [3, 1, 1, 2, 5]):
        inputs = ragged(NamedTensors(model, has_state), lengths)
        assert_near(run_onnx(path, inputs), outputs_of(model, inputs))


def axes(path: Path) -> dict[str, list[Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}


@pytest.mark.same_rounding
def test_the_command_writes_a_graph_of_named_tensors(tmp_path: Path) -> None:
    difference, written = output_of("export", "tiny", tmp_path / "elmo.onnx").splitlines()
    ((number,),) = [re.findall(r"^Largest difference from the model, all outputs: (\S+) \(float32\)\.$", difference)]
    assert 0 < float(number) <= TOLERANCE
    assert written == f"Wrote {tmp_path / 'elmo.onnx'}."
    assert [path.name for path in tmp_path.iterdir()] == ["elmo.onnx"]
    model = load_complete("tiny")
    size = model.config.hidden_size
    assert axes(tmp_path / "elmo.onnx") == {
        "input_ids": ["batch", "words", 50],
        "attention_mask": ["batch", "words"],
        "last_hidden_state": ["batch", "words", size],
        "pooler_output": ["batch", size],
        "representations": ["batch", 1, "words", size],
        "token_embeddings": ["batch", "words", size // 2],
        **{f"hidden_states.{k}": ["batch", "words", size] for k in range(3)},
    }
    assert_gives_the_models_numbers(tmp_path / "elmo.onnx", model)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A model, its file, and its program, which takes torch seconds.

    The model has a state, word vectors beside characters, and weights large enough for both clips to act.
    """
    words = {"vocab_size": 262 + 13, "num_input_words": 13, "word_embedding_size": 4}
    torch.manual_seed(20180608)
    model = ElmoModel(ElmoConfig(**TINY, **words, layer_mix="linear", num_output_representations=2))
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(3)
    path = tmp_path_factory.mktemp("exported") / "elmo.onnx"
    module = NamedTensors(model, has_state=True)
    program = program_of(module)
    export_model(module, path, program, largest_file=10)
    return module, path, program


@pytest.mark.same_rounding
def test_a_graph_takes_a_state_and_gives_the_next(exported: Exported) -> None:
    module, path, _ = exported
    assert axes(path)["hidden"] == [2, "batch", 14]
    assert axes(path)["next_cell"] == [2, "batch", 18]
    # Its weights do not fit into one file.
    assert sorted(each.name for each in path.parent.iterdir()) == ["elmo.onnx", "elmo.onnx.data"]
    assert_gives_the_models_numbers(path, module.model, has_state=True)


@pytest.mark.same_rounding
@pytest.mark.slow
def test_models_that_read_words_can_be_exported(tmp_path: Path) -> None:
    model = ElmoModel(word_config(num_hidden_layers=1))
    export_model(NamedTensors(model), tmp_path / "elmo.onnx")
    assert_gives_the_models_numbers(tmp_path / "elmo.onnx", model)


@pytest.mark.same_rounding
@pytest.mark.parametrize(
    ("task", "fields"),
    [
        pytest.param("classification", LSTM | {"pooling": "attention"}, marks=pytest.mark.slow),
        ("pairs", {"pooling": "max"}),
        pytest.param("labelling", LSTM, marks=pytest.mark.slow),
        pytest.param("crf", LSTM, marks=pytest.mark.slow),
        pytest.param("questions", LSTM, marks=pytest.mark.slow),
    ],
    ids=list(TASKS),
)
def test_models_for_a_task_can_be_exported(task: str, fields: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 1, "num_highway_layers": 0, "char_filters": [[2, 4]]}
    make_task_model(task, **sizes, **fields).save_pretrained(tmp_path / "model")
    model = load_for_export(tmp_path / "model")
    assert type(model) is TASKS[task][0]
    export_model(NamedTensors(model.train()), tmp_path / "task.onnx")
    names = ("start_logits", "end_logits") if task == "questions" else ("logits",)
    for side, rows in (("right", slice(None)), ("left", slice(None)), ("right", slice(1, 2))):
        inputs = {name: make_batch(task, side, rows)[name] for name in ("input_ids", "attention_mask")}
        expected = model(**inputs)
        assert_near(run_onnx(tmp_path / "task.onnx", inputs), {name: expected[name] for name in names})


@pytest.mark.same_rounding
@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this torch does not tell them apart")
@pytest.mark.slow
def test_a_strict_export_gives_the_models_numbers_for_other_sizes() -> None:
    sizes = {"num_hidden_layers": 1, "num_highway_layers": 0, "char_filters": [[2, 4]]}
    module = NamedTensors(make_task_model("classification", **sizes, **LSTM))
    names = ("input_ids", "attention_mask")
    batch, other = make_batch("classification"), make_batch("classification", "left", slice(1, 3))
    axes = {0: torch.export.Dim("batch", min=2), 1: torch.export.Dim("words", min=2)}
    with torch.no_grad():
        program = torch.export.export(
            module, (), {name: batch[name] for name in names}, dynamic_shapes=dict.fromkeys(names, axes), strict=True
        )
        inputs = {name: other[name] for name in names}
        assert_near(program.module()(**inputs), module(**inputs))


def test_a_program_for_torch_runs_without_this_package_and_transformers(exported: Exported, tmp_path: Path) -> None:
    module, _, program = exported
    export_model(module, tmp_path / "elmo.pt2", program)
    inputs = ragged(module, [2, 9, 4])
    torch.save(inputs, tmp_path / "inputs")
    code = """
import torch
outputs = torch.export.load("elmo.pt2").module()(**torch.load("inputs", weights_only=True))
torch.save(dict(outputs), "outputs")
"""
    run_python(without("elmo_hf", "transformers") + code, tmp_path)
    assert_outputs_close(torch.load(tmp_path / "outputs", weights_only=True), outputs_of(module.model, inputs))


@pytest.mark.same_rounding
@pytest.mark.parametrize("change", [2e-3, float("nan")])
def test_a_file_that_gives_other_numbers_is_not_kept(change: float, exported: Exported, tmp_path: Path) -> None:
    module, _, program = exported
    other = copy.deepcopy(module)
    other.model.linear_mixes[0].linear.bias.data += change  # in one output alone
    with pytest.raises(ValueError, match="differs from the model"):
        export_model(other, tmp_path / "elmo.pt2", program)
    assert not any(tmp_path.iterdir())


def test_a_folder_of_language_models_and_with_a_state_any_is_exported_as_its_bilm(tmp_path: Path) -> None:
    assert type(load_for_export("tiny")) is ElmoModel
    make_task_model("classification").half().save_pretrained(tmp_path)
    assert load_for_export(tmp_path).dtype == torch.float32
    assert type(load_for_export(tmp_path, has_state=True)) is ElmoModel


@pytest.mark.parametrize("name", ["elmo.onnx", "elmo.onnx.data"])
def test_nothing_is_overwritten(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("precious")
    assert_fails(run("export", "tiny", tmp_path / "elmo.onnx"), 1, f"{tmp_path / name} exists already")
    assert (tmp_path / name).read_text() == "precious"
