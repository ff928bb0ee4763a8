"""The formats that `convert` recognises, the files it finds, what it says, and dumps of token vectors."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from archives import archive_files, nlpl_files, state_bytes, write_files, write_tar, write_zip
from checkpoints import BASE, SAVES, TINY_LM, VOCABULARY, base_checkpoint, bits, read_datasets, shared, write_datasets
from commands import run
from language_models import state_of, words_file

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.conversion.contract import Given
from elmo_hf.conversion.convert import convert_source, folder_to_allennlp
from elmo_hf.conversion.hdf5 import read_hdf5
from elmo_hf.conversion.readers.torch_files import read_state_dict
from elmo_hf.conversion.witness.reference import ReferenceElmo

TENSORFLOW = "a TensorFlow checkpoint of bilm-tf (model.ckpt-*)"
SAVE = {path.name: path.read_bytes() for path in (SAVES / "bi_char_1layer").iterdir()}


def digested(folder: Path) -> list[str]:
    """The files whose checksums are in a card."""
    return re.findall(r"^\| `(.*?)` \| `\w{64}` \|$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_zip_and_the_folder_it_was_made_of_become_the_same_model(tiny_folder: Path, tmp_path: Path) -> None:
    for name, compression in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        source = write_zip(tmp_path / f"{name}.zip", nlpl_files("base_2l_relu"), compression)
        convert_source(source, tmp_path / name, Given())
        for file in ("model.safetensors", "config.json", "tokenizer_config.json"):
            assert (tmp_path / name / file).read_bytes() == (tiny_folder / file).read_bytes()
    assert digested(tmp_path / "stored") == ["stored.zip"]


def test_convert_says_what_it_found_and_what_it_leaves(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "ner.tar.gz", archive_files("base_2l_relu"))
    result = run("convert", source, tmp_path / "to", "--check")
    assert result.exit_code == 0
    found, note, difference, wrote = result.stdout.splitlines()
    assert found == f"Found a trained AllenNLP model in {source}."
    assert note.startswith("Note: 3 arrays of the task's model are not carried: ")
    assert difference.startswith("Largest difference from the checkpoint, all layers: ")
    assert wrote.startswith(f"Wrote {tmp_path / 'to'}. Load it: ")


def test_every_packing_of_a_save_directory_becomes_the_same_language_model(tmp_path: Path) -> None:
    options, rest = {"options.json": SAVE["options.json"]}, {n: data for n, data in SAVE.items() if n[-5:] != ".json"}
    # DeepPavlov packs checkpoints one folder down.
    below = {f"saves/{name}": content for name, content in rest.items()}
    folder = write_files(tmp_path / "plain", SAVE)
    # An index that is named is taken, whatever the record beside it says.
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"', encoding="utf-8")
    sources: dict[str, tuple[Path, tuple[object, ...]]] = {
        "folder": (write_files(tmp_path / "save", SAVE), ()),
        "zip": (write_zip(tmp_path / "save.zip", SAVE), ()),
        "index": (folder / "model.ckpt-6.index", ("--options", folder / "options.json")),
        "below": (write_files(tmp_path / "below", options | below | {"README.md": b"x"}), ()),
        "tar of below": (write_tar(tmp_path / "below.tar.gz", options | below), ()),
        "all below": (write_files(tmp_path / "all below", below | {"saves/options.json": SAVE["options.json"]}), ()),
    }
    words = words_file(tmp_path, VOCABULARY)
    for name, (source, given) in sources.items():
        result = run("convert", source, tmp_path / f"{name}.to", "--vocabulary", words, *given, "--check")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[0] == f"Found {TENSORFLOW} in {source}."
        assert bits(state_of(tmp_path / f"{name}.to")) == bits(state_of(tmp_path / "folder.to"))
        assert ElmoTokenizer.from_pretrained(tmp_path / f"{name}.to").predicted_words == VOCABULARY
    assert digested(tmp_path / "zip.to") == ["save.zip"]


def test_a_softmax_that_lies_beside_an_archive_has_its_own_fingerprint(tmp_path: Path) -> None:
    with np.load(TINY_LM / "expected.npz") as archive:
        arrays = {"softmax/W": archive["softmax_W"], "softmax/b": archive["softmax_b"]}
    softmax = write_datasets(tmp_path / "released.hdf5", arrays)
    members = {name: (TINY_LM / name).read_bytes() for name in ("options.json", "weights.hdf5", "vocab.txt")}
    convert_source(write_zip(tmp_path / "lm.zip", members), tmp_path / "to", Given(softmax=softmax))
    np.testing.assert_array_equal(state_of(tmp_path / "to")["softmax.weight"], arrays["softmax/W"])
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == 28
    assert digested(tmp_path / "to") == ["lm.zip", "released.hdf5"]


WEIGHTS = {"elmo_weights.hdf5": (TINY_LM / "weights.hdf5").read_bytes()}
OPTIONS = (TINY_LM / "options.json").read_bytes()
VOCAB = (TINY_LM / "vocab.txt").read_bytes()


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
    convert_source(tmp_path / "source" / source, tmp_path / "to", Given())
    assert digested(tmp_path / "to") == [*found, "elmo_weights.hdf5"]


@pytest.mark.parametrize(
    ("names", "number"),
    [(["a_vocab.txt"], 28), (["vocab.txt", "b_vocab.txt"], 28), (["a_vocab.txt", "b_vocab.txt"], None)],
)
def test_one_of_two_vocabularies_is_not_guessed(names: list[str], number: int | None, tmp_path: Path) -> None:
    checkpoint = {path.name: path.read_bytes() for path in [*TINY_LM.glob("model*"), TINY_LM / "options.json"]}
    write_files(tmp_path / "source", checkpoint | {name: VOCAB if name != "b_vocab.txt" else b"" for name in names})
    convert_source(tmp_path / "source", tmp_path / "to", Given())
    assert ElmoTokenizer.from_pretrained(tmp_path / "to").num_word_classes == number


WORDS = ["<S>", "</S>", "<UNK>", "The", "ferry", "日本語", "x" * 60]


def layers_of(folder: Path, words: list[str]) -> torch.Tensor:
    inputs = ElmoTokenizer.from_pretrained(folder)(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        return torch.stack(ElmoModel.from_pretrained(folder)(**inputs, output_hidden_states=True).hidden_states)


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
    given = Given(tmp_path / "options.json", words_file(tmp_path, WORDS), token_embeddings=path)
    told: list[str] = []
    convert_source(BASE, tmp_path / "to", given, tell=told.append)
    assert told[1:] == ["Note: the character CNN is not carried: words have the vectors of dump.hdf5."]
    words = ["ferry", "The", "x" * 60, "日本語"]
    torch.testing.assert_close(layers_of(tmp_path / "to", words), layers_of(tiny_folder, words), atol=1e-5, rtol=0)
    unknown, as_unknown = (layers_of(tmp_path / "to", [word]) for word in ("unseen", "<UNK>"))
    torch.testing.assert_close(unknown, as_unknown, atol=0, rtol=0)
    assert digested(tmp_path / "to") == ["options.json", "weights.hdf5", "dump.hdf5"]
    folder_to_allennlp(tmp_path / "to", tmp_path / "back")
    expected = {name: array for name, array in arrays.items() if name.startswith("RNN_")} | dump
    assert bits(read_datasets(tmp_path / "back" / "weights.hdf5")) == bits(expected)
    assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").splitlines() == WORDS


def test_a_real_dump_gives_tensorflows_token_vectors(tmp_path: Path) -> None:
    source = shared("fixtures", "bilm_tf_fixture")
    words = (source / "vocab_test.txt").read_text(encoding="utf-8").splitlines()
    # The tokenizer needs the boundaries, which the file's vocabulary lacks: they replace its first words.
    words[:3] = ["<S>", "</S>", "<UNK>"]
    dump = source / "elmo_token_embeddings.hdf5"
    given = Given(source / "options.json", words_file(tmp_path, words), token_embeddings=dump)
    convert_source(source / "lm_weights.hdf5", tmp_path / "to", given)
    vectors = layers_of(tmp_path / "to", words[3:])[0, 0, 1:-1, :16]
    rows = [len(words) - 1 - words[::-1].index(word) for word in words[3:]]
    np.testing.assert_array_equal(vectors, read_datasets(dump)["embedding"][rows])


TABLE = np.arange(35, dtype=np.float32).reshape(5, 7) / 3
STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "gzip with all filters": {"chunks": (2, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "one chunk": {"chunks": (5, 7), "compression": "gzip", "maxshape": (None, None)},
}


@pytest.mark.parametrize("settings", STORED.values(), ids=STORED)
def test_arrays_of_hdf5_files_are_what_h5py_reads(settings: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w", libver="latest" if "maxshape" in settings else "earliest") as file:
        file.create_dataset("a/b/table", data=TABLE, **settings)
        file.create_dataset("number", data=3)
        file.create_dataset("empty", data=np.zeros((0, 3)))
        file["a/loop"] = file["/"]
        file["again"] = file["a"]
        file["soft"] = h5py.SoftLink("/number")
    found = read_hdf5(path)
    (name,) = {name for name in found if name.endswith("/table")}
    assert bits(found) == bits({name: TABLE, "number": np.array(3), "empty": np.zeros((0, 3))})


@pytest.mark.parametrize("as_zip", [False, True], ids=["older form", "newer form"])
def test_every_tensor_of_torchs_files_is_what_torch_reads(as_zip: bool, tmp_path: Path) -> None:
    table = torch.arange(24.0).reshape(4, 6) / 7
    types = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool)
    state = {str(kind): table.to(kind) for kind in types}
    state |= {"turned": table.T, "part": table[1:3, ::2], "number": torch.tensor(3.5), "empty": torch.zeros(0, 3)}
    state |= {"again": table, "parameter": torch.nn.Parameter(table[0])}
    (tmp_path / "task.th").write_bytes(state_bytes(state, as_zip=as_zip))
    expected = {
        name: (value.float() if value.dtype == torch.bfloat16 else value).detach().numpy()
        for name, value in state.items()
    }
    assert bits(read_state_dict(tmp_path / "task.th")) == bits(expected)


def test_weights_of_a_gpu_are_read(tmp_path: Path) -> None:
    content = state_bytes({"w": torch.ones(9)})
    assert content.count(b"ctorch\nFloatStorage\n") == 1
    moved = content.replace(b"ctorch\nFloatStorage\n", b"ctorch.cuda\nFloatStorage\n").replace(b"cpu", b"gpu")
    (tmp_path / "task.th").write_bytes(moved)
    np.testing.assert_array_equal(read_state_dict(tmp_path / "task.th")["w"], np.ones(9, np.float32))
