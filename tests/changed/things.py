"""The things that commands make, on inputs so small that most commands take well under a second.

Commands work in the folder of a case, which has the inputs in `in/` and gets the result in `work/`. The inputs of the
twin have the same names and shapes, and other content.
"""

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import datasets
import h5py
import numpy as np
import pyarrow.csv
import pyarrow.parquet
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from elmo_hf import ElmoConfig, ElmoForPreTraining
from elmo_hf.model.modeling_elmo import SENTENCE_FILES
from tests.helpers.archives import read_files, write_zip
from tests.helpers.checkpoints import FIXTURES, allennlp_to_folder, base_checkpoint, write_checkpoint
from tests.helpers.language_models import words_file
from tests.helpers.pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text
from tests.helpers.tiny_lm import tokenizer_with

from .elsewhere import CACHE, HUB, TOY
from .shelf import PROTOCOL

PRETRAIN = "--rows 2 --unroll-steps 3 --max-steps 5 --checkpoint-steps 2 --logging-steps 3 --seed 3"
NEW_MODEL = "--vocabulary in/words.txt --config in/config.json"
# What changes the vectors that `embed` writes, and what changes the batches in which it computes them.
OF_EMBED = ("--layers average", "--dtype float16", "--words a+", "--split-into-words", "--encoding latin-1")
OF_PRETRAIN = (
    "--seed 4",
    "--rows 3",
    "--max-steps 6",
    "--unroll-steps 4",
    "--learning-rate 0.1",
    "--optimizer adamw",
    "--schedule linear",
    "--warmup-steps 2",
    "--accumulate 2",
    "--reset-probability 0.5",
    "--frozen-steps 2",
    "--bf16",
    "--words ptb",
    "--softmax sampled",
    "--samples 4",
    "--held-out in/other.txt",
    "--checkpoint-steps 3",
    "--logging-steps 1",
)
# Reads what a command printed and the folder of the case, and returns what does not agree; "" if all does.
Measure = Callable[[str, Path], str]


class Thing(NamedTuple):
    """A file or folder that a command makes.

    Attributes:
        result: its path in the folder of a case.
        command: the arguments of the command; those that begin with `in/`, also in a store, are its inputs.
        options: arguments with a meaning, of which one is added to the command or takes the place of its own.
        measure: compares the numbers that the command printed with the files.
        has_list: whether `elmo-hf check` knows the thing.
        shares_work: whether several processes can make it together.
        weight: how often it is drawn.
        reads: an input that the command does not name.
        place: the folder in which the command is given, in that of the case.
        start: the input that is copied to `work/out` at first, for a command that changes one file of it.
        holds_others: whether results of other inputs stay beside it.
        needs_check: whether `check` alone sees some changes, because the command does not read all that it finds.
        leaves: names of files in the result that the command leaves as they are, because they may be the user's.
    """

    result: str
    command: str
    options: tuple[str, ...]
    measure: Measure
    has_list: bool = False
    shares_work: bool = False
    weight: float = 1.0
    reads: str = ""
    place: str = "."
    start: str = ""
    holds_others: bool = False
    needs_check: bool = False
    leaves: tuple[str, ...] = ()


def counted(pattern: str, printed: str) -> int:
    """The number in what a command printed, at the group of a pattern; -1 if it is not there."""
    match = re.search(pattern, printed)
    return int(match[1].replace(",", "")) if match else -1


def entries_of(path: Path) -> int:
    """How many sentences a file of vectors holds."""
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_metadata(path).num_rows
    if path.suffix == ".npz":
        with np.load(path) as file:
            names = [*file]
    elif path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            names = [*file.keys()]
    else:
        with h5py.File(path) as file:
            names = [*file]
    return sum(name.isdecimal() for name in names)


def measure_vectors_of_sentences(printed: str, folder: Path) -> str:
    """The number of sentences, in a file or in all shards."""
    result = min((folder / "work").glob("out*"), key=lambda path: len(path.name))  # others are copies of it
    files = sorted(result.glob("part-*")) if result.is_dir() else [result]
    number = sum(entries_of(file) for file in files)
    said = counted(r"Wrote ([\d,]+) sentence", printed)
    return "" if said == number else f"printed {said} sentences, the files have {number}"


