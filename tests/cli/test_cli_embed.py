"""`elmo-hf embed` and `elmo-hf vectors`: their options, their files and nearest words."""

import gzip
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli.arguments import Splitter
from elmo_hf.cli.embedding import Dtype, Format, Layers, _note_pooling, check_layers
from elmo_hf.cli.embedding import embed as embed_command
from elmo_hf.embedding.shards import FORMATS
from elmo_hf.embedding.static_vectors import nearest_words, read_words, word_vectors, write_word_vectors
from elmo_hf.embedding.vector_files import WRITERS
from elmo_hf.embedding.window_vectors import DTYPES, LAYERS, VIEWS, Selection
from elmo_hf.model.layers_elmo import BiLM
from elmo_hf.model.tokenization_elmo import WORD_SPLITTERS
from elmo_hf.text.batches import BATCH_POSITIONS
from tests.helpers.commands import assert_fails, output_of, run
from tests.helpers.vectors import assert_all_close, embed_alone, read_vectors

SENTENCES = ["The ferry left.", "", "It isn't late.", "Größe 日本"]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES)


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")


@pytest.mark.parametrize("source", ["text.txt", "-"])
def test_embed_writes_a_file_of_vectors(source: str, tiny_folder: Path) -> None:
    printed = output_of("embed", tiny_folder, source, "-o", "v.h5", stdin=TEXT)
    assert printed == "Wrote 4 sentences (1 of them blank) to v.h5.\n"
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    assert_all_close(read_vectors("v.h5"), embed_alone(model, tokenizer, SENTENCES, "all"))


@pytest.mark.parametrize("output", ["V.NPZ", "V.HDF5"])
def test_capitals_in_the_suffix_of_an_output_do_not_matter(output: str, tiny_folder: Path) -> None:
    printed = output_of("embed", tiny_folder, "text.txt", "-o", output)
    assert printed == f"Wrote 4 sentences (1 of them blank) to {output}.\n"
    assert [path.name for path in Path().glob("V*")] == [output]


