"""Arguments and options of several commands, and the device that they compute on."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from ..disk.whole_files import check_new_file
from ..text.formats import Format
from .errors import check_usage

if TYPE_CHECKING:
    import torch

    from ..public import ElmoForPreTraining, ElmoTokenizer


def split_values(values: list[str] | None) -> list[str] | None:
    """The values of an option, which may be repeated and have several values with blanks or commas between them.

    It is the callback of every option with several values that contain neither blanks nor commas.
    """
    if values is None:
        return None
    parts = re.split(r"[\s,]+", " ".join(values))
    return [part for part in parts if part]


def check_new_table(option: str, path: Path) -> None:
    """Refuses a table that an option names if its suffix is of no table, or if it cannot be a new file."""
    check_usage(path.suffix in (".parquet", ".csv", ".tsv"), f"{option} writes a .parquet, .csv or .tsv, found {path}.")
    check_new_file(path)


# How raw text is split into words.
Splitter = Literal["whitespace", "ptb"]
Model = Annotated[
    str, Argument(metavar="MODEL", help="A folder, a Hub name, or a short name, such as tiny or original.")
]
ScoringModel = Annotated[
    str, Argument(metavar="MODEL", help="A folder, a Hub name, or a short name, such as tiny or original-lm.")
]
Encoding = Annotated[
    str, Option(help="Encoding of files, such as cp1252; a note shows the first letters that it decides.")
]
Column = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Read this column of a table or dataset, this key of JSON objects, or, of words in columns, this number, "
        "from 0.",
    ),
]
OF_INPUT = "Format of the input, whatever its name; default: by its name or first lines."
InputFormat = Annotated[Format | None, Option("--input-format", "--format", help=OF_INPUT)]
# Of commands whose `--format` is the format of what they write.
InputFormatAlone = Annotated[Format | None, Option("--input-format", help=OF_INPUT)]
SplitIntoWords = Annotated[bool, Option("--split-into-words", help="Sentences are words separated by blanks already.")]
Device = Annotated[str | None, Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")]
Licence = Annotated[
    str | None, Option("--license", metavar="NAME", help="Licence of the weights for the card, such as mit.")
]
Language = Annotated[
    list[str] | None,
    Option(
        metavar="CODES",
        callback=split_values,
        help="Languages for the card, such as en,fr, with commas or blanks between; may be repeated.",
    ),
]
SourceOfWeights = Annotated[
    str | None, Option("--source", metavar="ADDRESS", help="For the card: where the weights come from, or a Hub name.")
]


def usable_device(device: "str | torch.device | None") -> "torch.device":
    """A device that torch can compute on; None: a GPU if there is one, else the CPU.

    Raises:
        ValueError: with torch's message, if there is no such device or torch cannot compute on it.
    """
    import torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()
    except (AssertionError, ImportError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise ValueError(f"torch cannot compute on the device {device}: {reason}.") from error
    return place


def load_on_gpu(model: str) -> tuple["ElmoForPreTraining", "ElmoTokenizer"]:
    """Loads language models and their tokenizer, the models on the GPU if there is one."""
    import elmo_hf.public  # noqa: F401  gives language models the streams and scores that only the package has
    from elmo_hf.folder.loading import NoSoftmaxError, load_language_models

    try:
        language_model, tokenizer = load_language_models(model)
    except NoSoftmaxError as error:
        raise ValueError(
            f"{error} Commands: `elmo-hf convert SOURCE OUT --softmax FILE --vocabulary FILE`, "
            f"`elmo-hf pretrain CORPUS -o OUT --model {model} --vocabulary WORDS --frozen-steps N`, in whose first N "
            "steps only the softmax learns; with an N below the number of all steps, the vectors are adapted too."
        ) from error
    return language_model.to(usable_device(None)), tokenizer
