"""Help and errors of usage come without torch and transformers; wrong names, paths and values are one line."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest

# Runs the commands of two JSON lists, the first in a process that refuses heavy imports; prints what each gave.
PROGRAM = """
import contextlib, io, json, runpy, sys
from importlib.machinery import ModuleSpec

class Refuse:
    heavy = {"torch", "transformers", "tokenizers", "safetensors", "numpy", "h5py", "pyarrow", "datasets", "accelerate"}

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in self.heavy else None

    def create_module(self, spec):
        raise AssertionError(f"{spec.name} was imported")

refuse, results = Refuse(), []
sys.meta_path.insert(0, refuse)
light, others = map(json.loads, sys.argv[1:])
for number, arguments in enumerate([*light, *others]):
    if number == len(light):
        sys.meta_path.remove(refuse)
    sys.argv = ["elmo-hf", *arguments]
    code, outputs = None, (io.StringIO(), io.StringIO())
    with contextlib.redirect_stdout(outputs[0]), contextlib.redirect_stderr(outputs[1]):
        try:
            runpy.run_module("elmo_hf.cli", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            code = end.code
        except AssertionError as error:
            print(error, file=sys.stderr)
    results.append([code, *(" ".join(output.getvalue().split()) for output in outputs)])
print(json.dumps(results))
"""
HELP = {
    "": "Commands:",
    "convert": "Usage: elmo-hf convert [SOURCE] DEST [OPTIONS]",
    "embed": "Usage: elmo-hf embed MODEL INPUT... -o OUT [OPTIONS]",
    "vectors": "Usage: elmo-hf vectors MODEL WORDS [OPTIONS]",
    "export": "Usage: elmo-hf export MODEL OUT [OPTIONS]",
    "push": "Usage: elmo-hf push FOLDER ORG/NAME [OPTIONS]",
    "models": "Usage: elmo-hf models [OPTIONS]",
    "vocab": "Usage: elmo-hf vocab CORPUS... -o OUT [OPTIONS]",
    "pretrain": "Usage: elmo-hf pretrain CORPUS... -o OUT [OPTIONS]",
    "score": "Usage: elmo-hf score MODEL INPUT [OPTIONS]",
    "fill": "Usage: elmo-hf fill MODEL TEXT [OPTIONS]",
    "info": "Usage: elmo-hf info MODEL [OPTIONS]",
    "env": "Usage: elmo-hf env [OPTIONS]",
    "card": "Usage: elmo-hf card FOLDER [OPTIONS]",
}
LONG = "x" * 300  # characters, more than a file's name may have
# What is refused: by the code 2 before anything heavy is imported, by 1 later; and what the line names.
REFUSALS: dict[str, tuple[int, str]] = {
    "train": (2, "'train'"),
    "embed tiny file.txt --output=": (2, "is empty or not UTF-8"),
    "embed tiny gr\udcf6.txt -o v/": (2, "is empty or not UTF-8"),
    # convert
    "convert folder": (2, "give SOURCE and DEST"),
    "convert folder there": (1, "there exists already"),
    "convert nowhere new": (1, "nowhere"),
    "convert --model large new": (1, "--model must be one of small, medium, original, 5.5B, pt, "),
    "convert --model embeddia-hr new": (1, "https://www.clarin.si/repository/xmlui/handle/11356/1277"),
    "convert --options file.txt --weights none new": (1, "there is no file or folder none."),
    "convert folder new --license M!T": (
        1,
        "a licence is the Hub's name of it, such as mit or apache-2.0, found 'M!T'.",
    ),
    "convert folder new --source here": (1, "found 'here'."),
    "convert folder new --to allennlp --license mit": (2, "--to allennlp takes SOURCE and DEST and no other option."),
    "convert --to allennlp bert new": (1, "'bert'"),
    # models
    "embed bert file.txt -o v.npz": (1, "bert holds a model of `model_type` 'bert'; this is not an ELMo."),
    "export files elmo.pt2": (1, "files is not converted yet: it holds weights.hdf5. Run `elmo-hf convert files NEW`"),
    "score files/weights.hdf5 file.txt": (1, "files/weights.hdf5 is not converted yet"),
    **{
        f"{verb} {rest}": (1, "there is no folder nowhere, and a Hub name looks like org/name.")
        for verb, rest in {
            "info": "nowhere",
            "embed": "nowhere file.txt -o v.npz",
            "vectors": "nowhere file.txt -o v.txt",
            "export": "nowhere elmo.pt2",
            "pretrain": "file.txt -o lm --model nowhere",
            "score": "nowhere file.txt",
            "fill": "nowhere ___",
        }.items()
    },
    "info ../nowhere": (1, "../nowhere"),
    "info file.txt": (1, "file.txt"),
    f"info {LONG}": (1, "File name too long"),
    f"vocab file.txt -o {LONG}": (1, "File name too long"),
    # share
    "card nowhere": (1, "there is no folder nowhere."),
    "card tiny": (1, "tiny_model().save_pretrained('my-tiny')"),
    "card folder --language English": (1, "a language is a code of ISO 639, such as en or eu, found 'English'."),
    "export tiny elmo.pt": (1, "'elmo.pt'"),
    "export tiny none/elmo.pt2": (1, "there is no folder none to write elmo.pt2 in."),
    "export tiny there.pt2": (1, "there.pt2 exists already"),
    "push folder org/--elmo": (1, "'org/--elmo'"),
    "push folder org/elmo": (1, "config.json"),
    # embed
    "embed tiny file.txt": (2, "'--output' / '-o'"),
    "embed tiny file.txt -o v.npz --layers second": (2, "'--layers'"),
    "embed tiny file.txt -o v.csv": (1, "found v.csv"),
    "embed tiny file.txt -o v.npz --split test": (2, "--split needs --column."),
    "embed tiny file.txt -o none/v.npz": (1, "there is no folder none to write v.npz in."),
    "embed tiny file.txt -o there.npz": (1, "there.npz exists already"),
    "embed tiny none.txt -o v.npz": (1, "none.txt"),
    "embed tiny none.txt -o v/": (1, "there is no file none.txt"),
    "embed tiny file.txt -o files": (1, "files holds other files, such as weights.hdf5"),
    "embed tiny file.txt -o v/ --words (": (1, "'('"),
    # vectors
    "vectors tiny file.txt": (2, "give --output OUT, or --nearest WORD, or both."),
    "vectors tiny file.txt --nearest sea --format glove": (2, "--format needs --output OUT."),
    "vectors tiny file.txt -o v.txt --count 3": (2, "--count needs --nearest WORD."),
    "vectors tiny none.txt -o v.txt": (1, "none.txt"),
    "vectors tiny file.txt -o v.txt --layer top": (1, "found 'top'"),
    "vectors tiny file.txt -o v.txt --encoding utf-9": (1, "'utf-9'"),
    "vectors tiny blanks.txt -o v.txt": (1, "'New York'"),
    "vectors tiny empty.txt -o v.txt": (1, "empty.txt has no words"),
    # language models
    "vocab none-*.txt -o words": (1, "there is no file none-*.txt."),
    "vocab file.txt -o file.txt": (1, "file.txt exists already"),
    "pretrain file.txt -o lm": (2, "give --vocabulary (and --config) for a new model, or --model to adapt one."),
    "pretrain none.txt -o lm --model tiny": (1, "there is no file none.txt."),
    "pretrain file.txt -o lm --model tiny --epochs 0": (2, "--epochs"),
    "pretrain file.txt -o lm --model tiny --epochs nan": (2, "--epochs"),
    "pretrain file.txt -o lm --model tiny --learning-rate -1": (2, "--learning-rate"),
    "pretrain file.txt -o lm --model tiny --max-steps 0": (2, "--max-steps"),
    "pretrain file.txt -o lm --model tiny --softmax full --samples 9": (1, "--samples needs --softmax sampled."),
    "pretrain file.txt -o blanks.txt --model tiny": (1, "blanks.txt is a file"),
    "pretrain file.txt -o bert --model tiny": (1, "bert holds a finished model"),
    "pretrain file.txt -o lm --vocabulary none": (1, "'none'"),
    "pretrain file.txt -o lm --vocabulary file.txt --config file.txt": (1, "file.txt is damaged"),
    "fill tiny none.txt": (1, "'none.txt' has no gap ___ and is no file."),
    "score tiny empty.txt": (1, "empty.txt has no sentences."),
    "score tiny there": (1, "Is a directory: 'there'"),
    "score tiny file.txt --regions": (2, "--regions needs --per-word OUT."),
    "score tiny file.txt --per-word there.tsv": (1, "there.tsv exists already"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Exit code, standard output and standard error of every command."""
    work = tmp_path_factory.mktemp("work")
    for folder in ("folder", "there", "bert", "files"):
        (work / folder).mkdir()
    (work / "bert" / "config.json").write_text('{"model_type": "bert", "hidden_size": 5}')
    for file in ("file.txt", "there/file", "there.npz", "there.pt2", "there.tsv", "files/weights.hdf5"):
        (work / file).write_text("text\n")
    (work / "blanks.txt").write_text("river\nNew York\n")
    (work / "empty.txt").write_text("\n")
    before = sorted(work.rglob("*"))
    light: list[str] = [*(f"{verb} --help".strip() for verb in HELP), "--version", "models"]
    light += [command for command, (code, _) in REFUSALS.items() if code == 2]
    others = [command for command in REFUSALS if command not in light]
    completed = subprocess.run(
        [
            sys.executable,
            "-c",
            PROGRAM,
            *(json.dumps([command.split() for command in part]) for part in (light, others)),
        ],
        cwd=work,
        env=os.environ | {"HF_HOME": str(work / "home"), "HF_TOKEN": "", "HF_TOKEN_PATH": str(work / "token")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    assert sorted(work.rglob("*")) == before
    return dict(zip([*light, *others], json.loads(completed.stdout), strict=True))


def test_a_reader_that_has_seen_enough_gets_no_error() -> None:
    """`elmo-hf models | head -1`."""
    command = f"{sys.executable} -m elmo_hf.cli models | true"
    completed = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.stderr) == ("", "")


@pytest.mark.parametrize("verb", HELP, ids=lambda verb: verb or "elmo-hf")
def test_help_imports_nothing_heavy(verb: str, results: dict[str, Any]) -> None:
    code, output, errors = results[f"{verb} --help".strip()]
    assert (code, errors) == (0, "")
    assert HELP[verb] in output


def test_the_version_comes_with_those_of_torch_and_transformers(results: dict[str, Any]) -> None:
    names = ("elmo-hf", "torch", "transformers")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    assert results["--version"] == [0, f"{versions}, Python {platform.python_version()}", ""]


def test_published_models_are_listed_without_heavy_imports(results: dict[str, Any]) -> None:
    code, output, errors = results["models"]
    assert (code, errors) == (0, "")
    assert output.startswith("name language size licence trained on source small en 1024/128 no-restrictions ")


@pytest.mark.parametrize("command", REFUSALS)
def test_wrong_arguments_are_refused(command: str, results: dict[str, Any]) -> None:
    code, output, errors = results[command]
    expected_code, text = REFUSALS[command]
    assert (code, output) == (expected_code, "")
    assert text in errors
    assert "Error: " in errors
