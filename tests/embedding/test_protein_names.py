"""Names of proteins: every protein is found by its name in every format, whatever its header is."""

import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding import vector_files
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.input_documents import Documents
from elmo_hf.embedding.protein_names import MAX_NAME_BYTES, HeaderPart, ProteinNames
from elmo_hf.embedding.vector_files import Record, write_npz, write_safetensors
from elmo_hf.text.sentences import Protein
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.interrupts import unjoined
from tests.helpers.vectors import assert_all_close, embed_alone

# Headers, and the names of their records.
HEADERS = {
    "sp|P1|A a protein": "sp|P1|A",
    "sp|P1|A": "sp|P1|A (2)",
    " seq 0": "seq",
    "seq 1": "seq (2)",
    "sp|P1|A again": "sp|P1|A (3)",
    "sp|P1|A(2)": "sp|P1|A(2)",
    "": "unnamed",
    "unnamed": "unnamed (2)",
    "A0A0/1-50": "A0A0/1-50",
    "../../x": ".._.._x",
    "/etc/x": "_etc_x",
    "C:\\x": "C:_x",
    ".._.._x": ".._.._x (2)",
    "..": "..",
    ".": ".",
    "x.scales": "x.scales_",
    "sentence_to_index": "sentence_to_index_",
    "__metadata__": "__metadata___",
    "file": "file",
    "P1": "P1",
    "p1": "p1",
    "3": "3",
    "Ü日": "Ü日",
}


def protein_of(header: str) -> Protein:
    protein = Protein("MK")
    protein.header = header
    return protein


def fasta(headers: list[str]) -> str:
    """Records of different residues; the one without a header must come first."""
    records = [f">{header}\n{'MKVLT'[row % 5]}{'A' * row}\n" if header else "W\n" for row, header in enumerate(headers)]
    return "".join(records)


def names_of(headers: list[str], part: HeaderPart | None = None) -> list[str]:
    names = ProteinNames(part)
    return [names.name(protein_of(header), f"f.fa, record {row}") for row, header in enumerate(headers)]


def test_no_two_proteins_have_one_name_and_every_name_is_a_safe_key() -> None:
    found = names_of(list(HEADERS))
    assert found == list(HEADERS.values())
    assert len({*found}) == len(found)
    names = ProteinNames()
    for header in HEADERS:
        names.name(protein_of(header), "")
    assert (names.num_repeated, names.repeated) == (5, "sp|P1|A (2)")
    assert (names.num_changed, names.changed, names.num_unnamed) == (6, "../../x", 1)