def measure_table_of_words(printed: str, folder: Path) -> str:
    """The number of words, and of numbers of each."""
    lines = (folder / "work" / "out.txt").read_text(encoding="utf-8").splitlines()
    sizes = [counted(r"Wrote ([\d,]+) words", printed), counted(r"words, ([\d,]+) numbers", printed)]
    measured = [len(lines) - 1, len(lines[1].split()) - 1]
    return "" if sizes == measured else f"printed {sizes}, the file has {measured}"


def measure_vocabulary(printed: str, folder: Path) -> str:
    """The number of words."""
    number = len((folder / "work" / "out.txt").read_text(encoding="utf-8").splitlines())
    said = counted(r"Wrote ([\d,]+) words", printed)
    return "" if said == number else f"printed {said} words, the file has {number}"


def measure_surprisals(printed: str, folder: Path) -> str:
    """The forward perplexity from the zero state, out of the surprisals of all words."""
    options = pyarrow.csv.ParseOptions(delimiter="\t", newlines_in_values=True)
    column = pyarrow.csv.read_csv(folder / "work" / "out.tsv", parse_options=options)["forward_bits"]
    bits = column.drop_null().to_numpy()
    measured = f"forward {2 ** bits.mean():10.2f}"
    return "" if measured in printed else f"measured {measured}"


def measure_usages(printed: str, folder: Path) -> str:
    """The number of usages."""
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    number = pyarrow.csv.read_csv(folder / "work" / "out.csv", parse_options=options).num_rows
    said = sum(int(count) for count in re.findall(r"(\d+) usages?:", printed))
    return "" if said == number else f"printed {said} usages, the table has {number}"


def measure_commit(printed: str, folder: Path) -> str:
    """The name of the commit, and that of the repository in the card."""
    (file,) = (folder / "work" / HUB).iterdir()
    stored = json.loads(file.read_text(encoding="utf-8"))
    said = re.search(r"commit (\w+)\.", printed)
    if said is None or said[1] != stored["commit"]:
        return f"printed {said}, the Hub has {stored['commit']}"
    local_card = folder / "in" / "model" / "README.md"
    if local_card.exists() and "from_pretrained(" not in local_card.read_text(encoding="utf-8", errors="replace"):
        return ""  # a card without code, as after a change, names no model
    card = base64.b64decode(stored["files"]["README.md"]).decode()
    return "" if '"org/out"' in card else "the card does not name the repository"


def measure_layers(printed: str, folder: Path) -> str:
    """The number of texts, and the sum of all layers."""
    measured = []
    for file in (folder / "work" / "out").glob("*.arrow"):  # one of them may be a copy
        rows = datasets.Dataset.from_file(str(file)).with_format("numpy")
        total = sum(float(np.abs(row["bilm_layers"]).sum()) for row in rows)
        measured.append(f"{len(rows)} texts, {total:.4f} in all")
    return "" if any(numbers in printed for numbers in measured) else f"measured {measured}"


def measure_nothing(printed: str, folder: Path) -> str:
    """The command prints no number that stands in its files."""
    return ""


def embedded(suffix: str, options: str) -> Thing:
    """Vectors in a single file."""
    result = f"work/out{suffix}"
    command = f"embed in/model in/corpus.txt in/other.txt -o {result} {options}"
    return Thing(result, command, OF_EMBED, measure_vectors_of_sentences, shares_work=True)


def sharded(shard_format: str, options: str) -> Thing:
    """Vectors in a folder of shards."""
    command = f"embed in/model in/corpus.txt in/other.txt -o work/out/ --format {shard_format} {options}"
    others = [name for name in ("parquet", "safetensors", "npz", "hdf5") if name != shard_format]
    meanings = (*OF_EMBED, f"--format {others[0]}")
    return Thing("work/out", command, meanings, measure_vectors_of_sentences, has_list=True, shares_work=True)


