"""How commands start and end: help and errors of usage come without torch; what is wrong is one line."""

import platform
import re
import shlex
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from elmo_hf.cli.arguments import split_values
from elmo_hf.cli.errors import Command, line_of
from elmo_hf.folder.model_names import DownloadStoppedError, UnknownNameError
from elmo_hf.folder.saved_json import naming
from elmo_hf.text.sentences import read_sentences
from tests.helpers.checkpoints import BASE, EDGES, TINY_LM
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.interrupts import contents

VERBS = [
    "convert",
    "models",
    "embed",
    "vectors",
    "usages",
    "export",
    "push",
    "publish",
    "vocab",
    "pretrain",
    "score",
    "fill",
    "info",
    "check",
    "env",
    "card",
]
LONG = "x" * 300  # characters, more than a file's name may have
OF_TINY_LM = " ".join(f"--{name} {TINY_LM}/{name}.{end}" for name, end in (("options", "json"), ("weights", "hdf5")))
FORMS, BACK = "give SOURCE and DEST; with", "--to allennlp takes SOURCE and DEST and no other option."
# What a command refuses, and what the line names: wrong usage, by the code 2, without importing anything heavy.
USAGE = {
    "train": "'train'",
    "convert": "Missing argument",
    "convert folder": FORMS,
    "convert new --options files/o.json": FORMS,
    "convert folder new --to allennlp --license mit": BACK,
    "convert folder new --from files": "--from needs --model NAME.",
    "convert folder new --to onnx": "'--to'",
    "convert original new": "original is a published model; give --model original in place of SOURCE.",
    "models small --remove small": "give NAME or --remove NAME.",
    "convert files new --align 1=": "--align takes LAYER=FILE",
    "convert files new --align 1=a --align 01=b": "once for each layer.",
    "embed tiny file.txt": "'--output' / '-o'",
    "embed tiny file.txt -o v.npz --layers second": "'--layers'",
    "embed tiny file.txt -o v.npz --batch-words 0": "'--batch-words'",
    "embed tiny file.txt -o v.npz --split test": "--split needs --column",
    "embed tiny file.txt -o v.npz --layers top --layers mix": "--layers was given 2 times, but takes one value",
    "embed tiny file.txt -o v.npz -o w.npz --output x.npz": "--output was given 3 times, but takes one value",
    "vectors tiny file.txt": "give --output OUT, or --nearest WORD, or both.",
    "vectors tiny file.txt --nearest sea --format glove": "--format needs --output OUT.",
    "vectors tiny file.txt -o v.txt --count 3": "--count needs --nearest WORD.",
    "usages tiny file.txt -o v.csv": "'--word'",
    "usages tiny a.txt b.txt c.txt --word text -o v.csv": "give one corpus, or two different ones, found 3.",
    "usages tiny file.txt file.txt --word text -o v.csv": "give one corpus, or two different ones",
    "usages tiny file.txt --word text -o v.txt": "--output writes a .csv or .tsv, found v.txt.",
    "usages tiny file.txt --word text -o v.csv --vectors v.npz": ".csv, .tsv or .parquet, found v.npz",
    "usages tiny file.txt --word text -o v.csv --vectors v.csv": "--vectors and --output both name v.csv; give each",
    "usages tiny file.txt --word text -o v.csv --vectors files/../v.csv": "--vectors and --output both name v.csv;",
    "usages tiny file.txt --word text -o v.csv --plot v.txt": "--plot takes .png, .pdf, .svg, found v.txt.",
    "fill tiny ___ -o v.txt": "--output writes a .parquet, .csv or .tsv, found v.txt.",
    "fill tiny ___ --column text": "--column needs a file as TEXT.",
    "vocab file.txt -o words --size 3": "'--size'",
    "pretrain file.txt -o lm": "give --vocabulary (and --config) for a new model, or --model to adapt one.",
    "pretrain file.txt -o lm --model tiny --config file.txt": "give --vocabulary (and --config) for a new model",
    "pretrain file.txt -o lm --model tiny --alphabet code_points": "--alphabet is for a new model; MODEL",
    "pretrain file.txt -o lm --model tiny --epochs nan": "--epochs",
    "pretrain file.txt -o lm --model tiny --learning-rate -1": "--learning-rate",
    "pretrain file.txt -o lm --model tiny --softmax full --samples 9": "--samples is for a sampled softmax.",
    "score tiny file.txt --per-word v.xlsx": "--per-word writes a .parquet, .csv or .tsv, found v.xlsx.",
    "score tiny file.txt --regions": "--regions needs --per-word OUT.",
    "score tiny my own file.txt": "Put the name with a blank in quotes: 'my own file.txt'.",
}
# And what is wrong in the work, by the code 1.
WRONG = {
    "convert nowhere new": "nowhere",
    "convert --options file.txt --weights none new": "there is no folder or file none.",
    "convert --model small new --from nowhere": "there is no folder or file nowhere.",
    "convert files/weights.hdf5 new": "`options` is --options FILE, `weights` is --weights FILE",
    f"convert {TINY_LM} new": "exactly one `.hdf5` file of weights or one TensorFlow checkpoint",
    f"convert {EDGES}/bi_word_2 new --vocabulary none.txt": "none.txt",
    f"convert {OF_TINY_LM} --softmax {BASE}/weights.hdf5 new": "must hold a softmax, the arrays `softmax/W`",
    "convert folder new --license M!T": "'M!T'",
    "convert folder new --source here": "'here'",
    "embed bert file.txt -o v.npz": "bert holds a model of `model_type` 'bert'; this is not an ELMo.",
    "embed bert file.txt -o there.npz": "there.npz exists already",
    "export files elmo.pt2": "files is not converted yet: it holds weights.hdf5. "
    "`elmo_hf.conversion.convert.convert_source` "
    "writes a folder that can be loaded. Or run `elmo-hf convert files NEW`, and give the folder NEW.",
    "info folder": "folder must hold a model with its config.json, found no file; give a folder that",
    "score there file.txt": "there must hold a model with its config.json, found file; give a folder that",
    "info orignal": "Did you mean `original`? `elmo-hf models` lists the short names.",
    "info file.txt": "file.txt is a file, but a model is a folder, a Hub name such as org/name, or a short name",
    "score file.txt tiny": "If this file is what the model reads, name the model first and the file after it.",
    "info nowhere": "nowhere is neither a folder nor a short name, which are `tiny` and those of the published models",
    f"info {LONG}": "neither a folder" if sys.version_info >= (3, 14) else "File name too long",
    "card tiny": "there is no folder tiny to write README.md in.",
    "export tiny elmo.pt": "'elmo.pt'",
    "export tiny there.pt2": "there.pt2 exists already",
    "push folder org/elmo": "config.json",
    "embed tiny file.txt -o v.csv": "found v.csv",
    "embed tiny zero.txt -o v/": "there are no sentences in zero.txt.",
    "embed tiny zero.txt -o v.npz": "there are no sentences in zero.txt.",
    "embed tiny my own file.txt -o v/": "Put the name with a blank in quotes: 'my own file.txt'.",
    "embed tiny file.txt -o none/v.npz": "there is no folder none to write v.npz in.",
    "embed tiny file.txt -o there.npz": "there.npz exists already",
    "embed tiny file.txt -o files": "files holds other files, such as o.json",
    "embed tiny file.txt -o file.txt/": "file.txt",
    "embed tiny file.txt -o loop/": "loop",
    "embed tiny file.txt -o s3://bucket/v.npz": "found s3://bucket/v.npz",
    "embed tiny file.txt -o nosuch://bucket/v": "Protocol not known: nosuch",
    "embed tiny file.txt -o v/ --device meta": "Tensor.item() cannot be called on meta tensors",
    "embed tiny file.txt - -o v/": "there is no file -;",
    "embed tiny bad.jsonl -o v.npz": "bad.jsonl, line 2: must be a string",
    "vectors tiny file.txt -o v.txt --layer 3": "found '3'",
    "vectors tiny blanks.txt -o v.txt": r"'New\xa0York'",
    "vectors tiny words --nearest text,<UNK>": "'text,<UNK>' is not in the list, but text and <UNK> are: give",
    "fill tiny ___ --candidates the,man": "'the,man' is not a word of the softmax; write 'the man' if these are",
    "usages tiny file.txt --word river --forms rivers -o v.csv": "file.txt: no word is river or rivers",
    "usages tiny file.txt --word don't -o v.csv": "The tokenizer splits don't into do and n't; give one",
    "usages tiny file.txt --word text -o v.csv": "'text' occurs only once",
    "usages tiny file.txt --word text -o there.tsv": "there.tsv exists already",
    "usages nowhere file.txt --word text -o v.csv --vectors there.tsv": "there.tsv exists already",
    "usages tiny file.txt --word text -o v.csv --plot none/v.png": "there is no folder none to write v.png in.",
    "usages tiny file.txt --word text -o v.csv --layer 3": "--layer must be one of 0, 1, 2, mix, found '3'.",
    "vocab none-*.txt -o v": "there is no file none-*.txt.",
    "vocab file.txt -o file.txt": "file.txt exists already",
    "vocab file.txt -o v --min-count 99": "no word is left of 1, with `min_count` 99",
    "pretrain file.txt -o lm --held-out empty.txt --model tiny": "the held-out text, empty.txt, has no sentences;",
    "pretrain empty.txt -o lm --model tiny": "the training text, empty.txt, has no sentences;",
    "pretrain file.txt -o lm --vocabulary none": "there is no file none; `elmo-hf vocab CORPUS -o none` writes one.",
    "pretrain file.txt -o lm --vocabulary words --config none": "there is no file or folder none.",
    "score tiny none": "there is no file or folder none.",
    "score tiny files": "found files, a folder that holds o.json, weights.hdf5; give one of its files.",
    "score tiny many": "found many, a folder that holds 4 files, such as a.txt, b.txt, c.txt; give one of its",
    "score tiny folder": "expected a file, found folder, a folder that holds no files.",
    "vectors tiny files -o v.txt": "expected a file, found files, a folder that holds o.json",
    "pretrain file.txt -o lm --vocabulary files": "expected a file, found files, a folder that holds o.json",
    "pretrain file.txt -o lm --vocabulary words --config files": "files must be a file, found a folder.",
    "pretrain file.txt -o lm --vocabulary file.txt --config file.txt": "file.txt is damaged",
    "pretrain file.txt -o lm --vocabulary file.txt --config small.json": "Error: file.txt must be a vocabulary in ",
    "pretrain file.txt -o lm --vocabulary words --config typo.json": "no model can be made with typo.json: a new model "
    "cannot have `cell_sise`, `layers`",
    "pretrain file.txt -o lm --vocabulary words --config large.json": "no model can be made with large.json: "
    "`max_word_length` must be at most 4,096",
    "pretrain file.txt -o lm --vocabulary words --config wrong.json": "with wrong.json: `cell_clip` must",
    "pretrain file.txt -o lm --vocabulary words --softmax sampled": "`num_softmax_samples`",
    "pretrain file.txt -o lm --vocabulary file.txt": "<UNK>",
    "fill tiny file.txt": "there is no gap in 'text': write ___",
    "score tiny empty.txt": "empty.txt has no sentences;",
    "score tiny file.txt --per-word there.tsv": "there.tsv exists already",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    for folder in ("folder", "there", "bert", "files", "many"):
        (work / folder).mkdir()
    for name, text in {
        "bert/config.json": '{"model_type": "bert", "hidden_size": 5}',
        "blanks.txt": "river\nNew\u00a0York\n",
        "empty.txt": "\n",
        "zero.txt": "",
        "bad.jsonl": '"fine"\n{"sentence": 1}\n',
        "words": "<S>\n</S>\n<UNK>\ntext\n",
        "small.json": "{}",
        "typo.json": '{"cell_sise": 3, "layers": 2, "cell_size": 4}',
        "large.json": '{"max_word_length": 4097, "char_filters": [[1, 2]], "projection_size": 3, "cell_size": 4}',
        "wrong.json": '{"cell_clip": -1}',
        **dict.fromkeys(("file.txt", "my own file.txt", "there/file", "there.npz", "there.pt2", "there.tsv"), "text\n"),
        **dict.fromkeys(("files/o.json", "files/weights.hdf5"), "text\n"),
        **dict.fromkeys(("many/a.txt", "many/b.txt", "many/c.txt", "many/d.txt"), "text\n"),
    }.items():
        (work / name).write_text(text)
    (work / "loop").symlink_to(work / "loop")
    return work


@pytest.mark.parametrize("command", [*USAGE, *WRONG])
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    for name, value in {"HF_TOKEN": "", "HF_TOKEN_PATH": str(work / "token")}.items():
        monkeypatch.setenv(name, value)
    before = contents(work)
    result = run(*command.split())
    assert_fails(result, 2 if command in USAGE else 1, {**USAGE, **WRONG}[command])
    assert ("in quotes" in result.stderr) == ("my own file.txt" in command)
    assert contents(work) == before


def test_blanks_commas_and_repeated_options_separate_several_values_alike() -> None:
    app = typer.Typer()

    @app.command(cls=Command)
    def show(names: Annotated[list[str] | None, typer.Option(callback=split_values)] = None) -> None:
        typer.echo(repr(names or []))

    for line in ("--names a,b,c", "--names 'a b c'", "--names 'a, b' --names c", "--names a --names b --names ,c,"):
        assert CliRunner().invoke(app, shlex.split(line)).stdout == "['a', 'b', 'c']\n"
    assert CliRunner().invoke(app, []).stdout == CliRunner().invoke(app, ["--names", ""]).stdout == "[]\n"


def test_help_and_errors_of_usage_import_nothing_heavy(work: Path) -> None:
    code = """
import shlex, sys
from typer.testing import CliRunner
from elmo_hf.cli import app
for command in sys.argv[1:]:
    result = CliRunner().invoke(app, shlex.split(command))
    print(result.exit_code, "Usage: " in result.output or "size" in result.output)
heavy = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "h5py", "pyarrow", "datasets", "accelerate")
print([name for name in heavy if name in sys.modules])
"""
    light = ["--help", *(f"{verb} --help" for verb in VERBS), "models"]
    arguments = [sys.executable, "-c", code, *light, *USAGE]
    completed = subprocess.run(arguments, cwd=work, capture_output=True, text=True, check=True)
    *lines, heavy = completed.stdout.splitlines()
    assert lines == ["0 True"] * len(light) + ["2 True"] * len(USAGE)
    assert heavy == "[]"


# Commands that take a model, with a name that none has.
MISSPELLED = (
    "embed orginal text.txt -o v.npz",
    "vectors orginal text.txt -o v.txt",
    "usages orginal text.txt --word the -o u.csv",
    "score orginal text.txt",
    "fill orginal 'The ___ .'",
    "export orginal model.onnx",
    "info orginal",
    "pretrain text.txt --model orginal -o new",
)


def test_a_misspelled_name_is_refused_before_anything_heavy_is_imported(work: Path) -> None:
    code = """
import shlex, sys
from typer.testing import CliRunner
from elmo_hf.cli import app
for command in sys.argv[1:]:
    result = CliRunner().invoke(app, shlex.split(command))
    print(result.exit_code, "orginal is neither a folder nor" in result.stderr, "mean `original`?" in result.stderr)
print([name for name in ("torch", "transformers", "pyarrow", "datasets") if name in sys.modules])
"""
    arguments = [sys.executable, "-c", code, *MISSPELLED]
    completed = subprocess.run(arguments, cwd=work, capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines() == [*["1 True True"] * len(MISSPELLED), "[]"]


EXAMPLES = [verb for verb in VERBS if verb not in ("export", "push", "publish")]


@pytest.mark.parametrize("verb", [*EXAMPLES, pytest.param("export", marks=pytest.mark.same_rounding)])
def test_the_examples_of_every_help_run_in_an_empty_folder(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of push and publish need a Hub."""
    monkeypatch.chdir(tmp_path)
    for line in run(verb, "--help").stdout.split("Example:\n")[1].splitlines():
        program, *arguments = shlex.split(line)
        if program == "echo":
            text, arrow, name = arguments
            assert arrow == ">"
            Path(name).write_text(f"{text}\n", encoding="utf-8")
        else:
            assert program == "elmo-hf"
            output_of(*arguments)


def test_help_lists_every_verb_with_a_whole_sentence() -> None:
    lines = [line.split(maxsplit=1) for line in run("--help").stdout.split("Commands:")[1].splitlines() if line]
    assert [verb for verb, _ in lines] == VERBS
    assert [verb for verb, summary in lines if not summary.endswith(".") or summary.endswith("...")] == []
    assert run("-h").stdout == run("--help").stdout
    helps = "".join(run(verb, "-h").stdout for verb in VERBS)
    assert re.search(r"--(\w+) \1 ", helps, re.IGNORECASE) is None  # typer 0.27 drops an option with its value's name
    assert all(option in helps for option in ("--min-count", "bytes|code_points"))


def test_without_arguments_there_are_three_commands_and_where_the_models_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that do not download run as they are printed."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("Yes .\n")
    printed = output_of()
    lines = [shlex.split(line.split("   ")[0]) for line in printed.splitlines() if line.startswith("  elmo-hf ")]
    assert [line[1] for line in lines] == ["embed", "score", "embed"]
    for line in lines[:2]:
        output_of(*line[1:])
    assert lines[2][2] == "small"
    assert "`elmo-hf models`" in printed


def test_the_version_comes_with_those_of_torch_and_transformers() -> None:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("elmo-hf", "torch", "transformers"))
    assert run("--version").stdout == f"{versions}, Python {platform.python_version()}\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "\nStopped. Nothing incomplete is left; the same command starts again, or goes on "),
        (KeyboardInterrupt("Stopped after step 5.", 143), 143, "\nStopped after step 5.\n"),
        (KeyboardInterrupt("", 143), 143, ""),
        (DownloadStoppedError("Nothing is kept"), 130, "\nStopped. Nothing is kept; the same command downloads it "),
        (ValueError("a\nb \x1b"), 1, "Error: a b \\x1b\n"),
        (MemoryError(), 1, "Error: there is not enough memory, or a file is damaged.\n"),
    ],
    ids=str,
)
def test_a_command_ends_with_a_line_and_a_code(error: BaseException, code: int, line: str) -> None:
    app = typer.Typer()

    @app.command(cls=Command)
    def fail() -> None:
        raise error

    result = CliRunner().invoke(app, [])
    assert result.exit_code == code
    assert result.stderr.startswith(line)
    assert bool(result.stderr) == bool(line)


ORDER = "If this file is what the model reads, name the model first and the file after it."


def test_the_order_of_a_model_and_a_file_is_named_where_a_command_takes_both_as_arguments(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.touch()
    error = UnknownNameError(path)
    fact = f"{path} is a file, but a model is a folder, a Hub name such as org/name, or a short name such as `tiny`."
    assert str(error) == fact
    models = "`elmo-hf models` lists the short names."
    assert line_of(error) == f"{fact} {ORDER} {models}"
    assert line_of(error, ["--model"]) == f"{fact} {models}"
    assert ORDER not in (line_of(UnknownNameError("nowhere")) or "")


def test_mistakes_of_this_package_keep_their_traceback_and_click_ends_where_the_reader_has_seen_enough() -> None:
    assert line_of(RuntimeError("a mistake")) is None
    assert line_of(type("DecodeError", (Exception,), {"__module__": "google.protobuf.message"})()) is None
    assert line_of(BrokenPipeError()) is None  # `elmo-hf models | head -1`


@pytest.mark.parametrize("library", ["botocore.exceptions", "aiohttp", "azure.core.exceptions", "google.api_core"])
def test_an_error_of_the_library_of_a_store_is_one_line(library: str) -> None:
    error = type("ConnectionFailed", (Exception,), {"__module__": library})("Could not\nconnect")
    line = line_of(error) or ""
    assert line.startswith("a store does not answer as it should (Could not connect); look at its address")


def test_where_memory_is_short_only_an_option_of_the_command_is_recommended() -> None:
    app = typer.Typer()

    @app.command(cls=Command)
    def score(rows: int = 1) -> None:
        raise MemoryError

    @app.command(cls=Command)
    def embed(batch_words: int = 1) -> None:
        raise MemoryError

    @app.command(cls=Command)
    def info() -> None:
        raise MemoryError

    reason = "Error: there is not enough memory, or a file is damaged."
    assert [CliRunner().invoke(app, [name]).stderr for name in ("score", "embed", "info")] == [
        f"{reason} Give a smaller --rows.\n",
        f"{reason} Give a smaller --batch-words.\n",
        f"{reason}\n",
    ]


def test_advice_names_the_options_of_the_command_and_otherwise_the_arguments(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(">a\nOK\n")
    app = typer.Typer()

    @app.command(cls=Command)
    def embed(input_format: str = "", encoding: str = "") -> None:
        next(read_sentences(path))

    @app.command(cls=Command)
    def info() -> None:
        next(read_sentences(path))

    advice = "Give {}fasta{} if it is, or {}text{} to read each line as a sentence."
    in_command, alone = (CliRunner().invoke(app, [name]).stderr for name in ("embed", "info"))
    assert in_command.endswith(advice.format(*("`--input-format ", "`") * 2) + "\n")
    assert alone.endswith(advice.format(*("`input_format='", "'`") * 2) + "\n")
    path.write_bytes("Übung\n".encode("latin-1"))
    in_command, alone = (CliRunner().invoke(app, [name]).stderr for name in ("embed", "info"))
    shown = "`elmo-hf embed MODEL FILE --encoding NAME --dry-run` shows how it is read.\n"
    assert in_command.endswith(f"give `--encoding cp1252`, and see whether the text is read well. {shown}")
    assert alone.endswith("give `encoding='cp1252'`, and see whether the text is read well.\n")


def test_a_command_notes_an_encoding_once_and_advises_no_dry_run_in_a_dry_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_bytes("A small café.\n".encode("cp1252"))
    damaged = tmp_path / "c.txt"
    damaged.write_bytes("Übung\n".encode("latin-1"))
    app = typer.Typer()

    @app.command(cls=Command)
    def embed(encoding: str = "", dry_run: bool = False) -> None:
        for path in paths:
            list(read_sentences(path, encoding="cp1252"))
        list(read_sentences(damaged))

    note = f"Note: {paths[0]} is read in cp1252, its first letters beyond ASCII as 'café.'. If they are wrong, give "
    note += "another encoding (`--encoding NAME`)."
    shown = " `elmo-hf embed MODEL FILE --encoding NAME --dry-run` shows how it is read."
    for arguments, advice in (([], shown), (["--dry-run"], "")):
        caplog.clear()
        line = CliRunner().invoke(app, arguments).stderr.splitlines()[-1]
        assert line.endswith(f"and see whether the text is read well.{advice}")
        assert [record.getMessage() for record in caplog.records] == [f"{note}{advice}"]


def test_notes_name_the_options_of_the_command_that_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x.txt"
    path.write_text('{"text": "a"}\n' * 3)
    output_of("vocab", path, "-o", tmp_path / "words.txt")
    list(read_sentences(path))
    in_command, alone = (record.getMessage() for record in caplog.records if record.name == "elmo_hf.text")
    assert in_command.endswith("; `--input-format text` reads it as text.")
    assert alone.endswith("; `input_format='text'` reads it as text.")


def test_the_package_runs_as_a_module() -> None:
    arguments = [sys.executable, "-m", "elmo_hf", "--version"]
    completed = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert completed.stdout == output_of("--version")


@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is not installed")
def test_a_command_that_imports_torchao_says_nothing_of_it() -> None:
    """Its libraries may not fit this machine, and torch warns of it; help and version do not import it at all."""
    arguments = [sys.executable, "-m", "elmo_hf.cli", "info", "tiny"]
    completed = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert completed.stderr == ""
    assert completed.stdout.startswith("model ")


def test_no_memory_is_not_taken_for_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is damaged") as error, naming("optimizer.pt is damaged"):
        raise MemoryError
    assert (line_of(error.value) or "").startswith("there is not enough memory")
