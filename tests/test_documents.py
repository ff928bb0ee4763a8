"""Every Python block of the documents runs, and every command exists."""

import json
import re
import shlex
from pathlib import Path

import pytest
from archives import manylangs_files, write_zip
from checkpoints import BASE, run_online, run_python
from loopback_hub import LoopbackHub
from typer.testing import CliRunner

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.cli import app

DOCS = Path(__file__).parents[1] / "docs"
# Runs the Python of several documents, each with names of its own, and prints what each printed, or its error.
SCRIPT = """
import contextlib, io, json, os, sys, traceback

printed = {}
for name, (folder, code) in json.load(open(sys.argv[1], encoding="utf-8")).items():
    os.chdir(folder)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        printed[name] = output.getvalue()
    except Exception:
        printed[name] = traceback.format_exc()
print(json.dumps(printed))
"""


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def furnish(folder: Path, model: Path) -> Path:
    """Fills a folder in which one model has every name that the documents load."""
    folder.mkdir(exist_ok=True)
    for name in ("elmo-original", "elmo-small", "elmo-en"):
        (folder / name).symlink_to(model)
    for name in ("options.json", "weights.hdf5"):
        (folder / name).symlink_to(BASE / name)
    (folder / "sentences.txt").write_text("The ferry left .\n\nYes .\n", encoding="utf-8")
    (folder / "text.conllu").write_text("1\tYes" + "\t_" * 8 + "\n\n", encoding="utf-8")
    return folder


@pytest.fixture
def place(tiny_folder: Path, tmp_path: Path) -> Path:
    return furnish(tmp_path, tiny_folder)


@pytest.fixture(scope="module")
def printed(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """What the guides to migration, tasks and speed print, from one process; each has a folder of its own."""
    work = tmp_path_factory.mktemp("documents")
    one_layer = work / "one_layer"  # exporting takes a time for each layer
    sizes = {"projection_size": 8, "cell_size": 12, "char_embedding_size": 3, "char_filters": [[1, 4], [2, 5]]}
    ElmoModel(ElmoConfig(num_hidden_layers=1, num_highway_layers=1, **sizes)).save_pretrained(one_layer)
    ElmoTokenizer().save_pretrained(one_layer)
    programs = {}
    for name, program, model in (
        ("migration", migration_program(), tiny_folder),
        ("tasks", tasks_program(), tiny_folder),
        ("speed", speed_program(), one_layer),
    ):
        programs[name] = (str(furnish(work / name, model)), program)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work / "speed")
        command = next(line for line in "".join(blocks(read("speed"), "bash")).splitlines() if "export" in line)
        result = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        assert result.exit_code == 0, result.output
    (work / "programs.json").write_text(json.dumps(programs), encoding="utf-8")
    return work, json.loads(run_python(SCRIPT, work, work / "programs.json").splitlines()[-1])


def read(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def migration_program() -> str:
    """The blocks under **now**, with an assertion for each shape in a comment; the tiny model is 16 wide, not 1024."""
    lines = []
    for line in "\n".join(now_blocks(read("migration"))).splitlines():
        lines.append(line)
        told = re.fullmatch(r"(\w+)(?:, \w+)? = .*  # .*?\(((?:\d+, )+\d+)\).*", line)
        if told:
            shape = [{1024: 16, 3072: 48, 512: 8}.get(int(size), int(size)) for size in told[2].split(", ")]
            lines.append(f"assert list({told[1]}.shape) == {shape}, {line!r}")
    return "\n".join([*lines, "print('all shapes are right')"])


def now_blocks(text: str) -> list[str]:
    return re.findall(r"\*\*now\*\*\n\n```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def tasks_program() -> str:
    shown = "print(tuple(logits.shape), answer in contexts[0], trainer.train_dataset.column_names[-1])"
    return "\n".join([*blocks(read("tasks"), "python"), shown])


def speed_program() -> str:
    quantise, run = (block for block in blocks(read("speed"), "python") if "torchao" in block or "onnxruntime" in block)
    shown = "print(type(model.bilm.layers[0].forward_lstm.projection.weight).__name__, vectors.shape, pooled.shape)"
    return f"{quantise}{run}{shown}"


def test_what_the_migration_guide_says_to_write_now_runs_and_has_the_documented_shapes(
    printed: tuple[Path, dict[str, str]],
) -> None:
    text = read("migration")
    before = [block for block in blocks(text, "python") if block.startswith("# before")]
    assert len(now_blocks(text)) == len(before) == len(blocks(text, "python")) / 2
    assert sum(line.startswith("assert") for line in migration_program().splitlines()) == 11
    assert printed[1]["migration"].splitlines()[-1] == "all shapes are right", printed[1]["migration"]


def test_commands_of_the_migration_guide_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    (place / "elmo-en").unlink()
    write_zip(place / "144.zip", manylangs_files())
    ran = 0
    for block in blocks(read("migration"), "bash"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and "--model" not in words and "SOURCE" not in words:
                result = CliRunner().invoke(app, words[1:])
                assert result.exit_code == 0, (line, result.output)
                ran += 1
    assert ran == 4


def test_the_python_of_the_guide_to_tasks_runs(printed: tuple[Path, dict[str, str]]) -> None:
    work, texts = printed
    assert texts["tasks"].splitlines()[-1] == "(1, 6, 3) True bilm_layers", texts["tasks"]
    code = (work / "tasks" / "film-elmo" / "modeling_elmo.py").read_text(encoding="utf-8")
    assert "class ElmoForSequenceClassification(" in code


def test_what_the_guide_to_speed_shows_of_quantising_and_exporting_runs(printed: tuple[Path, dict[str, str]]) -> None:
    assert printed[1]["speed"].splitlines()[-1] == "Int8Tensor (2, 8, 16) (2, 16)", printed[1]["speed"]


@pytest.mark.parametrize("name", ["migration", "hub", "tasks", "speed"])
def test_every_command_and_option_exists(name: str) -> None:
    lines = [line for block in blocks(read(name), "bash") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("elmo-hf")]
    assert commands
    for _, verb, *arguments in commands:
        help_text = CliRunner().invoke(app, [verb, "--help"]).output
        assert all(re.search(rf"(?<!\S){word}\b", help_text) for word in arguments if word.startswith("-")), arguments


def test_the_python_of_the_hub_guide_runs_against_a_hub(
    hub: LoopbackHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "\n".join(blocks(read("hub"), "python")).replace("my-org/", "org/")
    monkeypatch.chdir(place)
    run_online(code, hub, place / "home")
    assert {"model.safetensors", "tokenizer.json", "modeling_elmo.py"} <= set(hub.files("org/elmo-small"))
    assert b"on three sentences." in hub.files("org/elmo-mine")["README.md"]