def pretrained(options: str, weight: float = 0.5) -> Thing:
    """A run of pretraining, whose perplexities `cases.py` measures with `elmo-hf score`."""
    command = f"pretrain in/corpus.txt -o work/out {options} {PRETRAIN}"
    return Thing("work/out", command, OF_PRETRAIN, measure_nothing, has_list=True, shares_work=True, weight=weight)


THINGS = {
    "embed hdf5": embedded(".hdf5", "--layers top"),
    "embed safetensors": embedded(".safetensors", "--layers mix"),
    "embed npz": embedded(".npz", "--layers top"),
    "embed parquet": embedded(".parquet", "--layers pooled"),
    "shards parquet": sharded("parquet", "--layers mix"),
    "shards safetensors": sharded("safetensors", "--layers top"),
    "shards npz": sharded("npz", "--layers pooled"),
    "shards hdf5": sharded("hdf5", "--layers top"),
    "shards in a store": Thing(
        "work/out",
        f"embed in/model in/corpus.txt in/other.txt -o {PROTOCOL}://work/out --layers top",
        OF_EMBED,
        measure_vectors_of_sentences,
        has_list=True,
        needs_check=True,
    ),
    "vectors": Thing(
        "work/out.txt",
        "vectors in/model in/words.txt -o work/out.txt",
        ("--format glove", "--layer mix", "--encoding latin-1"),
        measure_table_of_words,
    ),
    "convert": Thing(
        "work/out",
        "convert in/checkpoint work/out",
        ("--dtype bfloat16", "--word-splitter ptb", "--license mit", "--language en"),
        measure_nothing,
        has_list=True,
    ),
    "convert zip": Thing(
        "work/out",
        "convert in/source.zip work/out --check",
        ("--dtype bfloat16", "--word-splitter ptb"),
        measure_nothing,
        has_list=True,
    ),
    "convert back": Thing("work/out", "convert in/model work/out --to allennlp", (), measure_nothing),
    "vocab": Thing(
        "work/out.txt",
        "vocab in/corpus.txt -o work/out.txt",
        ("--size 9", "--min-count 3", "--words ptb", "--encoding latin-1"),
        measure_vocabulary,
    ),
    "score": Thing(
        "work/out.tsv",
        "score in/lm in/corpus.txt --per-word work/out.tsv",
        ("--rows 3", "--unit nats", "--skip-unknown", "--regions", "--carry-state"),
        measure_surprisals,
    ),
    "usages": Thing(
        "work/out.csv",
        "usages in/model in/corpus.txt in/other.txt --word bb -o work/out.csv",
        ("--forms a,ccc", "--most 3", "--seed 2", "--layer mix"),
        measure_usages,
    ),
    "pretrain": pretrained(NEW_MODEL),
    "pretrain with held-out text": pretrained(f"{NEW_MODEL} --held-out in/other.txt"),
    "adapt": pretrained("--model in/lm --held-out in/other.txt"),
    "embed with an older folder": Thing(
        "work/out.npz",
        "embed in/old in/corpus.txt -o work/out.npz --layers mix",
        OF_EMBED,
        measure_vectors_of_sentences,
        shares_work=True,
    ),
    "adapt an older folder": pretrained("--model in/old", weight=0.2),
    "shards of a text in a store": Thing(
        "work/out",
        f"embed in/model {PROTOCOL}://in/corpus.txt -o work/out/ --layers top",
        OF_EMBED,
        measure_vectors_of_sentences,
        has_list=True,
        shares_work=True,
    ),
    "kept model": Thing(
        f"work/{CACHE}/models/{TOY}",
        f"embed {TOY} in/corpus.txt --dry-run",
        (),
        measure_nothing,
        has_list=True,
        reads="in/checkpoint",
        needs_check=True,
    ),
    "convert a download": Thing(
        "work/out",
        f"convert --model {TOY} work/out",
        ("--dtype bfloat16", "--word-splitter ptb"),
        measure_nothing,
        has_list=True,
        reads="in/checkpoint",
    ),
    "card": Thing(
        "work/out/README.md",
        "card work/out --license mit --language en",
        ("--license apache-2.0", "--language de"),
        measure_nothing,
        start="model",
    ),
    "push": Thing(f"work/{HUB}/out.json", "push in/model org/out", ("--include options.json",), measure_commit),
    "publish": Thing(
        f"work/{HUB}/elmo-{TOY}.json",
        f"publish org {TOY}",
        (),
        measure_nothing,
        reads="in/checkpoint",
        place="work",
    ),
    "kept layers": Thing(
        "work/out",
        "keep-layers in/model in/corpus.txt work/out",
        ("--dtype float16",),
        measure_layers,
        holds_others=True,
    ),
    "train on": Thing("work/out", "train-on work/out", (), measure_nothing, weight=0.5, leaves=tuple(SENTENCE_FILES)),
    "export": Thing("work/out.pt2", "export in/model work/out.pt2", (), measure_nothing, weight=0.05),
}


