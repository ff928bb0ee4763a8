"""Every recipe runs from data to table on a few made-up texts, and the loaders read the real data if it is there."""

import csv
import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import linguist
import pytest
import task_data
import torch
from checkpoints import run_python, shared
from fresh_process import without

from elmo_hf import ElmoModel, ElmoTokenizer

EXAMPLES = Path(__file__).parents[1] / "examples"
# One process for all recipes, because each would start by importing transformers. Without `freeze`, every Trainer
# searches all that was imported for garbage.
SCRIPT = """
import gc
import random
import sys

sys.path.insert(0, sys.argv[1])
import task_data
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value

random.seed(0)
WORDS = "the ferry left early and late at noon for Oslo with Ada on board".split()

def words():
    return [random.choice(WORDS) for _ in range(random.randint(3, 9))]

def splits(make, features=None, train=20):
    sizes = {"train": train, "validation": 6, "test": 6}
    return DatasetDict({name: Dataset.from_list([make() for _ in range(n)], features) for name, n in sizes.items()})

def texts(has_pairs, train=20):
    columns = {"text": Value("string")} | ({"text_pair": Value("string")} if has_pairs else {})
    features = Features({**columns, "label": ClassLabel(names=["no", "yes", "maybe"])})
    make = lambda: {**{key: " ".join(words()) for key in columns}, "label": random.randrange(3)}
    return splits(make, features, train)

def labelled(names, label):
    features = Features({"words": List(Value("string")), "labels": List(ClassLabel(names=names))})
    return splits(lambda: {"words": (w := words()), "labels": [label(word) for word in w]}, features)

def questions():
    context = words()
    place = random.randrange(len(context))
    answer = {"answer": context[place], "answer_start": len(" ".join(context[:place])) + (place > 0)}
    return {"question": " ".join(words()), "context": " ".join(context), **answer}

MADE_UP = {
    "trec": lambda: texts(False),
    "sst2": lambda: texts(False),
    "ag_news": lambda: texts(False, train=120),  # enough for a step of pretraining
    "sick": lambda: texts(True),
    "ewt": lambda: labelled(["NOUN", "X"], lambda word: int(len(word) < 4)),
    "wnut17": lambda: labelled(["O", "B-name", "I-name"], lambda word: int(word[0].isupper())),
    "xquad": lambda: splits(questions),
}
task_data.TASKS = {name: (make, make) for name, make in MADE_UP.items()}

import answer_questions, classify_texts, compare_features, label_words, pretrain_and_classify, recipe
from pathlib import Path

gc.collect()
gc.freeze()
recipe.plt.rcParams["figure.dpi"] = 30
model = sys.argv[2]
for task, learn in (("trec", None), ("sst2", ["layer_2"]), ("sick", None)):
    classify_texts.main(model, task, Path(task), epochs=2 if learn else 1, learn=learn)
for task in ("wnut17", "ewt"):
    label_words.main(model, task, Path(task), epochs=1)
answer_questions.main(model, "xquad", Path("xquad"), epochs=1)
sizes = {"filters": "1:6,2:10", "projection_size": 16, "cell_size": 16}  # of one size, so there are no projections
pretrain_and_classify.main("ag_news", Path("own"), **sizes, pretraining_epochs=1, epochs=1)
compare_features.main(model, seeds=1, epochs=1, output=Path("comparison"))
lines = Path("comparison/results.jsonl").read_text()
compare_features.main(model, seeds=1, epochs=1, output=Path("comparison"))
assert Path("comparison/results.jsonl").read_text() == lines and len(lines.splitlines()) == 20
"""


