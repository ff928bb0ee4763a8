"""The usages of a word: which are found, their distances and vectors, and the intervals, against slow loops."""

import csv
import json
import re
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.embedding.meaning_change import mean_distances, measure_change
from tests.helpers.commands import output_of, run
from tests.helpers.vectors import embed_alone


def cosine_distance(u: np.ndarray, v: np.ndarray) -> float:
    return 1 - float(u @ v) / (float(u @ u) * float(v @ v)) ** 0.5


def slow_measures(first: np.ndarray, second: np.ndarray, *draws: np.ndarray) -> dict[str, float]:
    """The measures of two corpora `(K, D)` in one view, from the places that were drawn in each."""
    drawn = [[each[place] for place in places] for each, places in zip((first, second), draws, strict=True)]
    found = {}
    for name, own, places in zip("AB", drawn, draws, strict=True):
        pairs = [(u, v) for u, v in combinations(range(len(own)), 2) if places[u] != places[v]]
        found[f"within {name}"] = np.mean([cosine_distance(own[u], own[v]) for u, v in pairs]) if pairs else np.nan
    found["APD"] = np.mean([cosine_distance(u, v) for u, v in product(*drawn)])
    found["PRT"] = cosine_distance(*(sum(own) / len(own) for own in drawn))
    return found


def test_measures_and_their_intervals_are_those_of_loops_over_pairs_of_drawn_usages() -> None:
    draw = np.random.default_rng(1)
    corpora = {"A": draw.normal(0.4, size=(3, 4, 6)), "B": draw.normal(0.5, size=(3, 5, 6))}
    found = measure_change(corpora, replicates=70, seed=8, least_usages=1)
    assert [*found] == ["within A", "within B", "APD", "PRT"]
    draw = np.random.default_rng(8)
    counts = [draw.multinomial(size, [1 / size] * size, 70) for size in (4, 5)]
    for view in range(3):
        vectors = corpora["A"][view], corpora["B"][view]
        values = slow_measures(*vectors, np.arange(4), np.arange(5))
        draws = [[np.repeat(np.arange(len(row)), row) for row in each] for each in counts]
        replicates = [slow_measures(*vectors, *pair) for pair in zip(*draws, strict=True)]
        for name, value in values.items():
            low, high = np.nanquantile([each[name] for each in replicates], [0.025, 0.975])
            expected = [value, 2 * value - high, 2 * value - low]
            np.testing.assert_allclose(found[name][:, view], expected, rtol=1e-12, atol=1e-12)


def test_intervals_have_a_seed_and_that_of_prt_leaves_out_its_bias() -> None:
    draw = np.random.default_rng(3)
    prototype = np.eye(1, 64)
    corpora = {name: prototype + 0.08 * draw.normal(size=(1, size, 64)) for name, size in (("A", 30), ("B", 40))}
    found, again, other = (measure_change(corpora, seed=seed) for seed in (0, 0, 1))
    assert all((found[name] == again[name]).all() for name in found)
    assert all((found[name] != other[name])[1:].all() for name in found)
    value, low, high = found["PRT"][:, 0]
    assert value > 0.005  # the true prototypes are the same, so all of it is bias
    assert low < 0 < high < value
    single = np.ones((2, 1, 3))
    assert [*measure_change({"A": single})] == []
    assert np.isnan(mean_distances(single, single)).all()


def test_a_measure_has_an_interval_if_each_of_its_corpora_has_ten_usages() -> None:
    draw = np.random.default_rng(5)
    usages = {size: draw.normal(size=(2, size, 3)) for size in (9, 10, 11)}
    measures = measure_change({"A": usages[10], "B": usages[9]}, replicates=20)
    assert {name: np.isfinite(ends).all() for name, (_, *ends) in measures.items()} == {
        "within A": True,
        "within B": False,
        "APD": False,
        "PRT": False,
    }
    assert np.isnan(measures["APD"][1:]).all()
    for values in measures.values():
        assert np.isfinite(values[0]).all()
    for values in measure_change({"A": usages[10], "B": usages[11]}, replicates=20).values():
        assert np.isfinite(values).all()


OLD = ["He sat .", "A Bank , the banks .", "By the bank ."]
NEW = [["Go", "to", "my", "BANKS", "now"], ["banking", "embankment"]]
# Corpus, document, sentence, position (0 is <S>), words before, form, words after.
ROWS = [
    ("A", "old.csv", 1, 2, "A", "Bank", ", the banks ."),
    ("A", "old.csv", 1, 5, "A Bank , the", "banks", "."),
    ("A", "old.csv", 2, 3, "By the", "bank", "."),
    ("B", "new.jsonl", 0, 4, "Go to my", "BANKS", "now"),
    ("B", "new.jsonl", 1, 1, "", "banking", "embankment"),
]


