"""Every Python block of the documents runs, prints what the page shows, and every command exists."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from archives import manylangs_files, write_zip
from checkpoints import BASE, run_online, run_python
from loopback_hub import LoopbackHub
from pages import FENCE, ROOT, SCRIPT, START, blocks, commands, program, read, shown
from pretraining_runs import FIELDS, make_sentences, write_text
from typer.testing import CliRunner

from elmo_hf import ElmoConfig, ElmoModel, ElmoTokenizer
from elmo_hf.cli import app

# Pages whose Python and commands run as printed in a clone, and print what the page shows; the libraries they need.
AS_PRINTED = {
    "README": [],
    "chinese": [],
    "cloze": [],
    "commands": [],
    "convert": [],
    "embed": [],
    "install": [],
    "linguists": [],
    "neighbours": ["sklearn", "spacy", "sentence_transformers", "keybert", "peft", "pandas"],
    "pretraining": [],
    "scale": [],
    "surprisal": [],
    "vectors": [],
}
# What only a clone, or a folder of a model, has; a page that names none of it runs in an empty folder.
OF_A_CLONE = re.compile(r"\b(examples|tests|elmo-(original|small|en)|glove\.txt|options\.json)\b")
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def furnish(folder: Path, model: Path) -> Path:
    """Fills a folder with a clone's samples, and with what the documents name: one model has every name."""
    folder.mkdir(exist_ok=True)
    for name in ("examples", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("elmo-original", "elmo-small", "elmo-en"):
        (folder / name).symlink_to(model)
    for name in ("options.json", "weights.hdf5"):
        (folder / name).symlink_to(BASE / name)
    (folder / "sentences.txt").write_text("The ferry left .\n\nYes .\n", encoding="utf-8")
    (folder / "glove.txt").write_text("film 0.5 2\nlovely 1 -1\n", encoding="utf-8")
    (folder / "text.conllu").write_text("1\tYes" + "\t_" * 8 + "\n\n", encoding="utf-8")
    return folder


def furnish_with_corpus(folder: Path, model: Path) -> Path:
    """A furnished folder with a corpus and a config, so small that a run takes seconds."""
    furnish(folder, model)
    lines = "".join(" ".join(words) + "\n" for words in make_sentences(600))
    (folder / "corpus").mkdir()
    (folder / "corpus" / "part.txt.gz").write_bytes(gzip.compress(lines.encode()))
    for seed, name in enumerate(("held-out.txt", "domain.txt"), start=2):
        write_text(folder / name, make_sentences(600, seed))
    (folder / "config.json").write_text(json.dumps(FIELDS), encoding="utf-8")
    return folder


@pytest.fixture
def place(tiny_folder: Path, tmp_path: Path) -> Path:
    return furnish(tmp_path, tiny_folder)


@pytest.fixture(scope="module")
def printed(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the pages print, from one process; each has a folder of its own."""
    work = tmp_path_factory.mktemp("documents")
    one_layer = work / "one_layer"  # exporting takes a time for each layer
    sizes = {"projection_size": 8, "cell_size": 12, "char_embedding_size": 3, "char_filters": [[1, 4], [2, 5]]}
    ElmoModel(ElmoConfig(num_hidden_layers=1, num_highway_layers=1, **sizes)).save_pretrained(one_layer)
    ElmoTokenizer().save_pretrained(one_layer)
    codes = {
        "migration": migration_program(),
        "tasks": tasks_program(),
        "speed": speed_program(),
        **{name: program(read(name)) for name, needed in AS_PRINTED.items() if all(map(find_spec, needed))},
    }
    codes["README"] += readme_commands("elmo-hf (?:convert tests|embed|score)")
    codes["course"] = course_program()
    codes["pretraining"] = codes["pretraining"].replace("--frozen-steps 1000", "--frozen-steps 2")
    programs = {}
    for name, code in codes.items():
        model = one_layer if name == "speed" else tiny_folder
        furnished = furnish_with_corpus if name == "pretraining" else furnish
        furnished(work / name, model) if OF_A_CLONE.search(code) else (work / name).mkdir()
        programs[name] = (str(work / name), code)
    (work / "programs.json").write_text(json.dumps(programs), encoding="utf-8")
    return json.loads(run_python(SCRIPT, work, work / "programs.json").splitlines()[-1])


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
    page = read("tasks")
    shown = "print(tuple(logits.shape), answer in contexts[0], trainer.train_dataset.column_names[-1], sorted(rows))"
    recipes = [line for line in "".join(blocks(page, "bash")).splitlines() if line.startswith("python ")]
    commands = [f"run_command({line!r}, False)" for line in recipes]
    return "\n".join([*blocks(page, "python"), shown, START, *commands])


def readme_commands(only: str) -> str:
    """Commands of the README's tables that begin with a pattern."""
    lines = re.findall(rf"`((?:{only})[^`]*)`", FENCE.sub("", read("README")))
    assert lines, only
    return "".join(f"run_command({line!r}, False)\n" for line in lines)


def course_program() -> str:
    """The code of the notebook, which runs where it lies."""
    cells = json.loads((ROOT / "examples" / "course.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    return "\n".join(["import os", "os.chdir('examples')", *("".join(cell["source"]) for cell in code)])


def speed_program() -> str:
    command = next(line for line in "".join(blocks(read("speed"), "bash")).splitlines() if "export" in line)
    quantise, run = (block for block in blocks(read("speed"), "python") if "torchao" in block or "onnxruntime" in block)
    shown = "print(type(model.bilm.layers[0].forward_lstm.projection.weight).__name__, vectors.shape, pooled.shape)"
    return f"{START}run_command({command!r}, False)\n{quantise}{run}{shown}"


# For each program made of a page that does not run as printed, patterns of lines that it prints in this order.
LINES = {
    "migration": [r"all shapes are right$"],
    "course": [r"the same: True$", r"top layer: True$", r"tiny 0\.\d\d, random weights 0\.\d\d$"],
    "tasks": [
        r"\(1, 6, 3\) True bilm_layers \['attention_mask', 'input_ids', 'word_vector_ids'\]$",
        r"\| films\.csv \| 2 \|",
        r"\| names\.conll \| 36 \|",
        r"\| questions\.jsonl \| 1 \|",
        *[r"\| films \| accuracy \|"] * 2,
    ],
    "speed": [r"Int8Tensor \(2, 8, 16\) \(2, 16\)$"],
}


@pytest.mark.parametrize("name", LINES)
def test_a_program_made_of_a_page_prints_its_results(name: str, printed: dict[str, str]) -> None:
    assert "Traceback" not in printed[name], printed[name]
    lines = iter(printed[name].splitlines())
    assert all(any(re.match(pattern, line) for line in lines) for pattern in LINES[name]), printed[name]


def test_every_block_under_now_is_run_and_its_shape_asserted() -> None:
    text = read("migration")
    before = [block for block in blocks(text, "python") if block.startswith("# before")]
    assert len(now_blocks(text)) == len(before) == len(blocks(text, "python")) / 2
    assert sum(line.startswith("assert") for line in migration_program().splitlines()) == 11


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


@pytest.mark.parametrize("name", AS_PRINTED)
def test_a_page_runs_and_prints_what_it_shows(name: str, printed: dict[str, str]) -> None:
    for library in AS_PRINTED[name]:
        pytest.importorskip(library)
    assert printed[name] == shown(read(name))


@pytest.mark.slow
def test_the_commands_of_the_readmes_tables_that_take_long_run_one_after_the_other(place: Path) -> None:
    for library in ("onnxscript", "seqeval", "sklearn"):
        pytest.importorskip(library)
    verbs = "elmo-hf (?:convert tests|pretrain|fill|export)|python examples/classify"
    code = START + readme_commands(verbs)
    (place / "programs.json").write_text(json.dumps({"README": (str(place), code)}), encoding="utf-8")
    printed = json.loads(run_python(SCRIPT, place, place / "programs.json").splitlines()[-1])["README"]
    assert "Traceback" not in printed, printed
    assert (place / "elmo.onnx").stat().st_size > 0
    assert (place / "my-tiny" / "model.safetensors.index.json").exists()


@pytest.mark.parametrize("name", ["README", *PAGES])
def test_every_command_and_option_exists(name: str) -> None:
    for _, verb, *arguments in commands(read(name)):
        result = CliRunner().invoke(app, [verb, *([] if verb.startswith("-") else ["--help"])])
        assert result.exit_code == 0, (verb, result.output)
        options = {word for word in arguments if re.fullmatch(r"--?[a-z].*", word)}
        assert all(re.search(rf"(?<!\S){option}\b", result.output) for option in options), (verb, arguments)


@pytest.mark.parametrize("name", ["README", *PAGES])
def test_every_link_leads_to_a_page_and_its_heading(name: str) -> None:
    folder = ROOT if name == "README" else ROOT / "docs"
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", read(name)):
        path, _, anchor = target.partition("#")
        page = folder / path if path else folder / f"{name}.md"
        assert page.exists(), target
        if anchor:
            included = re.sub(r'^--8<-- "([\w/]+\.md)"$', lambda match: (ROOT / match[1]).read_text(), read(page.stem))
            titles = re.findall(r"^#+ (.*)$", included, re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}, target


def test_the_site_has_every_page() -> None:
    text = re.findall(r"^ +- .*: ([\w/]+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(text) == PAGES


def test_the_site_can_be_built(tmp_path: Path) -> None:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "elmo_hf.ElmoModel" in (tmp_path / "api" / "index.html").read_text(encoding="utf-8")


def test_the_tutorial_runs_against_a_hub_and_prints_what_it_shows(
    hub: LoopbackHub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = read("tutorial").replace("my-org/", "org/")
    monkeypatch.chdir(place)
    output = run_online(program(text), hub, place / "home")
    output = re.sub(r"^\s*\{'train_runtime.*\n|^This line loads it.*\n.*\n", "", output, flags=re.MULTILINE)
    assert output == shown(text)
    assert "model.safetensors" in hub.files("org/sea-or-house")


def test_the_hub_guide_runs_against_a_hub(
    hub: LoopbackHub, place: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "elmo-small").unlink()
    shutil.copytree(tiny_folder, place / "elmo-small")  # its card is changed
    monkeypatch.chdir(place)
    run_online(program(read("hub")).replace("my-org/", "org/"), hub, place / "home")
    assert "license: apache-2.0" in (place / "elmo-small" / "README.md").read_text(encoding="utf-8")
    assert {"model.safetensors", "tokenizer.json", "modeling_elmo.py"} <= set(hub.files("org/elmo-small"))
    assert b"on three sentences." in hub.files("org/elmo-mine")["README.md"]