def test_recipes_end_in_tables_plots_and_models(tiny_folder: Path, tmp_path: Path) -> None:
    text, work = run_python(SCRIPT, tmp_path, EXAMPLES, tiny_folder), tmp_path
    for task in ("trec", "sst2", "sick", "wnut17", "ewt", "xquad"):
        assert re.search(rf"^\| {task} \| \d+ \| [01]\.\d{{4}} \| [01]\.\d{{4}} \|$", text, re.MULTILINE)
        plots = {"learning_curves.png", "mix_weights.png"} | ({"confusions.png"} if task != "xquad" else set())
        assert {path.name for path in (work / task).glob("*.png")} == plots
        assert (work / task / "model.safetensors").exists()
    # Mixes and inputs of the pretraining recipe, twice each.
    row = r"^\| (words|characters) \| [\d.]+ \| ([a-z ]+) \| ([\d. ]+|a matrix) \| \d+\.\d\d \|$"
    mixes = ["learned weights", "random weights", "learned function", "not pretrained"]
    found = [each[:2] for each in re.findall(row, text, re.MULTILINE)]
    assert found == [(reads, mix) for reads in ("words", "characters") for mix in mixes]
    for task, score in (("trec", "accuracy"), ("sst2", "accuracy"), ("wnut17", "entity_f1"), ("ewt", "accuracy")):
        cells = r"( \d+\.\d\d ± \d+\.\d\d \|){3}( [+-]\d+\.\d\d \|){2}"
        # ELMo by itself and beside words, and all of it twice, the second time from the results.
        assert len(re.findall(rf"^\| {task} \| {score} \| 1 \|{cells}$", text, re.MULTILINE)) == 4


@pytest.mark.parametrize(
    ("task", "sizes", "first"),
    [
        ("trec", (4906, 546, 500), {"text": "How far is it from Denver to Aspen ?", "label": 5}),
        ("sst2", (6920, 872, 1821), {"label": 1}),
        ("sst5", (8544, 1101, 2210), {"text": "Effective but too-tepid biopic", "label": 2}),
        ("ag_news", (6156, 760, 684), {}),
        ("sick", (4500, 500, 4927), {"label": 0}),
        ("wnut17", (3394, 1009, 1287), {}),
        ("ewt", (12544, 2001, 2077), {"words": ["What", "if", "Google", "Morphed", "Into", "GoogleOS", "?"]}),
        ("xquad", (963, 119, 108), {}),
    ],
)
def test_the_real_data_is_read(task: str, sizes: tuple[int, ...], first: dict[str, Any]) -> None:
    shared("data")
    data = task_data.load(task)
    assert tuple(len(data[name]) for name in ("train", "validation", "test")) == sizes
    assert {key: data["test"][0][key] for key in first} == first


def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    code = "sys.path.insert(0, sys.argv[1])\ntry:\n    import label_words\nexcept SystemExit as end:\n    print(end)"
    printed = run_python(without("seqeval") + code, tmp_path, EXAMPLES)
    assert printed.startswith("Error: No module named 'seqeval'. In a clone of elmo-hf, install ")


def test_distances_between_uses_of_a_word_are_those_of_the_layers(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"old.txt": ["He sat .", "A Bank , the bank .", "By the bank ."], "new.txt": ["Go to my bank now ."]}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    linguist.uses(str(tiny_folder), "bank", [tmp_path / name for name in texts], tmp_path / "bank.csv")
    places = [("old.txt", 1, 2), ("old.txt", 1, 5), ("old.txt", 2, 3), ("new.txt", 0, 4)]
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder), ElmoTokenizer.from_pretrained(tiny_folder)
    vectors = []
    for name, row, position in places:
        output = model(**tokenizer(texts[name][row], return_tensors="pt"), output_hidden_states=True)
        vectors.append(torch.stack([layer[0, position] for layer in output.hidden_states[1:]]).detach())
    pairs = list(combinations(range(4), 2))
    distances = {(u, v): 1 - torch.cosine_similarity(vectors[u], vectors[v], dim=-1) for u, v in pairs}
    _, *rows = csv.reader((tmp_path / "bank.csv").read_text(encoding="utf-8").splitlines())
    assert [tuple(row[:6]) for row in rows] == [tuple(map(str, (*places[u], *places[v]))) for u, v in pairs]
    for row, pair in zip(rows, pairs, strict=True):
        assert [float(cell) for cell in row[6:]] == pytest.approx(distances[pair].tolist(), abs=1e-4)

    between = torch.stack([distances[u, 3] for u in range(3)]).mean(dim=0)
    within = torch.stack([distances[pair] for pair in pairs[:2] + pairs[3:4]]).mean(dim=0)
    prototypes = 1 - torch.cosine_similarity(sum(vectors[:3]), vectors[3], dim=-1)
    shown = [[float(n) for n in re.findall(r"\d\.\d\d|nan", line)] for line in capsys.readouterr().out.splitlines()[1:]]
    expected = [within.tolist(), [math.nan] * len(between), between.tolist(), prototypes.tolist()]
    for found, values in zip(shown, expected, strict=True):
        assert found == pytest.approx(values, abs=0.006, nan_ok=True)
