"""Pages of the documentation as programs: their Python, their commands, and what they show as printed."""

import json
import re
from pathlib import Path

from tests.helpers.checkpoints import run_python

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# What a reader puts something in place of, or what needs a network.
NOT_RUN = re.compile(r"# downloads|# needs the download|\b(SOURCE|SAVE_DIR|MODEL)\b")
# What a program of a page begins with. A command's output is printed where the page shows it, and the begin of a table
# that a page shows is compared with the file that the last command wrote.
START = """
import csv, os, runpy, shlex, sys
from typer.testing import CliRunner
from elmo_hf.cli import app

def run_command(line, is_shown):
    program, *arguments = shlex.split(line, comments=True)
    if program == "python":
        sys.argv = arguments
        sys.path.insert(0, os.path.abspath(os.path.dirname(arguments[0])))  # where the program's other modules are
        try:
            runpy.run_path(arguments[0], run_name="__main__")
        except SystemExit as end:
            assert not end.code, (line, end.code)
        return
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (line, result.output)
    if is_shown:
        print(result.stdout, end="")

def check_table(path, begin):
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        for line in csv.reader(begin.splitlines()):
            for cell, other in zip(line, found := next(rows), strict=True):
                assert cell == other or abs(float(cell) - float(other)) < 1e-3, (path, line, found)

"""
# Runs several programs, each with names of its own; prints what each printed, or its error.
SCRIPT = """
import contextlib, io, json, os, sys, traceback

printed = {}
for name, (folder, code) in json.load(open(sys.argv[1], encoding="utf-8")).items():
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        printed[name] = output.getvalue()
    except Exception:  # whatever a page raises stands where its output should be, so its test fails
        printed[name] = output.getvalue() + traceback.format_exc()
print(json.dumps(printed))
"""


def read(name: str) -> str:
    """A page, with what it takes from the README."""
    text = (ROOT / f"{name}.md" if name == "README" else ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    def section(match: re.Match[str]) -> str:
        begin, end = (f"<!-- --8<-- [{edge}:{match[1]}] -->\n" for edge in ("start", "end"))
        return readme.split(begin)[1].split(end)[0]

    return re.sub(r'^--8<-- "README\.md:(\w+)"\n', section, text, flags=re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    return [code for found, code in FENCE.findall(text) if found == language]


def program(text: str) -> str:
    """A page's Python and commands in their order."""
    fences = FENCE.findall(text)
    parts = [START]
    for (language, code), (after, _) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if language == "python":
            parts.append(code)
        elif language == "bash":
            for line in code.splitlines():
                if re.match(r"(elmo-hf|python examples/)", line) and not NOT_RUN.search(line):
                    parts.append(f"run_command({line!r}, {after == 'text'})\n")
                    written = line.split()[-1]  # the table whose begin a block shows
        elif language == "csv":
            parts.append(f"check_table({written!r}, {code!r})\n")
    return "".join(parts)


def run_programs(work: Path, programs: dict[str, tuple[Path, str]]) -> dict[str, str]:
    """What programs print, or their error, from one process, because each would start by importing transformers.

    Args:
        work: a folder for this.
        programs: the folder that a program runs in, and its code, by its name.
    """
    (work / "programs.json").write_text(json.dumps(programs, default=str), encoding="utf-8")
    return json.loads(run_python(SCRIPT, work, work / "programs.json").splitlines()[-1])


def shown(text: str) -> str:
    return "".join(blocks(text, "text"))
