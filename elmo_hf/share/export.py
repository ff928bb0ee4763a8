"""Writes a model as one file that runs without this package: `elmo-hf export`.

    OUT.onnx   an ONNX graph, for ONNX Runtime
    OUT.pt2    a program of `torch.export`, for torch alone: `torch.export.load(OUT).module()(ids, mask)`

Both kinds of files run any number of texts B and words T, take tensors by name and return a dict of tensors:

    input_ids                (B, T, C) or (B, T)     in; int64, from `ElmoTokenizer`
    attention_mask           (B, T)                  in; int64, 1 on words and boundaries, padding on either side
    word_vector_ids          (B, T)                  in, with `word_vectors` in the config; int64, from `ElmoTokenizer`
    marks                    (B, T)                  in, with `mark_size` in the config; int64, 0 or 1 at each word
    hidden, cell             (L, B, 2P), (L, B, 2H)  in, with a state; zeros to start
    next_hidden, next_cell   (L, B, 2P), (L, B, 2H)  out, with a state
    others                   out; fields of the model's output, tuples as `hidden_states.0`, `hidden_states.1`, ...

Glossary: B texts, T words, C characters per word, P projection, H cell, L layers.

Deliberate differences from the model: the character CNN also computes repeated words again, because the shapes of a
graph cannot depend on data; and a model for pairs of texts does not check that each row holds two.
"""

import itertools
import logging
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor, nn

from ..disk.guarded_file import GuardedFile
from ..disk.whole_files import check_new_file, move_into_place, refuse_written_meanwhile, workplace
from ..folder.loading import load_complete, open_folder
from ..folder.saved_config import read_config
from ..heads import HEADS
from ..model.configuration_elmo import ElmoConfig
from ..model.layers_elmo import BiLMState
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from ..text.installed import require_packages

# The classes that are exported with their head; of models of other classes, the biLM is exported.
EXPORTED_HEADS = {head.model_class.__name__: head.model_class for head in HEADS if head.is_exported}
# The packages that each suffix needs besides torch.
PACKAGES: dict[str, tuple[str, ...]] = {".onnx": ("onnx", "onnxruntime", "onnxscript"), ".pt2": ()}
# The largest difference allowed between file and model in float32, absolute below 1 and relative above. Rounding alone
# gives 1e-6 in models with trained weights, and 2e-5 in large models with large random weights.
TOLERANCE = 1e-4
# The most bytes of weights in one ONNX file; the format allows 2^31 for the whole file.
LARGEST_FILE = 1_900_000_000

# The inputs whose first axis is L.
STATE = ("hidden", "cell")

Tensors = dict[str, Tensor]


class NamedTensors(nn.Module):
    """A model that takes tensors and returns a dict of tensors, by the names in the file."""

    def __init__(self, model: ElmoPreTrainedModel, has_state: bool = False) -> None:
        """Sets the model to evaluation mode; with `has_state`, the state of a biLM is an input and an output."""
        super().__init__()
        self.model = model.eval()
        self.has_state = has_state

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        hidden: Tensor | None = None,
        cell: Tensor | None = None,
        word_vector_ids: Tensor | None = None,
        marks: Tensor | None = None,
    ) -> Tensors:
        """Runs the model on the tensors that the docstring of this file lists."""
        options: dict[str, Any] = {}
        if hidden is not None and cell is not None:
            options["state"] = BiLMState(hidden, cell)
        if word_vector_ids is not None:
            options["word_vector_ids"] = word_vector_ids
        if marks is not None:
            options["marks"] = marks
        is_encoder = isinstance(self.model, ElmoModel)
        outputs = self.model(input_ids, attention_mask, output_hidden_states=is_encoder, **options)
        named: Tensors = {}
        for name, value in outputs.items():
            if isinstance(value, tuple):
                named |= {f"{name}.{index}": tensor for index, tensor in enumerate(value)}
            elif not name.startswith("state_"):
                named[name] = value
        if self.has_state:
            named |= {"next_hidden": outputs.state.hidden, "next_cell": outputs.state.cell}
        return named