def make_inputs(folder: Path, is_twin: bool) -> None:
    """Writes all inputs; those of the twin have other weights, words in another order, and other sentences."""
    seed = 2 if is_twin else 1
    folder.mkdir(parents=True)
    options, arrays = base_checkpoint()
    if is_twin:
        arrays = {name: array * np.float32(1.5) for name, array in arrays.items()}
    write_checkpoint(folder / "checkpoint", options, arrays)
    allennlp_to_folder(folder / "checkpoint", folder / "model", source_name="tiny")
    write_zip(folder / "source.zip", read_files(folder / "checkpoint"))
    write_text(folder / "corpus.txt", make_sentences(12, seed))
    write_text(folder / "other.txt", make_sentences(6, seed + 2))
    ordered = [*VOCABULARY[:3], *sorted(VOCABULARY[3:], reverse=is_twin)]
    words_file(folder, ordered, "words.txt")
    (folder / "config.json").write_text(json.dumps(FIELDS | {"lm_dropout": 0.1 * seed}), encoding="utf-8")
    save_language_model(folder / "lm", seed)
    shutil.copytree(FIXTURES / "folder_of_0_1_0_generated", folder / "old")
    (folder / "old" / "expected.safetensors").unlink()
    if is_twin:
        for file in (folder / "old").glob("model-*.safetensors"):
            save_file({name: tensor * 1.5 for name, tensor in load_file(file).items()}, file, {"format": "pt"})


def save_language_model(folder: Path, seed: int) -> None:
    """Saves a language model with the vocabulary of the sentences."""
    torch.manual_seed(seed)
    model = ElmoForPreTraining(ElmoConfig(**FIELDS | {"num_softmax_words": len(VOCABULARY)}))
    model.save_pretrained(folder)
    tokenizer_with(tuple(VOCABULARY)).save_pretrained(folder)


def inputs_of(thing: Thing, folder: Path) -> list[Path]:
    """The files that a command reads, and the folders that it names, without duplicates."""
    paths: list[Path] = []
    for name in names_of_inputs(thing):
        path = folder / "in" / name
        paths.append(path)
        paths += [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [path for path in paths if path.exists()]


def names_of_inputs(thing: Thing) -> list[str]:
    """The names of the files and folders in `in/` that a command reads, in the order of its arguments."""
    names = []
    for argument in [*thing.command.split(), thing.reads]:
        path = argument.removeprefix(f"{PROTOCOL}://")
        if path.startswith("in/"):
            names.append(path.removeprefix("in/"))
    return names


def copy_inputs(source: Path, thing: Thing, folder: Path) -> None:
    """Copies what a command reads, and the other inputs that one of its options may name, to the folder of a case."""
    (folder / "in").mkdir(parents=True)
    names = {*names_of_inputs(thing), "other.txt"}
    for name in sorted(names):
        path = source / name
        if path.is_dir():
            shutil.copytree(path, folder / "in" / name)
        else:
            shutil.copy2(path, folder / "in" / name)