@pytest.mark.parametrize(
    ("headers", "note"),
    [
        (
            "a b",
            "2 proteins had no residues, so no vectors; a vector of the whole protein is zero: a, b.",
        ),
        ("a", "1 protein had no residues, so no vectors; a vector of the whole protein is zero: a."),
        ("a b c d a", ": a, b, c and 2 more."),
    ],
)
def test_proteins_without_residues_are_named(
    headers: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = "".join(f">{header}\n" for header in headers.split())
    Path("a.fasta").write_text(f">x\nMK\n{records}>y\nV\n", encoding="utf-8")
    assert note in " ".join(run("embed", "tiny", "a.fasta", "--dry-run").stderr.split())
    Path("a.fasta").write_text(">x\nMK\n", encoding="utf-8")
    assert "no residues" not in run("embed", "tiny", "a.fasta", "--dry-run").stderr


@pytest.mark.parametrize("arguments", [["--dry-run"], ["-o", "a.npz"]])
@pytest.mark.parametrize("name", ["a.fasta", "a.txt"])
def test_a_header_without_the_part_is_refused_with_the_names_of_the_options(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.fasta").write_text(">P1\nMK\n", encoding="utf-8")
    Path("a.txt").write_text("Yes .\n", encoding="utf-8")
    advice = "`--id` chooses the part, and `--split-char` the separator."
    assert_fails(run("embed", "tiny", name, "--id", "1", *arguments), 1, advice)
    assert not Path("a.npz").exists()


@pytest.mark.parametrize(
    ("header", "part", "name"),
    [
        ("sp|P12345|X_HUMAN a protein", HeaderPart(1), "P12345"),
        ("sp|P12345|X_HUMAN a protein", HeaderPart(2), "X_HUMAN"),
        ("tr:Q1: one", HeaderPart(2, ":"), "one"),
        ("id=7 gene=abc", HeaderPart(1, "gene="), "abc"),
        ("a b c", HeaderPart(1, " "), "b"),
    ],
)
def test_a_part_of_the_header_is_the_name_as_in_seqvec(header: str, part: HeaderPart, name: str) -> None:
    assert names_of([header, header], part) == [name, f"{name} (2)"]
    assert header.strip().split(part.separator)[part.number].split()[0] == name  # SeqVec, and the first word of it


@pytest.fixture(params=[{}, {"dtype": "int8", "words": ChosenWords("[MA]")}], ids=["vectors", "scales and positions"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"layers": "top", **request.param}


def test_every_format_finds_a_protein_by_its_name_and_by_its_number(
    options: dict[str, Any], embed: Any, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    headers = sorted(HEADERS, key=bool)  # the record without a header first
    names = names_of(headers)
    Path("p.fasta").write_text(fasta(headers), encoding="utf-8")
    for output in ("v.npz", "v.safetensors", "v.hdf5", "v.parquet"):
        assert embed(output, "p.fasta", **options) == len(headers)
    expected: list[np.ndarray] = pq.read_table("v.parquet", columns=["vectors"])["vectors"].to_pylist()
    if "dtype" not in options:
        residues = [list("W" if not header else "MKVLT"[row % 5] + "A" * row) for row, header in enumerate(headers)]
        assert_all_close(
            [np.array(each) for each in expected], embed_alone(mixed_model, tiny_tokenizer, residues, "top")
        )
    assert pq.read_table("v.parquet")["sentence"].to_pylist() == names
    endings = ["", ".scales", ".positions"] if "dtype" in options else [""]
    with np.load("v.npz") as arrays, safe_open("v.safetensors", "np") as tensors, h5py.File("v.hdf5") as file:
        assert arrays.files == [f"{name}{end}" for name in names for end in endings]
        assert sorted(tensors.keys()) == sorted(arrays.files)
        index = json.loads(file["sentence_to_index"][0])
        assert json.loads(tensors.metadata()["sentence_to_index"]) == index
        assert index == {name: str(number) for number, name in enumerate(names)}
        for number, name in enumerate(names):
            for end in endings:
                stored = file[f"{number}{end}"][()]
                np.testing.assert_array_equal(arrays[f"{name}{end}"], stored)
                np.testing.assert_array_equal(tensors.get_tensor(f"{name}{end}"), stored)
                if name not in (".", "3", "A0A0/1-50"):  # hdf5 would find another array, or none
                    np.testing.assert_array_equal(file[f"{name}{end}"][()], stored)
            np.testing.assert_array_equal(arrays[name], np.reshape(expected[number], arrays[name].shape))
        assert "A0A0" not in file
        assert len(file) == 1 + len(endings) * (2 * len(names) - 3)


def test_names_are_the_same_in_shards_and_after_an_interruption(embed: Any) -> None:
    headers = sorted(HEADERS, key=bool)
    Path("p.fasta").write_text(fasta(headers), encoding="utf-8")
    embed("whole.npz", "p.fasta", layers="top", window_characters=10_000)
    embed("out/", "p.fasta", layers="top", shard_format="npz", window_characters=40)
    shards = sorted(Path("out").glob("*.npz"))
    assert len(shards) > 2
    shards[1].unlink()
    embed("out/", "p.fasta", layers="top", shard_format="npz", window_characters=40)  # goes on
    found = {name: array for path in sorted(Path("out").glob("*.npz")) for name, array in np.load(path).items()}
    with np.load("whole.npz") as whole:
        assert list(found) == whole.files == names_of(headers)
        assert_all_close(list(found.values()), [whole[name] for name in whole.files])


@pytest.mark.parametrize("output", ["out/", "out.npz"])
def test_a_run_goes_on_with_its_own_names_alone(output: str, embed: Any) -> None:
    Path("p.fasta").write_text(">sp|P1|A\nMKV\n>sp|P2|B\nLLT\n", encoding="utf-8")
    by_id = {"protein_names": ProteinNames(HeaderPart(1))}
    folder = unjoined(embed, output, "p.fasta", **by_id)
    for names, difference in ((None, "with"), (ProteinNames(HeaderPart(2)), "than")):
        with pytest.raises(ValueError, match=f'holds shards of another job {difference} "protein_names": "part '):
            embed(output, "p.fasta", protein_names=names)
    assert embed(output, "p.fasta", **by_id) == 2
    assert output == "out/" or not folder.exists()


def test_shards_of_proteins_with_other_keys_of_an_earlier_version_are_not_mixed_in(embed: Any) -> None:
    Path("p.fasta").write_text(">sp|P1|A\nMKV\n", encoding="utf-8")
    embed("out/", "p.fasta", shard_format="npz")
    entry = Path("out/_index/part-00000.txt")
    job = Path("out/_job.json").read_text(encoding="utf-8")
    digest = hashlib.sha256((job + json.dumps([["p.fasta", 0, 1]])).encode())
    digest.update(json.dumps({"sp|P1|A": list("MKV")}).encode() + b"\n")  # as it was
    entry.write_text(" ".join([digest.hexdigest(), *entry.read_text().split()[1:]]) + "\n")
    with pytest.raises(ValueError, match="its proteins have other names"):
        embed("out/", "p.fasta", shard_format="npz")


def test_texts_have_numbers_as_before(embed: Any) -> None:
    embed("v.npz")
    with np.load("v.npz") as arrays, Path("same.npz").open("wb") as file:
        assert arrays.files == [str(number) for number in range(6)]
        np.savez(file, **dict(arrays))
    assert Path("same.npz").read_bytes() == Path("v.npz").read_bytes()
    embed("v.safetensors")
    with safe_open("v.safetensors", "np") as tensors:
        assert tensors.metadata() is None
    embed("v.hdf5")
    with h5py.File("v.hdf5") as file:
        assert sorted(file) == [*map(str, range(6)), "sentence_to_index"]


@pytest.mark.parametrize("arguments", [["--dry-run"], ["-o", "v.npz"]])
def test_a_header_without_the_part_is_named_by_its_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    records = [">sp|P1|A", "MK", "MKV", ";sp", ">P2 x", "W", ">P3", ">sp|P4", "MK", ">P5"]
    Path("p.fasta").write_text("\n".join(records), encoding="utf-8")
    expected = (
        "p.fasta, line 5: the header 'P2 x' has no part 1, counted from 0, between '|'; choose another part or "
        "separator, or no part: then the first word is the name. Later headers may lack the part too."
    )
    assert_fails(run("embed", "tiny", "p.fasta", "--id", "1", *arguments), 1, expected)
    Path("p.fasta").write_text("; a comment\nMK\n>sp|P1|A\nMK\n", encoding="utf-8")
    expected = "p.fasta, line 2: the header '' has no part 1"
    assert_fails(run("embed", "tiny", "p.fasta", "--id", "1", *arguments), 1, expected)


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^f\.fa, record 1: the header 'sp P2' has no part 1, counted from 0"):
        names_of(["sp|P1", "sp P2"], HeaderPart(1))
    with pytest.raises(ValueError, match="has no part 1"):
        names_of(["sp||A"], HeaderPart(1))
    assert names_of(["x" * MAX_NAME_BYTES]) == ["x" * MAX_NAME_BYTES]
    with pytest.raises(ValueError, match="more than 60,000 bytes"):
        names_of(["x" * (MAX_NAME_BYTES + 1)])


@pytest.mark.parametrize("order", [["a.txt", "b.fasta"], ["b.fasta", "a.txt"]])
def test_a_number_is_the_name_of_one_thing(order: list[str], embed: Any) -> None:
    Path("a.txt").write_text("Yes.\n")
    Path("b.fasta").write_text(">x\nMK\n>0\nMKV\n")
    with pytest.raises(ValueError, match="a protein has the name '0'"):
        embed("v.npz", *order)
    Path("b.fasta").write_text(">x\nMK\n>y\nMKV\n")
    embed("v.npz", *order)
    with np.load("v.npz") as arrays:
        assert sorted(arrays.files) == sorted(["x", "y", str(order.index("a.txt") * 2)])
    with pytest.raises(ValueError, match=r"a\.txt is not FASTA"):
        [*Documents(["a.txt"], protein_names=ProteinNames(HeaderPart(1))).read()]


def test_long_names_count_against_the_header_of_safetensors(tmp_path: Path) -> None:
    record = Record(0, "x" * 500, {"vectors": np.zeros(1, dtype=np.float32)}, ("", 0), True)
    write_safetensors(tmp_path / "v.safetensors", iter([record]), most=12)
    with pytest.raises(ValueError, match="fewer with long names"):
        write_safetensors(tmp_path / "v.safetensors", iter([record]), most=11)


def test_the_longest_name_fits_every_file(tmp_path: Path) -> None:
    vectors = np.ones(2, dtype=np.float32)
    record = Record(0, "ü" * (MAX_NAME_BYTES // 2), {"vectors": vectors, "positions": vectors}, ("", 0), True)
    write_npz(tmp_path / "v.npz", iter([record]))
    vector_files.write_hdf5(tmp_path / "v.hdf5", iter([record]))
    with np.load(tmp_path / "v.npz") as arrays, h5py.File(tmp_path / "v.hdf5") as file:
        for name in (record.text, f"{record.text}.positions"):
            assert arrays[name].tolist() == file[name][()].tolist() == [1, 1]


def test_embed_says_which_names_it_made_and_takes_a_part_of_the_header(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.fasta").write_text("MK\n>sp|P1|A x\nMKV\n>sp|P1|A y\nW\n>../x\nMM\n>tr|P9|B\nWW\n")
    result = run("embed", tiny_folder, "p.fasta", "-o", "v.npz")
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note: ")]
    assert [note[6:] for note in notes] == [
        "1 protein had the name of an earlier one; names were made unique, such as 'sp|P1|A (2)'.",
        "1 protein had no name and was named 'unnamed'.",
        "1 protein had a name that means something else in files of vectors or in folders, such as '../x'; `_` "
        "replaces its slashes, or is added at its end.",
    ]
    assert np.load("v.npz").files == ["unnamed", "sp|P1|A", "sp|P1|A (2)", ".._x", "tr|P9|B"]
    Path("p.fasta").write_text(">sp|P1|A x\nMKV\n>tr|P9|B\nWW\n")
    for name, options in (("a.npz", ["--id", "1"]), ("b.npz", ["--id", "2", "--split-char", "|"])):
        result = run("embed", tiny_folder, "p.fasta", "-o", name, *options)
        assert "Note" not in result.stderr
    assert [np.load(name).files for name in ("a.npz", "b.npz")] == [["P1", "P9"], ["A", "B"]]
    command = ("embed", tiny_folder, "p.fasta", "-o", "c.npz")
    assert_fails(run(*command, "--id", "7"), 1, "p.fasta, line 1: the header 'sp|P1|A x' has no part 7")
    assert_fails(run(*command, "--split-char", "|"), 2, "--split-char needs --id N")
    assert_fails(run(*command, "--id", "0", "--split-char", ""), 2, "must not be empty")
    assert not Path("c.npz").exists()
    assert "  0, P1: M | K | V\n  1, P9: W | W\n" in output_of(
        "embed", tiny_folder, "p.fasta", "--dry-run", "--id", "1"
    )
    assert output_of("embed", tiny_folder, "p.fasta", "-o", "shards/", "--id", "0", "--format", "npz")
    assert np.load("shards/part-00000.npz").files == ["sp", "tr"]


@pytest.mark.parametrize("output", ["v.hdf5", "v.h5", "v/ --format hdf5"])
def test_a_note_says_which_names_find_other_proteins_in_hdf5_or_none(
    output: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.fasta").write_text(">a\nMK\n>1\nMKV\n>0\nW\n>1\nWW\n>A/1-5\nWWWW\n", encoding="utf-8")
    note = "Note: 3 proteins had a name that is a number or a path, such as '1'. hdf5 has proteins under their numbers"
    result = run("embed", tiny_folder, "p.fasta", "-o", *output.split())
    assert note in result.stderr
    path = next(Path("v").glob("*.hdf5")) if output.startswith("v/") else Path(output)
    with h5py.File(path) as file:
        index = json.loads(file["sentence_to_index"][0])
        lengths = {name: file[number].shape[1] for name, number in index.items()}
        assert lengths == {"a": 2, "1": 3, "0": 1, "1 (2)": 2, "A/1-5": 4}
        assert file["0"].shape[1] == 2  # the first protein, which is called a
    assert note not in run("embed", tiny_folder, "p.fasta", "-o", "v.npz").stderr
    assert np.load("v.npz")["0"].shape[1] == 1
    Path("p.fasta").write_text(">a\nMK\n>b1\nMKV\n", encoding="utf-8")
    assert "Note" not in run("embed", tiny_folder, "p.fasta", "-o", "w.hdf5").stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (">a\nMK\n>b\n>c\nW\n", "3 proteins (1 of them without residues)"),
        (">a\nMK\n", "1 protein"),
    ],
)
def test_proteins_are_counted_as_proteins(
    content: str, expected: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.fasta").write_text(content, encoding="utf-8")
    result = run("embed", tiny_folder, "p.fasta", "-o", "v.npz")
    assert result.stdout == f"Wrote {expected} to v.npz.\n"
    assert " proteins" in result.stderr  # the progress bar
    assert f"holds     {expected}\n" in output_of("embed", tiny_folder, "p.fasta", "--dry-run")


def test_proteins_beside_text_are_counted_as_sentences(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.fasta").write_text(">a\nMK\n", encoding="utf-8")
    Path("t.txt").write_text("Yes .\n\n", encoding="utf-8")
    assert output_of("embed", tiny_folder, "p.fasta", "t.txt", "-o", "v.npz").startswith(
        "Wrote 3 sentences (1 of them blank) to "
    )