def check_output(path: Path) -> None:
    """Checks that a model can be written to a file; if it exists, deletes a killed run's partial file.

    Raises:
        FileExistsError: if the file or its file of weights exists.
        FileNotFoundError: if the folder does not exist.
        ImportError: if a package is missing.
        ValueError: if the suffix is not in `PACKAGES`.
    """
    if path.suffix not in PACKAGES:
        raise ValueError(f"the output's suffix must be .onnx or .pt2, found {path.name!r}.")
    for file in (path, weights_file(path)):
        check_new_file(file)
    require_packages("export", *PACKAGES[path.suffix])


def weights_file(path: Path) -> Path:
    """The file of weights beside an ONNX file, for weights that do not fit into the ONNX file."""
    return path.with_name(path.name + ".data")


def load_for_export(source: str | Path, has_state: bool = False) -> ElmoPreTrainedModel:
    """The model of a folder or Hub name, in float32.

    A model that was saved with a task head has it. Otherwise, or with `has_state`, the model is the biLM, because only
    the biLM has a state.
    """
    config, _ = read_config(open_folder(source, weights=False))
    model_class: type[ElmoPreTrainedModel] = ElmoModel
    if not has_state:
        model_class = EXPORTED_HEADS.get("".join(config.architectures or []), ElmoModel)
    return load_complete(source, model_class, dtype=torch.float32)


def export_model(
    module: NamedTensors,
    destination: Path,
    program: torch.export.ExportedProgram | None = None,
    largest_file: int = LARGEST_FILE,
) -> float:
    """Writes a model as a file, runs the file and compares its outputs with the model's.

    Args:
        module: the model, in float32, on the CPU.
        destination: the new file, `.onnx` or `.pt2`.
        program: the result of `program_of` for this module; None computes it.
        largest_file: weights of more bytes go into a file beside an ONNX file, with `.data` added to its name.

    Returns:
        the largest difference from the model, over several batches.

    Raises:
        OSError, ImportError: as in `check_output`.
        ValueError: if the suffix is wrong, the model cannot be exported, or the file computes other numbers.
    """
    check_output(destination)
    if program is None:
        program = program_of(module)
    with workplace(destination) as folder:
        for path in (destination, weights_file(destination)):
            refuse_written_meanwhile(path)
        written = folder / destination.name
        if destination.suffix == ".pt2":
            with GuardedFile(written) as file:
                torch.export.save(program, cast(IO[bytes], file))
        else:
            _write_onnx(module, program, written, largest_file)
        difference = _largest_difference(module, written)
        if not difference <= TOLERANCE:
            raise ValueError(
                f"the exported graph differs from the model by {difference:.1e}, where at most {TOLERANCE:.0e} was "
                "expected; nothing was written. Please report this with the versions of torch and onnxruntime."
            )
        for path in (weights_file(destination), destination):  # weights first, so that a graph always has its weights
            if (folder / path.name).exists():
                move_into_place(folder / path.name, path)
    return difference


