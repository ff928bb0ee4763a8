"""What `convert` recognises and finds, dumps of token vectors; the converted folder: its card, place and precision."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from elmo_hf import ElmoModel
from elmo_hf.conversion.contract import NamedFiles
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.hdf5 import read_arrays
from elmo_hf.conversion.readers.torch_files import read_state_dict
from elmo_hf.conversion.refusals import ConversionError
from elmo_hf.conversion.witness.reference import ReferenceElmo
from elmo_hf.share.model_info import describe
from tests.helpers.archives import MANYLANGS, state_bytes, write_files
from tests.helpers.checkpoints import (
    BASE,
    TINY_LM,
    allennlp_to_folder,
    base_checkpoint,
    bits,
    digested,
    outputs_of,
    read_datasets,
    write_datasets,
)
from tests.helpers.commands import assert_fails, run
from tests.helpers.language_models import tiny_files, words_file

WEIGHTS = {"elmo_weights.hdf5": (TINY_LM / "weights.hdf5").read_bytes()}
OPTIONS = (TINY_LM / "options.json").read_bytes()


@pytest.mark.parametrize(
    ("files", "source", "found"),
    [
        ({"elmo_options.json": OPTIONS, "config.json": b"", "README.txt": b""}, "", ["elmo_options.json"]),
        ({"options.json": OPTIONS, "a_options.json": b""}, "", ["options.json"]),
        ({"options.json": OPTIONS, "checkpoint": b"", "model.ckpt-1.meta": b""}, "", ["options.json"]),
        ({"elmo_options.json": OPTIONS, "b_options.json": b""}, "elmo_weights.hdf5", ["elmo_options.json"]),
    ],
    ids=["by suffix", "the usual name", "remains of a checkpoint", "the name of the weights"],
)
def test_files_are_found_by_their_names(files: dict[str, bytes], source: str, found: list[str], tmp_path: Path) -> None:
    write_files(tmp_path / "source", WEIGHTS | files)
    convert_source(tmp_path / "source" / source, tmp_path / "to", NamedFiles())
    assert digested(tmp_path / "to") == [*found, "elmo_weights.hdf5"]


def test_files_that_the_user_names_are_taken_where_the_source_has_several(tmp_path: Path) -> None:
    contents = {"options.json": OPTIONS, "a.hdf5": b"no weights", "b.hdf5": WEIGHTS["elmo_weights.hdf5"]}
    source = write_files(tmp_path / "source", contents | {"c_options.json": b"no options"})
    files = NamedFiles(options=source / "options.json", weights=source / "b.hdf5")
    convert_source(source, tmp_path / "to", files)
    assert digested(tmp_path / "to") == ["options.json", "b.hdf5"]


@pytest.mark.parametrize(
    ("folder", "file", "held"),
    [
        (BASE, "options.json", "options and weights of AllenNLP, bilm-tf or simple_elmo"),
        (MANYLANGS, "char.dic", "an ELMoForManyLangs model"),
        (MANYLANGS, "config.json", "an ELMoForManyLangs model"),
        (MANYLANGS, "encoder.pkl", "an ELMoForManyLangs model"),
    ],
)
def test_of_one_file_of_a_checkpoint_the_error_names_the_folder_which_is_converted(
    folder: Path, file: str, held: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError) as refused:
        convert_source(folder / file, tmp_path / "to", NamedFiles())
    advice = f"The folder {folder} holds {held}: to convert it, give the folder in place of this file."
    assert str(refused.value).endswith(f" It holds {file}. {advice}")
    convert_source(folder, tmp_path / "to", NamedFiles())
    assert (tmp_path / "to" / "config.json").is_file()


def test_of_a_file_beside_no_checkpoint_the_error_names_no_folder(tmp_path: Path) -> None:
    write_files(tmp_path / "source", {"options.json": OPTIONS, "elsewhere/weights.hdf5": b""})
    with pytest.raises(ConversionError, match=r" It holds options\.json\.$"):
        convert_source(tmp_path / "source" / "options.json", tmp_path / "to", NamedFiles())


WORDS = ["<S>", "</S>", "<UNK>", "The", "ferry", "日本語", "x" * 60]


def layers_of(folder: Path, words: list[str]) -> torch.Tensor:
    return torch.stack(outputs_of(folder, [words]).hidden_states)


@pytest.mark.parametrize("has_characters", [True, False])
def test_words_of_a_dump_have_the_vectors_of_their_characters_and_return(
    has_characters: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    options, arrays = base_checkpoint()
    reference = ReferenceElmo(options, arrays)
    dump = {"embedding": np.stack([reference.word_vector(word) for word in WORDS]).astype(np.float32)}
    if not has_characters:
        del options["char_cnn"]
    (tmp_path / "options.json").write_text(json.dumps(options), encoding="utf-8")
    path = write_datasets(tmp_path / "dump.hdf5", dump)
    given = NamedFiles(tmp_path / "options.json", vocabulary=words_file(tmp_path, WORDS), token_embeddings=path)
    told: list[str] = []
    convert_source(BASE, tmp_path / "to", given, report=told.append)
    assert told[1:] == ["Note: the character CNN is left out: words have the vectors of dump.hdf5."]
    words = ["ferry", "The", "x" * 60, "日本語"]
    torch.testing.assert_close(layers_of(tmp_path / "to", words), layers_of(tiny_folder, words), atol=1e-5, rtol=0)
    unknown, as_unknown = (layers_of(tmp_path / "to", [word]) for word in ("unseen", "<UNK>"))
    torch.testing.assert_close(unknown, as_unknown, atol=0, rtol=0)
    assert digested(tmp_path / "to") == ["options.json", "weights.hdf5", "dump.hdf5"]
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    expected = {name: array for name, array in arrays.items() if name.startswith("RNN_")} | dump
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(expected)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == WORDS


@pytest.mark.parametrize("settings", [{}, {"chunks": (2, 3), "compression": "gzip"}, {"chunks": (5, 7)}])
def test_arrays_of_hdf5_files_are_what_h5py_reads(settings: dict[str, Any], tmp_path: Path) -> None:
    path, table = tmp_path / "x.hdf5", np.arange(35, dtype=np.float32).reshape(5, 7) / 3
    with h5py.File(path, "w") as file:
        file.create_dataset("a/b/table", data=table, **settings)
        file.create_dataset("number", data=3)
        file.create_dataset("empty", data=np.zeros((0, 3)))
        file["a/loop"] = file["/"]
        file["again"] = file["a"]
        file["soft"] = h5py.SoftLink("/number")
    found = read_arrays(path)
    (name,) = {name for name in found if name.endswith("/table")}
    assert bits(found) == bits({name: table, "number": np.array(3), "empty": np.zeros((0, 3))})


@pytest.mark.parametrize("as_zip", [False, True], ids=["older form", "newer form"])
def test_every_tensor_of_torchs_files_is_what_torch_reads(as_zip: bool, tmp_path: Path) -> None:
    table = torch.arange(24.0).reshape(4, 6) / 7
    state = {str(kind): table.to(kind) for kind in (torch.float64, torch.float16, torch.bfloat16, torch.int64)}
    state |= {"turned": table.T, "part": table[1:3, ::2], "number": torch.tensor(3.5), "empty": torch.zeros(0, 3)}
    state |= {"again": table, "parameter": torch.nn.Parameter(table[0]), "large": torch.tensor([1e30]).bfloat16()}
    (tmp_path / "task.th").write_bytes(state_bytes(state, as_zip=as_zip))
    expected = {
        name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in state.items()
    }
    assert bits(read_state_dict(tmp_path / "task.th")) == bits(expected)
    if not as_zip:  # as a GPU's are saved
        content = state_bytes({"w": torch.ones(9)}).replace(b"ctorch\nFloat", b"ctorch.cuda\nFloat")
        (tmp_path / "task.th").write_bytes(content.replace(b"cpu", b"gpu"))
        np.testing.assert_array_equal(read_state_dict(tmp_path / "task.th")["w"], np.ones(9, np.float32))


CARDS = {
    "tiny": (
        [BASE / "options.json", BASE / "weights.hdf5"],
        "| token encoder | 4-d characters, filters 1:4, 2:8, 3:12, 4:8 (relu), 2 highway layers |",
    ),
    "tiny_lm": ([TINY_LM / "options.json", *TINY_LM.glob("model.ckpt-1.[di]*")], "| softmax | 28 words |"),
}


@pytest.mark.parametrize("name", CARDS)
def test_the_card_has_the_source_the_check_and_the_sizes(name: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(f"{name}_folder")
    text = (folder / "README.md").read_text(encoding="utf-8")
    lines, (sources, line) = text.splitlines(), CARDS[name]
    for path in sources:
        assert f"| `{path.name}` | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" in lines
    assert re.search(r"NumPy biLM in float64\non the source's arrays was [1-9]\.\de-0[67]\.", text)
    # What is saved, as `info` counts it: the files of the source have no padding vectors.
    assert f"| parameters | {dict(describe(folder))['parameters']} |" in lines
    assert line in lines
    assert ("AutoModelForPreTraining" in text) == (name == "tiny_lm")


def test_an_existing_destination_is_left_as_it_is(tiny_folder: Path, tmp_path: Path) -> None:
    destination = write_files(tmp_path / "DEST", {"precious.txt": b"mine"})
    with pytest.raises(FileExistsError, match="DEST"):
        convert_source(tmp_path / "nowhere", destination, NamedFiles())
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
