"""The commands that write something, on inputs so small that each takes well under a second."""

import json
import time
from pathlib import Path
from typing import NamedTuple

from elmo_hf.folder.model_names import TINY_FOLDER
from tests.helpers.archives import read_files, write_zip
from tests.helpers.checkpoints import BASE, allennlp_to_folder
from tests.helpers.language_models import words_file
from tests.helpers.pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text

from .runs import Run, at_change

# Files that hold times of day, or belong to no result.
PASSING = ("runs/", "checkpoint-", "README.md", "log.json", "curve.png", "training_args.bin")
PRETRAIN = "--rows 2 --unroll-steps 3 --max-steps 5 --checkpoint-steps 2 --logging-steps 3 --seed 3"
# The file or folder that a command writes, and its arguments, where `@` stands for the folder of the inputs.
JOBS = {
    "embed hdf5": ("out.hdf5", "embed @/model @/corpus.txt -o out.hdf5"),
    "embed safetensors": ("out.safetensors", "embed @/model @/corpus.txt -o out.safetensors --layers mix"),
    "embed npz": ("out.npz", "embed @/model @/corpus.txt -o out.npz --layers top"),
    "embed parquet": ("out.parquet", "embed @/model @/corpus.txt -o out.parquet --layers pooled"),
    "embed shards": ("out", "embed @/model @/corpus.txt -o out/ --layers top"),
    "vectors": ("out.txt", "vectors @/model @/words.txt -o out.txt"),
    "convert": ("out", f"convert {BASE} out"),
    "convert zip": ("out", "convert @/source.zip out"),
    "convert back": ("out", "convert @/model out --to allennlp"),
    "vocab": ("out.txt", "vocab @/corpus.txt -o out.txt"),
    "score": ("out.tsv", f"score {TINY_FOLDER} @/corpus.txt --per-word out.tsv"),
    "pretrain": ("out", f"pretrain @/corpus.txt -o out --vocabulary @/words.txt --config @/config.json {PRETRAIN}"),
    "export": ("out.pt2", "export @/model out.pt2"),  # takes seconds
}


class Job(NamedTuple):
    """A command, and what it does when nothing goes wrong.

    Attributes:
        result: the file or folder that it writes.
        command: its arguments.
        content: of the result.
        changes: how many changes it makes to its folder.
        largest: bytes of the largest file.
        seconds: that it takes.
    """

    result: str
    command: list[str]
    content: dict[str, bytes]
    changes: int
    largest: int
    seconds: float

    def is_whole(self, folder: Path) -> bool:
        """Whether a folder holds the result and nothing else."""
        names = [path.name for path in folder.iterdir()]
        return names == [self.result] and content(folder / self.result) == self.content


def prepare(root: Path, name: str) -> Job:
    """Makes the inputs, unless they are there, and runs a command undisturbed."""
    inputs, folder, changes = root / "inputs", root / f"undisturbed {name}", root / f"{name} count"
    if not inputs.exists():
        inputs.mkdir()
        allennlp_to_folder(BASE, inputs / "model", source_name="tiny")
        write_text(inputs / "corpus.txt", make_sentences(12))
        write_zip(inputs / "source.zip", read_files(BASE))
        words_file(inputs, VOCABULARY, "words.txt")
        (inputs / "config.json").write_text(json.dumps(FIELDS), encoding="utf-8")
    result, command = JOBS[name][0], JOBS[name][1].replace("@", str(inputs)).split()
    begin = time.monotonic()
    with changes.open("wb", buffering=0) as file:
        outcome = Run(command, folder, at_change(lambda: file.write(b"."))).finish()
    seconds = time.monotonic() - begin
    assert outcome.code == 0, outcome.output[-3000:]
    largest = max(path.stat().st_size for path in folder.rglob("*"))
    job = Job(result, command, content(folder / result), changes.stat().st_size, largest, seconds)
    assert job.is_whole(folder)
    return job


def content(path: Path) -> dict[str, bytes]:
    """Each file of a result by its name, without files that differ from run to run."""
    files = {"": path.read_bytes()} if path.is_file() else read_files(path)
    return {name: data for name, data in files.items() if not name.startswith(PASSING)}