@pytest.fixture
def folder(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A model, and two corpora, a column of a table and a key of JSON lines."""
    monkeypatch.chdir(tmp_path)
    mixed_model.save_pretrained("model")
    tiny_tokenizer.save_pretrained("model")
    Path("old.csv").write_text("line\n" + "".join(f'"{each}"\n' for each in OLD))
    Path("new.jsonl").write_text("".join(f"{json.dumps({'line': words})}\n" for words in NEW))
    return Path("model")


def test_the_table_has_a_row_for_each_usage_with_its_mean_distances(
    folder: Path, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    command = ("usages", folder, "old.csv", "new.jsonl", "--column", "line", "--split-into-words", "--word", "bank")
    printed = output_of(*command, "--forms", "banks, banking", "-o", "bank.csv")
    header, *rows = csv.reader(Path("bank.csv").read_text(encoding="utf-8").splitlines())
    assert [tuple(row[:7]) for row in rows] == [tuple(map(str, row)) for row in ROWS]

    texts = [*(each.split() for each in OLD), *NEW]
    layers, mixes = (embed_alone(mixed_model, tiny_tokenizer, texts, kind) for kind in ("all", "mix"))
    views = [np.concatenate([every, mix[None]]) for every, mix in zip(layers, mixes, strict=True)]
    places = [(1, 1), (1, 4), (2, 2), (3, 3), (4, 0)]
    usages = np.stack([views[text][:, place] for text, place in places], axis=1).astype(np.float64)  # (V, K, 2P)
    columns = dict(zip(header[7:], np.array([row[7:] for row in rows], dtype=float).T, strict=True))
    corpora = {"A": usages[:, :3], "B": usages[:, 3:]}
    measures = measure_change(corpora)
    for view, name in enumerate(("0", "1", "2", "mix")):
        for key, others in (("A", range(3)), ("B", range(3, 5))):
            pairs = [[(u, v) for v in others if v != u] for u in range(5)]
            expected = [np.mean([cosine_distance(usages[view, u], usages[view, v]) for u, v in each]) for each in pairs]
            np.testing.assert_allclose(columns[f"to_{key}_{name}"], expected, rtol=0, atol=6e-5)  # four digits
    found = {name: re.findall(r"-?\d\.\d{3}", line) for line in printed.splitlines() for name in [line[:12].strip()]}
    for name, values in measures.items():
        np.testing.assert_allclose(np.array(found[name], dtype=float), values[0], rtol=0, atol=6e-4)
    assert "A: old.csv, 3 usages: bank 2, banks 1." in printed
    order = columns["to_A_2"][3:].argsort() + 3
    shown = re.findall(r"\[(\w+)\]", printed.partition("B, nearest to A (layer 2):")[2])
    assert shown == [ROWS[row][5] for row in (*order, *order[::-1])]


@pytest.mark.parametrize(("name", "layer", "view"), [("v.csv", [], "2"), ("v.parquet", ["--layer", "mix"], "mix")])
def test_the_vectors_of_the_usages_give_the_distances_of_the_table(
    name: str, layer: list[str], view: str, folder: Path
) -> None:
    command = ("usages", folder, "old.csv", "new.jsonl", "--column", "line", "--split-into-words", "--word", "bank")
    printed = output_of(*command, "--forms", "banks,banking", "-o", "bank.csv", "--vectors", name, *layer)
    assert f"Wrote {name}." in printed
    table = pyarrow.csv.read_csv("bank.csv").to_pydict()
    written = pyarrow.csv.read_csv(name) if name.endswith("csv") else pyarrow.parquet.read_table(name)
    places = written.column_names[:5]
    assert places == ["corpus", "document", "sentence", "position", "word"]
    assert written.select(places).to_pydict() == {place: table[place] for place in places}
    numbers = np.array([written[f"v{number}"].to_pylist() for number in range(1, 17)]).T
    assert written.num_columns == 5 + 16
    for other, others in (("A", range(3)), ("B", range(3, 5))):
        pairs = [[cosine_distance(numbers[u], numbers[v]) for v in others if v != u] for u in range(5)]
        expected = [np.mean(distances) for distances in pairs]
        np.testing.assert_allclose(table[f"to_{other}_{view}"], expected, rtol=0, atol=6e-5)  # four digits


def test_forms_are_given_in_any_way_and_those_without_a_usage_are_noted(folder: Path) -> None:
    command = ("usages", folder, "old.csv", "--column", "line", "--word", "bank")
    result = run(*command, "--forms", "banks,BAN", "--forms", "don't,Banking", "--forms", "ban,a the", "-o", "bank.csv")
    assert "A: old.csv, 3 usages: bank 2, banks 1." in result.stdout
    notes = [line for line in result.stderr.splitlines() if line.startswith("Note: none of")]
    assert notes == [
        "Note: none of these usages is ban.",
        "Note: none of these usages is don't. The tokenizer splits don't into do and n't; give one of these.",
        "Note: none of these usages is banking.",
        "Note: none of these usages is a the. The tokenizer splits a the into a and the; give one of these. "
        "Put commas between forms.",
    ]


def test_a_form_with_a_blank_is_a_word_of_lists(folder: Path) -> None:
    rows = [["I", "like", "ice cream", "."], ["Ice", "is", "cold"], ["gelato"]]
    Path("w.jsonl").write_text("".join(f"{json.dumps({'words': row})}\n" for row in rows))
    command = ("usages", folder, "w.jsonl", "--column", "words", "--word", "gelato", "--forms", "ice cream")
    assert "2 usages: ice cream 1, gelato 1." in output_of(*command, "-o", "gelato.csv")


def test_intervals_are_printed_for_ten_usages_and_a_line_says_why_others_are_missing(folder: Path) -> None:
    for name, count in (("few", 9), ("enough", 10)):
        Path(f"{name}.txt").write_text("".join(f"Bank {number}\n" for number in range(count)))
    printed = output_of("usages", folder, "enough.txt", "few.txt", "--word", "bank", "-o", "bank.csv")
    has_interval = {line[:12].strip(): "[" in line for line in printed.splitlines()[3:7]}
    assert has_interval == {"within A": True, "within B": False, "APD": False, "PRT": False}
    assert printed.count("No interval where a corpus has fewer than 10 usages (9 in B): ") == 1
    assert "No interval" not in output_of("usages", folder, "enough.txt", "--word", "bank", "-o", "enough.csv")


def test_one_usage_in_each_of_two_corpora_is_a_single_pair(folder: Path) -> None:
    for name, text in (("one", "The bank .\n"), ("two", "A bank .\nBanks\n")):
        Path(f"{name}.txt").write_text(text)
    line = "Each corpus has one usage, so APD and PRT are the distance of this single pair."
    command = ("usages", folder, "one.txt", "two.txt", "--word", "bank", "-o")
    assert line in output_of(*command, "pair.csv")
    assert line not in output_of(*command, "pairs.csv", "--forms", "banks")


def test_one_corpus_is_enough_and_its_sentences_can_be_fewer(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    Path("many").mkdir()
    for name in ("a", "b"):
        Path(f"many/{name}.txt").write_text("".join(f"Bank {number}\n" for number in range(6)))
    command = ("usages", folder, "many", "--word", "bank", "-o", "many.csv", "--plot", "many.png")
    printed = output_of(*command, "--most", 4, "--layer", "mix")
    _, *rows = csv.reader(Path("many.csv").read_text(encoding="utf-8").splitlines())
    assert [row[1:3] for row in rows] == [
        ["many/a.txt", "0"],
        ["many/a.txt", "3"],
        ["many/b.txt", "0"],
        ["many/b.txt", "3"],
    ]
    assert "A, farthest from A (layer mix):" in printed
    assert "APD" not in printed
    assert Path("many.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_of_embed_joins_by_its_index_and_its_positions_plus_one(folder: Path) -> None:
    command = (folder, "old.csv", "--column", "line", "--split-into-words")
    output_of("usages", *command, "--word", "bank", "--forms", "banks", "-o", "bank.csv")
    output_of("embed", *command, "--words", "[Bb]anks?", "-o", "words.parquet")
    output = pyarrow.parquet.read_table("words.parquet")
    places = []
    for row in output.select(["document", "index", "positions"]).to_pylist():
        places += [(row["document"], row["index"], position + 1) for position in row["positions"]]
    table = pyarrow.csv.read_csv("bank.csv").to_pydict()
    assert places == [*zip(table["document"], table["sentence"], table["position"], strict=True)]


@pytest.mark.parametrize("count", [30, 31])
def test_the_numbers_of_sentences_stand_beside_at_most_thirty_points(count: int, folder: Path) -> None:
    pytest.importorskip("matplotlib")
    Path("bank.txt").write_text("\n" * 700 + "".join(f"Bank {number}\n" for number in range(count)))
    output_of("usages", folder, "bank.txt", "--word", "bank", "-o", "bank.csv", "--plot", "bank.svg")
    shown = re.findall("<!-- (7\\d\\d) -->", Path("bank.svg").read_text(encoding="utf-8"))
    assert shown == ([str(700 + number) for number in range(30)] if count == 30 else [])
