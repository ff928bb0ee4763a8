"""Exported files give the model's numbers, for any number of texts and words, by name, and stand there whole or not."""

import copy
import re
from pathlib import Path
from typing import Any, NamedTuple

import onnxruntime
import pytest
import torch
from checkpoints import run_python
from commands import assert_fails, run
from fresh_process import without
from task_models import LSTM, TASKS, make_batch, make_task_model
from tiny_inputs import TINY, assert_outputs_close, word_config
from torch import Tensor

from elmo_hf import BiLMState, ElmoConfig, ElmoModel
from elmo_hf.folder.loading import load_complete
from elmo_hf.share.export import NamedTensors, example_inputs, export_model, load_for_export, program_of

# What ONNX Runtime's float32 may differ by in models as small as these, relative to numbers above 1.
TOLERANCE = 1e-5
SHAPES = [[1], [6, 3], [2, 9, 4], [3, 1, 1, 2, 5]]


def run_onnx(path: Path, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
    return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Absolutely below 1 and relatively above, as the command compares: the rounding of a number grows with it."""
    scales = {name: tensor.abs().clamp(min=1) for name, tensor in expected.items()}
    found, expected = ({name: tensors[name] / scales[name] for name in tensors} for tensors in (found, expected))
    assert_outputs_close(found, expected, TOLERANCE)


def ragged(config: ElmoConfig, lengths: list[int], **options: Any) -> dict[str, Tensor]:
    """As `example_inputs`, with the lengths that it cannot have: a row with one word."""
    longest = [max(length, 2) for length in lengths]
    inputs = example_inputs(config, longest, **options)
    for row, length in enumerate(lengths):
        inputs["attention_mask"][row, : longest[row] - length] = 0
    return inputs


def assert_gives_the_models_numbers(path: Path, model: ElmoModel, has_state: bool = False) -> None:
    """With a state, from zero."""
    config = model.config
    for lengths in SHAPES:
        inputs = ragged(config, lengths)
        output = model(**inputs, output_hidden_states=True)
        expected = {
            "last_hidden_state": output.last_hidden_state,
            "pooler_output": output.pooler_output,
            "representations": output.representations,
            "token_embeddings": output.token_embeddings,
            **{f"hidden_states.{k}": tensor for k, tensor in enumerate(output.hidden_states)},
        }
        if has_state:
            sizes = {"hidden": 2 * config.projection_size, "cell": 2 * config.cell_size}
            shape = (config.num_hidden_layers, len(lengths))
            inputs |= {name: torch.zeros(*shape, size) for name, size in sizes.items()}
            expected |= {"next_hidden": output.state.hidden, "next_cell": output.state.cell}
        assert_near(run_onnx(path, inputs), {name: tensor.detach() for name, tensor in expected.items()})


def axes(path: Path) -> dict[str, list[Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}


def test_the_command_writes_a_graph_of_named_tensors(tmp_path: Path) -> None:
    result = run("export", "tiny", tmp_path / "elmo.onnx")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    difference = re.fullmatch(r"Largest difference from the model, all outputs: (\S+) \(float32\)\.", first)
    assert difference is not None
    assert 0 < float(difference[1]) <= TOLERANCE
    assert second == f"Wrote {tmp_path / 'elmo.onnx'}."
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


class Exported(NamedTuple):
    """A model, its file, and what torch made of it, which takes seconds."""

    model: ElmoModel
    path: Path
    module: NamedTensors
    program: torch.export.ExportedProgram


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A model with state, with word vectors beside characters, and with weights large enough for both clips to act."""
    config = ElmoConfig(
        **TINY,
        **{"vocab_size": 262 + 13, "num_input_words": 13, "word_embedding_size": 4, "layer_mix": "linear"},
        num_output_representations=2,
    )
    torch.manual_seed(20180608)
    model = ElmoModel(config).eval()
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(3)
    path = tmp_path_factory.mktemp("exported") / "elmo.onnx"
    module = NamedTensors(model, has_state=True)
    program = program_of(module)
    export_model(module, path, program, largest_file=10)
    return Exported(model, path, module, program)


def test_a_graph_with_state_goes_on_where_the_batch_before_ended(exported: Exported) -> None:
    assert axes(exported.path)["hidden"] == [2, "batch", 14]
    assert axes(exported.path)["next_cell"] == [2, "batch", 18]
    state = {"hidden": torch.zeros(2, 3, 14), "cell": torch.zeros(2, 3, 18)}
    expected_state = None
    for lengths in ([4, 2, 3], [2, 7, 5]):
        inputs = example_inputs(exported.model.config, lengths)
        found = run_onnx(exported.path, inputs | state)
        expected = exported.model(**inputs, state=expected_state)
        expected_state = expected.state
        state = {"hidden": found["next_hidden"], "cell": found["next_cell"]}
        assert_outputs_close(tuple(state.values()), tuple(expected.state), TOLERANCE)
        assert_outputs_close(found["representations"], expected.representations.detach(), TOLERANCE)
    # It reads words beside characters, and its weights do not fit into one file.
    assert sorted(path.name for path in exported.path.parent.iterdir()) == ["elmo.onnx", "elmo.onnx.data"]
    assert_gives_the_models_numbers(exported.path, exported.model, has_state=True)


@pytest.mark.slow
def test_models_that_read_words_can_be_exported(tmp_path: Path) -> None:
    config = word_config()
    config.num_hidden_layers = 1
    model = ElmoModel(config).eval()
    export_model(NamedTensors(model), tmp_path / "elmo.onnx")
    assert_gives_the_models_numbers(tmp_path / "elmo.onnx", model)


@pytest.mark.parametrize(
    ("task", "fields"),
    [
        pytest.param("classification", LSTM | {"pooling": "attention"}, marks=pytest.mark.slow),
        ("pairs", {"pooling": "max"}),
        pytest.param("labelling", LSTM, marks=pytest.mark.slow),
        ("crf", {}),
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
        assert_near(run_onnx(tmp_path / "task.onnx", inputs), {name: expected[name].detach() for name in names})


def test_a_program_for_torch_runs_where_neither_this_package_nor_transformers_is(
    exported: Exported, tmp_path: Path
) -> None:
    export_model(exported.module, tmp_path / "elmo.pt2", exported.program)
    inputs = ragged(exported.model.config, [2, 9, 4], has_state=True)
    torch.save(inputs, tmp_path / "inputs")
    code = """
import torch
outputs = torch.export.load("elmo.pt2").module()(**torch.load("inputs", weights_only=True))
torch.save(dict(outputs), "outputs")
"""
    run_python(without("elmo_hf", "transformers") + code, tmp_path)
    found = torch.load(tmp_path / "outputs", weights_only=True)
    state = BiLMState(inputs.pop("hidden"), inputs.pop("cell"))
    expected = exported.model(**inputs, state=state)
    assert_outputs_close(found["last_hidden_state"], expected.last_hidden_state.detach(), 1e-6)
    assert_outputs_close((found["next_hidden"], found["next_cell"]), tuple(expected.state), 1e-6)


@pytest.mark.parametrize("change", [2e-3, float("nan")])
def test_a_file_that_gives_other_numbers_is_not_kept(change: float, exported: Exported, tmp_path: Path) -> None:
    other = copy.deepcopy(exported.module)
    other.model.linear_mixes[0].linear.bias.data += change  # in one output alone
    with pytest.raises(ValueError, match="differs from the model"):
        export_model(other, tmp_path / "elmo.pt2", exported.program)
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
