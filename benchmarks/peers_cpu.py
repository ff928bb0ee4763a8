"""Error against float32, and speed, of the choices on a CPU and of low precision, on real sentences.

    python benchmarks/peers_cpu.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-test.conllu.gz
    python benchmarks/peers_cpu.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-test.conllu.gz --model tiny

Each contestant runs the same sentences from character ids to the mix of the layers:

    float32          the unchanged model
    float32, packed  after `model.pack()`
    loop             `allennlp_loop.py`, AllenNLP's operations, as fast as the real one (`speed.py --allennlp`)
    bfloat16         `dtype=torch.bfloat16`
    int8 weights     `quantization_config=TorchAoConfig(Int8WeightOnlyConfig())`: weights of a linear by output
    int8 torchao     `quantization_config=TorchAoConfig(Int8DynamicActivationInt8WeightConfig())`: weights of a
                     linear by output, its inputs by word; needs `pip install torchao`
    int8 torch       `torch.ao.quantization.quantize_dynamic`: weights by output, inputs by whole batch, so that a
                     word's vector depends on the other texts
    ONNX Runtime     the graph of `elmo-hf export` in float32
    int8 ONNX        the same after `onnxruntime.quantization.quantize_dynamic`; inputs by whole batch

The machine's rates come before the tables: how fast it reads memory (the sum of a vector of 1 GiB) and multiplies
matrices of 4096 x 4096. The error of a word is |v - v'| / |v|, where v is the float32 vector in the same batch; the
tables have the largest and the mean over all words, boundaries included. `--only` names the contestants that run beside
float32. Without `--model` the model has the original's size and random weights; `--scale` multiplies those of the
LSTMs. The contestants take turns; medians are printed, and times those of float32. A profile of float32 for the longest
of the first 32 texts comes last.
"""

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import onnxruntime
import torch
import torchao
import transformers
import typer
from allennlp_loop import LoopElmo
from onnxruntime.quantization import QuantType
from onnxruntime.quantization import quantize_dynamic as quantize_graph
from timing import machine, print_table, timed
from torch import Tensor, nn
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
from torchao.core.config import AOBaseConfig
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig
from transformers import TorchAoConfig

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import model_folder
from elmo_hf.share.export import NamedTensors, export_model
from elmo_hf.text.sentences import read_sentences

VERSIONS = {"torchao": torchao, "onnxruntime": onnxruntime}
SIZES = (1, 8, 32)  # of batches
Run = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def make_folder(folder: Path, scale: float) -> None:
    """Saves a model of the original's size with random weights, and its tokenizer."""
    torch.manual_seed(0)
    model = ElmoModel(ElmoConfig())
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(scale)
    model.save_pretrained(folder)
    ElmoTokenizer().save_pretrained(folder)


def in_torch(model: nn.Module) -> Run:
    """Runs the model; returns the layers and the mix by name, as float32."""

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.inference_mode():
            output = model(**inputs, output_hidden_states=True)
        layers = {f"layer {number}": layer.float() for number, layer in enumerate(output.hidden_states)}
        return layers | {"mix": output.last_hidden_state.float()}

    return run