@pytest.mark.parametrize(("output", "folder"), [("v.h5", "v.h5.partial"), ("vectors/", "vectors")])
def test_embed_that_is_stopped_names_the_folder_from_which_the_same_command_goes_on(
    output: str, folder: str, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(BiLM, "forward", stop)
        result = run("embed", tiny_folder, "text.txt", "-o", output)
    assert result.exit_code == 130
    kept = f"Stopped. {folder} is kept, with its complete parts, if any; the same command goes on from there."
    assert result.stderr.splitlines()[-1] == kept
    assert Path(folder).is_dir()
    assert output_of("embed", tiny_folder, "text.txt", "-o", output).startswith("Wrote 4 sentences")
    assert Path(folder).exists() == (output == "vectors/")


@pytest.mark.parametrize("output", ["v.h5", "vectors/"])
def test_embed_that_is_stopped_before_it_writes_names_no_folder(
    output: str, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("elmo_hf.embedding.shards.embed_documents", stop)
    result = run("embed", tiny_folder, "text.txt", "-o", output)
    assert result.stderr.splitlines()[-1].startswith("Stopped. Nothing incomplete is left;")
    assert list(Path().iterdir()) == [Path("text.txt")]


def refuses(check: Callable[[], object]) -> bool:
    try:
        check()
    except (typer.BadParameter, ValueError):
        return True
    return False


@pytest.mark.parametrize("layers", ["0", "12", "-1", "1.5", "\u00b2", "first", VIEWS, *LAYERS])
def test_the_command_line_takes_the_layers_that_the_package_takes(layers: str) -> None:
    assert refuses(lambda: check_layers(layers)) == refuses(Selection(layers).check)


def test_choices_of_the_command_line_are_those_of_the_package() -> None:
    assert get_args(Layers) == tuple(LAYERS)
    assert get_args(Dtype) == tuple(DTYPES)
    assert get_args(Format) == tuple(FORMATS)
    assert {f".{each}" for each in FORMATS} <= {*WRITERS}
    assert {*get_args(Splitter)} == {*WORD_SPLITTERS}
    assert inspect.signature(embed_command).parameters["batch_words"].default == BATCH_POSITIONS


def test_embed_writes_shards_of_several_inputs_with_all_options(tiny_folder: Path) -> None:
    Path("more.txt").write_text("Yes.\n")
    options = ("--layers", "top", "--dtype", "int8", "--words", "ferry|isn't", "--batch-words", 1, "--device", "cpu")
    for _ in range(2):  # the second time all is there
        command = ("embed", tiny_folder, "text.txt", "m*.txt", "-o", "vectors/", "--format", "npz", *options)
        assert output_of(*command, "--split-into-words") == "Wrote 5 sentences (1 of them blank) to vectors/.\n"
    found = np.load("vectors/part-00000.npz")
    assert [found[f"{row}.positions"].tolist() for row in range(5)] == [[1], [], [1], [], []]
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    (expected,) = embed_alone(model, tokenizer, [["It", "isn't", "late."]], "top")
    np.testing.assert_allclose(
        found["2"][0] * found["2.scales"][0], expected[1], rtol=0, atol=np.abs(expected[1]).max() / 250
    )
    assert_fails(run("embed", "tiny", "text.txt", "-o", "v.npz", "--format", "npz"), 2, "--format needs a folder")


def test_embed_says_if_no_word_was_chosen(tiny_folder: Path) -> None:
    command = ("embed", tiny_folder, "text.txt", "-o", "vectors/", "--words", "Ferry")
    assert "\nNote: --words Ferry chose no word" in output_of(*command)
    assert output_of(*command) == "Wrote 4 sentences (1 of them blank) to vectors/.\n"  # all is there


@pytest.mark.parametrize(
    ("pooling", "layers", "is_noted"),
    [
        ("max", "pooled", True),
        ("max", "pooled_sum", True),
        ("max", "mix", False),
        ("mean", "pooled", False),
        ("attention", "pooled", False),
    ],
)
def test_embed_says_if_the_vector_of_a_sentence_is_not_the_mean(
    pooling: str, layers: str, is_noted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    _note_pooling(layers, pooling)
    expected = ""
    if is_noted:
        expected = f"Note: this model's config has pooling='max', so `{layers}` is not the mean over the words.\n"
    assert capsys.readouterr().out == expected


def test_embed_has_the_maximum_of_a_model_that_pools_by_it(tiny_folder: Path, tmp_path: Path) -> None:
    model = ElmoModel.from_pretrained(tiny_folder, pooling="max").eval()
    model.save_pretrained(tmp_path / "max")
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder)
    tokenizer.save_pretrained(tmp_path / "max")
    printed = output_of("embed", "max", "text.txt", "-o", "v.npz", "--layers", "pooled_sum")
    assert "\nNote: this model's config has pooling='max'" in printed
    (words,) = embed_alone(model, tokenizer, SENTENCES[:1], "sum")
    np.testing.assert_allclose(np.load("v.npz")["0"], words.max(axis=0), rtol=0, atol=1e-5)


def test_embed_reads_a_column_of_a_dataset(tiny_folder: Path) -> None:
    pytest.importorskip("datasets")
    Path("data").mkdir()
    pq.write_table(pa.table({"line": ["The ferry left.", None, "Yes."]}), "data/train.parquet")
    command = ("embed", tiny_folder, "data", "-o", "vectors/", "--layers", "pooled", "--column", "line")
    assert_fails(run(*command, "--split", "dev"), 1, "data cannot be read as a dataset: ")
    output_of(*command)
    table = pq.read_table("vectors")
    assert table["sentence"].to_pylist() == ["The ferry left.", "", "Yes."]
    assert table["index"].to_pylist() == [0, 1, 2]
    Path("a.csv").write_text("id,line\n1,The ferry left.\n2,Yes.\n")  # never looked for on the Hub
    printed = output_of("embed", tiny_folder, "a.csv", "-o", "a.npz", "--column", "line")
    assert printed == "Wrote 2 sentences to a.npz.\n"


WORDS = ["The", "ferry", "Größe", "日本", "<S>"]
LINES = "The\nferry\n\n The \nGröße\r\n日本\n<S>"


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_bytes(LINES.encode())
    return path


@torch.no_grad()
def expected(folder: Path, layer: str, has_boundaries: bool = True) -> np.ndarray:
    """The vectors of `WORDS`, one sentence at a time."""
    tokenizer = ElmoTokenizer.from_pretrained(folder, add_boundaries=has_boundaries)
    model, rows = ElmoModel.from_pretrained(folder).eval(), []
    for word in WORDS:
        output = model(**tokenizer([[word]], is_split_into_words=True, return_tensors="pt"), output_hidden_states=True)
        layers = {"token": output.token_embeddings, "mix": output.last_hidden_state, "2": output.hidden_states[2]}
        rows.append(layers[layer][0, int(has_boundaries)].numpy())
    return np.stack(rows)


def read(lines: list[str]) -> tuple[list[str], np.ndarray]:
    rows = [line.split(" ") for line in lines]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=np.float32)


@pytest.mark.parametrize(("layer", "size"), [("token", 8), ("mix", 16), ("2", 16)])
def test_a_file_holds_each_word_once_with_the_vector_asked_for(
    layer: str, size: int, tiny_folder: Path, words: Path, tmp_path: Path
) -> None:
    command = ("vectors", tiny_folder, words, "--layer", layer, "-o")
    assert output_of(*command, tmp_path / "v.txt").endswith("Left out: 1 repeated and 1 blank.\n")
    first, *lines = (tmp_path / "v.txt").read_text(encoding="utf-8").splitlines()
    assert first == f"5 {size}"
    found, vectors = read(lines)
    assert found == WORDS
    np.testing.assert_allclose(vectors, expected(tiny_folder, layer), rtol=1e-5, atol=1e-6)
    output_of(*command, tmp_path / "glove", "--format", "glove")
    assert (tmp_path / "glove").read_text(encoding="utf-8").splitlines() == lines


def test_a_word_with_a_blank_is_refused_with_its_file_before_the_model_is_loaded(tmp_path: Path) -> None:
    words = tmp_path / "w.txt"
    words.write_text("late\nNew York\n", encoding="utf-8")
    result = run("vectors", tmp_path / "no model", words, "-o", tmp_path / "v.txt")
    assert_fails(result, 1, f"{words}: a word must not have blanks")
    assert not (tmp_path / "v.txt").exists()


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_words_gives_no_vectors_and_is_named(content: str, tiny_folder: Path, tmp_path: Path) -> None:
    words = tmp_path / "w.txt"
    words.write_text(content, encoding="utf-8")
    for options in (("-o", tmp_path / "v.txt"), ("--nearest", "late")):
        assert_fails(run("vectors", tiny_folder, words, *options), 1, f"there are no words in {words}")
    assert not (tmp_path / "v.txt").exists()


def test_lists_of_words_are_words(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "w.jsonl.gz").write_bytes(gzip.compress(json.dumps(["Yes", ".", "Yes", "\udc80"]).encode() + b"\n"))
    assert read_words(tmp_path / "w.jsonl.gz") == (["Yes", ".", "?"], 0, 1)


@pytest.mark.parametrize("layer", ["token", "mix", "2"])
def test_a_word_has_its_vector_whatever_the_other_words_are(layer: str, tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    vectors = word_vectors(model, tokenizer, WORDS * 60, layer)  # more than a batch
    np.testing.assert_allclose(vectors, np.tile(expected(tiny_folder, layer), (60, 1)), rtol=0, atol=1e-6)
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, add_boundaries=False)
    vectors = np.concatenate([word_vectors(model, tokenizer, [word], layer) for word in WORDS])
    np.testing.assert_allclose(vectors, expected(tiny_folder, layer, has_boundaries=False), rtol=0, atol=1e-6)


def test_nearest_words_are_those_of_the_highest_cosine() -> None:
    vectors = np.array([[2, 0], [3, 3], [0, 1], [0, 0], [-1, 0]], dtype=np.float32)
    near = nearest_words(vectors, ["a", "b", "c", "d", "e"], np.array([5, 0], dtype=np.float32), count=4, but=["a"])
    assert [word for word, _ in near] == ["b", "c", "d", "e"]
    assert [cosine for _, cosine in near] == pytest.approx([0.5**0.5, 0, 0, -1])


def test_nearest_words_are_printed_for_words_of_the_file_and_others(tiny_folder: Path, words: Path) -> None:
    printed = output_of("vectors", tiny_folder, words, "--nearest", "ferry", "--nearest", "ferries", "--count", 2)
    lines = [line.split(": ") for line in printed.splitlines()]
    assert [(word, near.count(", ")) for word, near in lines] == [("ferry", 1), ("ferries", 1)]
    assert "ferry " not in lines[0][1]
    special = words.parent / "special.txt"
    special.write_text("<S>\n</S>\n<UNK>\nlate\n", encoding="utf-8")
    printed = output_of("vectors", tiny_folder, special, "--nearest", "ferry")  # a vocabulary begins so
    assert [word.split()[0] for word in printed.split(": ")[1].split(", ")] == ["late"]


def test_small_numbers_have_six_digits_too(tiny_folder: Path, tmp_path: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    with torch.no_grad():
        model.token_encoder.projection.weight *= 1e-5
        model.token_encoder.projection.bias *= 1e-5
    write_word_vectors(model, tokenizer, WORDS, tmp_path / "v.txt", header=False)
    _, vectors = read((tmp_path / "v.txt").read_text(encoding="utf-8").splitlines())
    expected = word_vectors(model, tokenizer, WORDS)
    assert 0 < np.abs(expected).max() < 1e-3
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=0)
