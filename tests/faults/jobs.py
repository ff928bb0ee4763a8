"""The commands that write something, on inputs so small that each takes well under a second."""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from checkpoints import BASE
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text

from elmo_hf.conversion.convert import AllenNlpFiles, allennlp_to_folder
from elmo_hf.folder.loading import TINY_FOLDER

# Files that hold times of day, or belong to no result.
PASSING = ("runs/", "checkpoint-", "README.md", "log.json", "curve.png", "training_args.bin")


@dataclass(frozen=True)
class Job:
    """One command, run in a folder of its own.

    Attributes:
        result: the file or folder that it writes there.
        arguments: of `elmo-hf`; `@` stands for the folder of the inputs.
    """

    result: str
    arguments: str

    def command(self, inputs: Path) -> list[str]:
        """The arguments, with the folder of the inputs filled in."""
        return self.arguments.replace("@", str(inputs)).split()


PRETRAIN = "--rows 2 --unroll-steps 3 --max-steps 5 --checkpoint-steps 2 --logging-steps 3 --seed 3"
JOBS = {
    "embed hdf5": Job("out.hdf5", "embed @/model @/corpus.txt -o out.hdf5"),
    "embed safetensors": Job("out.safetensors", "embed @/model @/corpus.txt -o out.safetensors --layers mix"),
    "embed npz": Job("out.npz", "embed @/model @/corpus.txt -o out.npz --layers top"),
    "embed parquet": Job("out.parquet", "embed @/model @/corpus.txt -o out.parquet --layers pooled"),
    "embed shards": Job("out", "embed @/model @/corpus.txt -o out/ --layers top"),
    "vectors": Job("out.txt", "vectors @/model @/words.txt -o out.txt"),
    "convert": Job("out", f"convert {BASE} out"),
    "convert zip": Job("out", "convert @/source.zip out"),
    "convert back": Job("out", "convert @/model out --to allennlp"),
    "vocab": Job("out.txt", "vocab @/corpus.txt -o out.txt"),
    "score": Job("out.tsv", f"score {TINY_FOLDER} @/corpus.txt --per-word out.tsv"),
    "export": Job("out.pt2", "export @/model out.pt2"),
    "pretrain": Job("out", f"pretrain @/corpus.txt -o out --vocabulary @/words.txt --config @/config.json {PRETRAIN}"),
}


def make_inputs(folder: Path) -> Path:
    """Writes what the commands read."""
    allennlp_to_folder(AllenNlpFiles.in_folder(BASE), folder / "model", source_name="tiny")
    write_text(folder / "corpus.txt", make_sentences(12))
    with zipfile.ZipFile(folder / "source.zip", "w") as archive:
        for path in sorted(BASE.iterdir()):
            archive.write(path, path.name)
    (folder / "words.txt").write_text("".join(f"{word}\n" for word in VOCABULARY), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(FIELDS), encoding="utf-8")
    return folder


def content(path: Path) -> dict[str, str]:
    """The digest of each file of a result by its name, without files that differ from run to run."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    names = {file: file.relative_to(path).as_posix() if file != path else path.name for file in files}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file, name in names.items()
        if not name.startswith(PASSING)
    }