def in_onnx_runtime(path: Path) -> Run:
    """The same for a graph that `elmo-hf export` wrote."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Spinning threads would take the cores from the next contestants.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    layers = [output.name for output in session.get_outputs() if output.name.startswith("hidden_states.")]

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        found = session.run([*layers, "last_hidden_state"], {name: value.numpy() for name, value in inputs.items()})
        names = [*(f"layer {number}" for number in range(len(layers))), "mix"]
        return {name: torch.from_numpy(value) for name, value in zip(names, found, strict=True)}

    return run


def in_loop(model: ElmoModel) -> Run:
    """The same for the loop over words."""
    loop = LoopElmo(model)

    def run(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.inference_mode():
            output = loop(inputs["input_ids"])
        return {f"layer {number}": layer for number, layer in enumerate(output.layers)} | {"mix": output.mix}

    return run


def packed(model: ElmoModel) -> ElmoModel:
    """The model with a second copy of its large weights."""
    model.pack()
    return model


def contestants(folder: Path, work: Path) -> dict[str, Callable[[], Run]]:
    """Functions that load each contestant, all from one saved model."""
    graph, small_graph = work / "elmo.onnx", work / "elmo-int8.onnx"

    def in_eight_bits(config: AOBaseConfig) -> Run:
        return in_torch(load_complete(folder, dtype=torch.float32, quantization_config=TorchAoConfig(config)))

    def exported(path: Path) -> Run:
        if not graph.exists():
            export_model(NamedTensors(load_complete(folder, dtype=torch.float32)), graph)
            quantize_graph(graph, small_graph, weight_type=QuantType.QInt8, extra_options={"EnableSubgraph": True})
        return in_onnx_runtime(path)

    return {
        "float32": lambda: in_torch(load_complete(folder, dtype=torch.float32)),
        "float32, packed": lambda: in_torch(packed(load_complete(folder, dtype=torch.float32))),
        "loop": lambda: in_loop(load_complete(folder, dtype=torch.float32)),
        "bfloat16": lambda: in_torch(load_complete(folder, dtype=torch.bfloat16)),
        "int8 weights": lambda: in_eight_bits(Int8WeightOnlyConfig()),
        "int8 torchao": lambda: in_eight_bits(Int8DynamicActivationInt8WeightConfig()),
        "int8 torch": lambda: in_torch(
            quantize_dynamic(load_complete(folder, dtype=torch.float32), {nn.Linear: per_channel_dynamic_qconfig})
        ),
        "ONNX Runtime": lambda: exported(graph),
        "int8 ONNX": lambda: exported(small_graph),
    }


def rates() -> str:
    """How fast this machine reads memory and multiplies large matrices, the best of five."""
    vector, matrix = torch.ones(2**28), torch.randn(4096, 4096)

    def seconds(run: Callable[[], object]) -> float:
        return min(timed(run)() for _ in range(5))

    reading, multiplying = seconds(vector.sum), seconds(lambda: matrix @ matrix)
    return f"reads {2**30 / reading / 1e9:.1f} GB/s, multiplies {2 * 4096**3 / multiplying / 1e9:,.0f} GFLOP/s"


def errors(found: dict[str, Tensor], expected: dict[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """The error of each word of a batch, by layer."""
    return {
        name: ((found[name] - vectors).norm(dim=-1) / vectors.norm(dim=-1))[mask.bool()]
        for name, vectors in expected.items()
    }


def profile(run: Run, inputs: dict[str, Tensor]) -> list[list[str]]:
    """The ten operators of a run that take the longest, by the shapes of their inputs: calls, milliseconds, share."""
    run(inputs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as recorded:
        run(inputs)
    operators = list(recorded.key_averages(group_by_input_shape=True))
    operators.sort(key=lambda operator: operator.self_cpu_time_total, reverse=True)
    whole = sum(operator.self_cpu_time_total for operator in operators)
    rows = []
    for operator in operators[:10]:
        shapes = " ".join(str(shape) for shape in operator.input_shapes if shape)
        time_total = operator.self_cpu_time_total
        row = [f"{operator.key} {shapes}", f"{operator.count}", f"{time_total / 1000:.1f}", f"{time_total / whole:.1%}"]
        rows.append(row)
    return rows


def main(
    corpus: Annotated[Path, typer.Argument(help="CoNLL-U.")],
    model: Annotated[str | None, typer.Option(help="A folder, or tiny; default: the original's size.")] = None,
    sentences: Annotated[int, typer.Option(help="Count of sentences for the errors, from the first.")] = 320,
    rounds: Annotated[int, typer.Option(help="Turns of each contestant.")] = 3,
    threads: Annotated[int, typer.Option(help="Threads of each contestant.")] = 2,
    scale: Annotated[float, typer.Option(help="Factor of random LSTM weights.")] = 1.0,
    only: Annotated[list[str] | None, typer.Option(help="Contestants beside float32; default: all.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Folder that keeps the model and graphs for later runs.")] = None,
) -> None:
    """Measure and print two tables."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(threads)
    work = Path(tempfile.mkdtemp()) if keep is None else keep
    work.mkdir(exist_ok=True)
    folder = work / "model" if model is None else Path(model_folder(model))
    if not folder.exists():
        make_folder(folder, scale)
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    words: list[Any] = [sentence for sentence in read_sentences(corpus) if len(sentence) > 0]
    runs = {name: make() for name, make in contestants(folder, work).items() if name in ("float32", *(only or [name]))}
    versions = ", ".join(f"{name} {module.__version__}" for name, module in VERSIONS.items())
    print(f"{machine()}, {versions}; {rates()}")

    def batch_of(chosen: list[Any]) -> dict[str, Tensor]:
        return dict(tokenizer(chosen, is_split_into_words=True, padding=True, return_tensors="pt"))

    print_errors(runs, [batch_of(words[start : start + 32]) for start in range(0, min(sentences, len(words)), 32)])
    # Ragged batches in file order; four calls at batch 1.
    batches = {}
    for size in SIZES:
        batches[size] = [batch_of(words[start : start + size]) for start in range(0, max(size, 4), size)]
    print_speeds(runs, batches, rounds)  # measuring errors has warmed up all contestants
    longest = max(words[:32], key=len)
    operators = profile(runs["float32"], batch_of([longest]))
    print_table([f"float32, one text of {len(longest)} words", "calls", "ms", "share"], operators)


def print_errors(runs: dict[str, Run], batches: list[dict[str, Tensor]]) -> None:
    """Prints the errors of all contestants against float32, over the words of all batches."""
    errors_of: dict[str, dict[str, list[Tensor]]] = {}  # by contestant and layer
    for inputs in batches:
        expected = runs["float32"](inputs)
        for name in list(runs)[1:]:
            for layer, error in errors(runs[name](inputs), expected, inputs["attention_mask"]).items():
                errors_of.setdefault(name, {}).setdefault(layer, []).append(error)
    rows = []
    for name, by_layer in errors_of.items():
        joined = [torch.cat(parts) for parts in by_layer.values()]
        rows.append([name, *(f"{error.mean():.2%} ({error.max():.2%})" for error in joined)])
    layers = next(iter(errors_of.values()))
    print_table(["error against float32, mean (largest)", *layers], rows)


def print_speeds(runs: dict[str, Run], batches: dict[int, list[dict[str, Tensor]]], rounds: int) -> None:
    """Prints the words per second of all contestants, by size of the batches."""
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for size, batches_of_size in batches.items():
            number = sum(int(inputs["attention_mask"].sum()) for inputs in batches_of_size)
            for name, run in runs.items():
                begin = time.perf_counter()
                for inputs in batches_of_size:
                    run(inputs)
                times.setdefault((name, size), []).append(number / (time.perf_counter() - begin))
    medians = {key: statistics.median(speeds) for key, speeds in times.items()}
    rows = []
    for name in runs:
        row = [name]
        for size in SIZES:
            speed = medians[name, size]
            row.append(f"{speed:,.0f} ({speed / medians['float32', size]:.2f})")
        rows.append(row)
    print_table(["words/s, boundaries included (times float32), batch", *map(str, SIZES)], rows)


if __name__ == "__main__":
    typer.run(main)
