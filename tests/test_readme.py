"""What the README shows runs as printed, on the tiny model in place of a published one."""

import re
from pathlib import Path

from checkpoints import run_python
from typer.testing import CliRunner

from elmo_hf.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SET_UP = """
batches = [[["The", "ferry", "left", "."], ["Yes"]], [["No"]], [["A", "b"], ["c"], ["d", "."]]]
"""
SHOW = """
print([tuple(tensor.shape) for tensor in (*outputs.elmo_representations, *state)])
"""


def test_the_python_of_the_readme_runs(tiny_folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 3
    code = SET_UP + "".join(blocks).replace('"elmo-small"', repr(str(tiny_folder))) + SHOW
    assert run_python(code, tiny_folder.parent) == "[(3, 4, 16), (2, 3, 16), (2, 3, 64)]\n"


def test_every_option_of_the_readmes_commands_is_one_of_the_command_line() -> None:
    commands = re.findall(r"elmo-hf (convert|embed|export|push|verify|vocab|pretrain|score) ([^#\n`&]*)", README)
    assert len(commands) >= 14
    for verb, arguments in commands:
        help_text = CliRunner().invoke(app, [verb, "--help"]).output
        for option in re.findall(r"(?<!\S)--?[a-z][a-z-]*", arguments):
            assert re.search(rf"(?<!\S){option}\b", help_text), (verb, option)
