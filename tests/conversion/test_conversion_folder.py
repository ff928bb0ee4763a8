"""A converted folder: its card, its place, names from anywhere, and weights in bfloat16."""

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from archives import write_files
from checkpoints import BASE, TINY_LM, allennlp_to_folder, arrays_of
from commands import assert_fails, run
from huggingface_hub import ModelCard
from language_models import tiny_files
from safetensors.torch import load_file

from elmo_hf import ElmoModel
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp

CARDS = {
    "tiny": (
        [BASE / "options.json", BASE / "weights.hdf5"],
        "| token encoder | 4-d characters, filters 1:4, 2:8, 3:12, 4:8 (relu), 2 highway layers |",
    ),
    "tiny_lm": ([TINY_LM / "options.json", *TINY_LM.glob("model.ckpt-1.[di]*")], "| softmax | 28 words |"),
}


@pytest.mark.parametrize("name", CARDS)
def test_the_card_has_the_source_the_check_and_the_sizes(name: str, request: pytest.FixtureRequest) -> None:
    text = (request.getfixturevalue(f"{name}_folder") / "README.md").read_text(encoding="utf-8")
    lines, (sources, line) = text.splitlines(), CARDS[name]
    for path in sources:
        assert f"| `{path.name}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" in lines
    assert re.search(r"NumPy biLM in float64\non the source's arrays was [1-9]\.\de-0[67]\.", text)
    arrays = arrays_of(BASE if name == "tiny" else tiny_files())
    assert f"| parameters | {sum(array.size for array in arrays.values()):,} |" in lines
    assert line in lines


def test_an_existing_destination_is_left_as_it_is(tiny_folder: Path, tmp_path: Path) -> None:
    destination = write_files(tmp_path / "DEST", {"precious.txt": b"mine"})
    with pytest.raises(FileExistsError, match="DEST"):
        convert_source(tmp_path / "nowhere", destination, Given())
    with pytest.raises(FileExistsError, match="DEST"):
        folder_to_allennlp(tiny_folder, destination)
    assert {path.name: path.read_bytes() for path in destination.iterdir()} == {"precious.txt": b"mine"}
    assert [*tmp_path.iterdir()] == [destination]


def test_a_destination_may_be_empty_new_or_a_link(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")
    for name in ("empty", "a/b/new", "link"):
        allennlp_to_folder(BASE, tmp_path / name)
        assert {path.name for path in (tmp_path / name).iterdir()} == {path.name for path in tiny_folder.iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "empty", "link", "place"]


NAME, LATIN = 'it\'s "me"\n---\n<script>`{{ x }}` **$', os.fsdecode(b"caf\xe9")  # a name of Linux in Latin-1


def test_a_folder_of_any_name_gets_a_card_that_shows_it(tmp_path: Path) -> None:
    source = shutil.copytree(BASE, tmp_path / f"{NAME}{LATIN}")
    (source / "weights.hdf5").rename(source / "a|b``c`.hdf5")
    result = run("convert", source, tmp_path / f"{NAME}2")
    assert result.exit_code == 0, result.output
    text = (tmp_path / f"{NAME}2" / "README.md").read_text(encoding="utf-8")
    assert sorted(ModelCard(text).data.to_dict()) == ["library_name", "pipeline_tag", "tags"]
    lines = text.splitlines()
    shown = 'it\'s "me"\\\\n---\\\\n\\<script\\>\\`{{ x }}\\` \\*\\*$'
    assert f"# {shown}2" in lines
    assert rf"converted from {shown}caf\\udce9 by `elmo-hf` 0.1.0." in lines
    assert any(line.startswith("| ```a\\|b``c`.hdf5``` | `") for line in lines)
    (argument,) = {line.split("(")[1].split(", trust")[0] for line in lines if "from_pretrained(" in line}
    assert eval(argument) == f"{NAME}2"
    before = sorted(tmp_path.iterdir())
    assert_fails(run("convert", BASE, tmp_path / f"{LATIN}2"), 1, "surrogates not allowed")
    assert sorted(tmp_path.iterdir()) == before


def test_bfloat16_rounds_every_weight_and_the_softmax(tiny_folder: Path, tiny_lm_folder: Path, tmp_path: Path) -> None:
    assert run("convert", BASE, tmp_path / "to", "--dtype", "bfloat16").exit_code == 0
    allennlp_to_folder(tiny_files(), tmp_path / "lm", dtype="bfloat16")
    for folder, whole in ((tmp_path / "to", tiny_folder), (tmp_path / "lm", tiny_lm_folder)):
        saved, tensors = (
            {name: each for file in place.glob("*.safetensors") for name, each in load_file(file).items()}
            for place in (folder, whole)
        )
        assert saved.keys() == tensors.keys()
        assert all(torch.equal(tensor, tensors[name].bfloat16()) for name, tensor in saved.items())
    assert ElmoModel.from_pretrained(tmp_path / "to").dtype == torch.bfloat16