def example_inputs(module: NamedTensors, lengths: list[int]) -> Tensors:
    """A ragged batch of random words for a model; every other row has its padding on the left.

    `lengths` counts the words and boundaries of each row, at least two for each text: the texts of a row follow one
    another, each between its boundaries. If the module has a state, it is random.
    """
    config = module.model.config
    generator = torch.Generator().manual_seed(len(lengths))
    batch, words = len(lengths), max(lengths)
    ids = _random_words(config, (batch, words), generator)
    mask = torch.zeros(batch, words, dtype=torch.long)
    num_texts = getattr(module.model, "num_texts", 1)
    for row, length in enumerate(lengths):
        start = words - length if row % 2 == 1 else 0
        mask[row, start : start + length] = 1
        ends = [start + length * index // num_texts for index in range(num_texts + 1)]
        for begin, end in itertools.pairwise(ends):
            ids[row, begin, ...] = config.bos_token_id
            ids[row, end - 1, ...] = config.eos_token_id
    tensors = {"input_ids": ids, "attention_mask": mask}
    if config.word_vectors is not None:
        num_vectors = config.word_vectors["num_words"] + 1
        tensors["word_vector_ids"] = torch.randint(0, num_vectors, (batch, words), generator=generator)
    if config.mark_size is not None:
        tensors["marks"] = torch.randint(0, 2, (batch, words), generator=generator)
    if module.has_state:
        for name, size in (("hidden", config.projection_size), ("cell", config.cell_size)):
            shape = (config.num_hidden_layers, batch, config.num_directions * size)
            tensors[name] = torch.rand(shape, generator=generator) - 0.5
    return tensors


def _random_words(config: ElmoConfig, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """The ids `(B, T, C)` or `(B, T)` of random words without the ids of boundaries."""
    first_word = config.num_characters + 1  # character ids are smaller; with word input, all ids
    ids = torch.randint(1, first_word, (*shape, *config.id_shape), generator=generator)
    begin_id, end_id = config.bos_token_id, config.eos_token_id
    assert begin_id is not None
    assert end_id is not None
    ids = ids.masked_fill(ids.eq(begin_id) | ids.eq(end_id), 0)
    if config.num_input_words > 0:
        ids[..., -1] = torch.randint(first_word, config.vocab_size, shape, generator=generator)
    return ids


def program_of(module: NamedTensors) -> torch.export.ExportedProgram:
    """The module as a program for any number of texts and words."""
    example = example_inputs(module, [9, 6, 8])
    batch, words = torch.export.Dim("batch", min=1), torch.export.Dim("words", min=1)
    shapes = _axes(list(example), batch, words)
    with torch.no_grad():
        return torch.export.export(module, (), example, dynamic_shapes=shapes, strict=False)


def _axes(names: Sequence[str], batch: Any, words: Any) -> dict[str, dict[int, Any]]:
    """For each input, the axes of any length, which are B, or B and T, and what stands for them."""
    return {name: {1: batch} if name in STATE else {0: batch, 1: words} for name in names}


@torch.no_grad()
def _write_onnx(module: NamedTensors, program: torch.export.ExportedProgram, path: Path, largest_file: int) -> None:
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    axes = _axes(names, "batch", "words")
    outputs = list(module(**example_inputs(module, [4])))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # warnings about packages that are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # and warnings about two inputs that share their axes
        graph = torch.onnx.export(
            program, input_names=names, output_names=outputs, dynamic_shapes=axes, dynamo=True, verbose=False
        )
    assert graph is not None
    for weight in graph.model.graph.initializers.values():
        # Each weight has its own shape. ONNX Runtime's quantisation transposes it, so a second record would be wrong.
        weight.shape = None
        weight.type = None
    weight_bytes = sum(parameter.nbytes for parameter in module.parameters())
    graph.save(path, external_data=weight_bytes > largest_file)


def _runner(path: Path) -> Callable[[Tensors], Tensors]:
    """Makes a function that runs the file."""
    if path.suffix == ".pt2":
        program = torch.export.load(path).module()
        return lambda inputs: program(**inputs)
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Tensors) -> Tensors:
        values = session.run(names, {name: tensor.numpy() for name, tensor in inputs.items()})
        return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}

    return run


@torch.inference_mode()
def _largest_difference(module: NamedTensors, path: Path) -> float:
    """The largest difference on batches of other sizes than the traced one, absolute below 1, relative above."""
    run = _runner(path)
    differences = []
    for lengths in ([4], [7, 12], [5, 16, 9, 4, 11]):
        inputs = example_inputs(module, lengths)
        expected = module(**inputs)
        outputs = run(inputs)
        assert list(expected) == list(outputs)
        for name, tensor in expected.items():
            if tensor.shape != outputs[name].shape:
                return math.inf
            difference = (outputs[name] - tensor).abs() / tensor.abs().clamp(min=1)
            differences.append(difference.max())
    return torch.stack(differences).max().item()
