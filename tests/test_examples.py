"""Every example runs from data to table on a few made-up texts, and counts what it says it counts.

The loaders read the real data if it is there.
"""

import ast
import gzip
import json
import random
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import answer_questions
import classify_texts
import compare_features
import datasets
import label_words
import linguist
import mix_weights
import nearest_senses
import numpy as np
import pretrain_and_classify
import probe_layers
import pytest
import recipe
import sample_efficiency
import sense_data
import task_data
import typer
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from huggingface_hub import ModelCard
from own_files import DataError, OwnData
from seeds import check_settings, contents_of, interval, mean_and_deviation, say_interval
from typer.testing import CliRunner
from word_layers import word_layers

from elmo_hf import ElmoConfig, ElmoForSequenceClassification, ElmoModel, ElmoTokenizer
from elmo_hf.folder.model_names import DownloadStoppedError
from elmo_hf.share.saved_card import label_card
from elmo_hf.share.training_card import ElmoTrainer
from tests.helpers.checkpoints import run_python, shared
from tests.helpers.fresh_process import without
from tests.helpers.task_models import make_task_model
from tests.helpers.task_training import make_trainer

EXAMPLES = Path(__file__).parents[1] / "examples"
STRING = Value("string")
TEXT = {"text": STRING, "label": ClassLabel(names=["no", "yes", "maybe"])}
# The columns of each task.
COLUMNS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("trec", "sst2", "sst5", "ag_news"), TEXT),
    "sick": TEXT | {"text_pair": STRING},
    "ewt": {"words": List(STRING), "labels": List(ClassLabel(names=["NOUN", "X"]))},
    "wnut17": {"words": List(STRING), "labels": List(ClassLabel(names=["O", "B-name", "I-name"]))},
    "xquad": {"question": STRING, "context": STRING, "answer": STRING, "answer_start": Value("int64")},
}
SEMCOR = """<s snum=1>
<wf cmd=ignore pos=DT>The</wf>
<wf cmd=done pos=NN lemma=ferry wnsn=1 lexsn=1:06:00::>ferry</wf>
<wf cmd=done pos=VB lemma=take_off wnsn=2;3 lexsn=2:38:00::>took_off</wf>
<wf cmd=done rdf=person pos=NNP lemma=person wnsn=1 lexsn=1:03:00:: pn=person>Ada</wf>
<wf cmd=done pos=VB lemma=lose wnsn=0 lexsn=2:40:00::>lost</wf>
<punc>.</punc>
</s>
"""


def make_up(task: str) -> DatasetDict:
    """Rows of random words; no word is a part of another one, so an answer is found where it stands."""
    draw = random.Random(task)

    def row() -> dict[str, Any]:
        words = draw.choices("the ferry left early and late noon for Oslo with Ada board".split(), k=draw.randint(3, 9))
        text, answer = " ".join(words), draw.choice(words)
        question = {"question": text, "context": text, "answer": answer, "answer_start": text.index(answer)}
        texts = {"text": text, "text_pair": text, "label": draw.randrange(3)}
        found = question | texts | {"words": words, "labels": [int(word.istitle()) for word in words]}
        return {name: found[name] for name in COLUMNS[task]}

    sizes = {"train": 120 if task == "ag_news" else 20, "validation": 6, "test": 6}  # 120: a step of pretraining
    parts = {name: [row() for _ in range(size)] for name, size in sizes.items()}
    return DatasetDict({name: Dataset.from_list(rows, Features(COLUMNS[task])) for name, rows in parts.items()})


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The data of the tasks is made up, plots are small, and files are written into a new folder."""
    for task in COLUMNS:
        monkeypatch.setitem(task_data.TASKS, task, (partial(make_up, task),) * 2)
    monkeypatch.delenv(task_data.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with recipe.plt.rc_context({"figure.dpi": 30}):
        yield


def rows_of(text: str) -> list[list[str]]:
    """The cells of the printed tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row, below in zip(rows, [*rows[1:], [""]], strict=True) if "---" not in (row[0], below[0])]


@pytest.mark.parametrize("labels", [{"license": "mit", "language": ["en"], "base_model": "org/elmo"}, {}])
def test_a_recipe_that_replaces_its_model_keeps_the_labels_of_the_card(labels: dict[str, Any], tmp_path: Path) -> None:
    trainer = make_trainer(make_task_model("classification"), "classification", tmp_path, ElmoTrainer, max_steps=1)
    trainer.train()
    card = tmp_path / "README.md"
    recipe.write_card(trainer, None, "films.csv", [["accuracy"], ["0.5"]])
    first = card.read_text(encoding="utf-8")
    if labels:
        label_card(card, labels)
    recipe.write_card(trainer, None, "films.csv", [["accuracy"], ["0.75"]])
    text = card.read_text(encoding="utf-8")
    assert {name: ModelCard(text).data.to_dict().get(name) for name in labels} == labels
    assert ("`elmo-hf card FOLDER" in text) == (labels == {})
    assert text.endswith("| 0.75 |\n")
    if not labels:
        assert text.replace("0.75", "0.5") == first
    card.write_bytes(b"\xff")  # a damaged card has no labels
    recipe.write_card(trainer, None, "films.csv", [["accuracy"], ["0.5"]])
    assert card.read_text(encoding="utf-8") == first


@pytest.mark.usefixtures("made_up")
def test_recipes_end_in_tables_plots_and_models(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_folder)
    for task, learn in (("trec", None), ("sst2", ["layer_2"]), ("sick", None)):
        classify_texts.main(model, task, Path(task), epochs=2 if learn else 1, learn=learn)
    for task in ("wnut17", "ewt"):
        label_words.main(model, task, Path(task), epochs=1)
    answer_questions.main(model, "xquad", Path("xquad"), epochs=1)
    text = capsys.readouterr().out
    for task in ("trec", "sst2", "sick", "wnut17", "ewt", "xquad"):
        num_counts = 2 if task in ("wnut17", "ewt") else 1  # texts and words
        assert re.search(rf"^\| {task} (\| \d+ ){{{num_counts}}}(\| [01]\.\d{{4}} ){{1,3}}\|$", text, re.MULTILINE)
        plots = {"learning_curves.png", "mix_weights.png"} | ({"confusions.png"} if task != "xquad" else set())
        assert {path.name for path in Path(task).glob("*.png")} == plots
        assert Path(task, "model.safetensors").exists()
        pictures = ", ".join(sorted(f"{task}/{plot}" for plot in plots))
        assert f"The model is in {task}, and its card is {task}/README.md.\nPictures: {pictures}\n" in text
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {task} |"))
        card = Path(task, "README.md").read_text(encoding="utf-8")
        (epochs,) = (line for line in card.splitlines() if " epochs ran" in line)
        assert epochs in text.splitlines()
        assert "\n\n## On the test set\n\n| task |" in card
        assert card.endswith(f" |\n{row}\n")  # the scores are those of the table
        assert "pipeline_tag: " in card
        (head,) = (line for line in card.splitlines() if line.startswith("| task | test "))
        columns = [column.strip() for column in head.strip("|").split("|")]
        assert len(set(columns)) == len(columns) == len(row.strip("|").split("|"))
        assert re.search(r"^\| learning_rate \| 0\.001; .*0\.01 for elmo\.scalar_mixes\.0\.logits", card, re.MULTILINE)
    train, tested = (make_up("sick")[part]["label"][:] for part in ("train", "test"))
    commonest = [label for label in range(3) if train.count(label) == max(map(train.count, range(3)))]
    shares = [f"{tested.count(label) / len(tested):.4f}" for label in commonest]
    assert next(row[2] for row in rows_of(text) if row[0] == "sick") in shares
    nouns = [label == 0 for labels in make_up("ewt")["test"]["labels"] for label in labels]  # most words are nouns
    assert next(row[3] for row in rows_of(text) if row[0] == "ewt") == f"{sum(nouns) / len(nouns):.4f}"


@pytest.mark.usefixtures("made_up")
def test_the_recipe_that_pretrains_compares_mixes_and_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    open_figures = recipe.plt.get_fignums()
    sizes = {"filters": "1:6,2:10", "projection_size": 16, "cell_size": 16}  # of one size, so there are no projections
    pretrain_and_classify.main("ag_news", Path("own"), **sizes, pretraining_epochs=1, epochs=1)
    row = r"^\| (words|characters) \| [\d.]+ \| ([a-z ]+) \| (?:[\d. ]+|a matrix) \| \d+\.\d\d \|$"
    mixes = ["learned weights", "random weights", "learned function", "not pretrained"]
    printed = capsys.readouterr().out
    found = re.findall(row, printed, re.MULTILINE)
    assert found == [(reads, mix) for reads in ("words", "characters") for mix in mixes]
    assert printed.endswith("each has a card, README.md.\nPictures: own/accuracies.png\n")
    cards = list(Path("own", "0").glob("*_*/README.md"))
    assert len(cards) == 8
    assert all("| ag_news | 6 | 0." in card.read_text(encoding="utf-8") for card in cards)
    assert recipe.plt.get_fignums() == open_figures  # each of these plots was closed


@pytest.mark.usefixtures("made_up")
def test_comparisons_end_in_tables_and_plots_and_compute_nothing_twice(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, lines = str(tiny_folder), []
    for _ in range(2):
        compare_features.main(model, seeds=1, epochs=1)
        lines.append(Path("comparison/results.jsonl").read_text().splitlines())
    assert lines[0] == lines[1]
    assert len(lines[0]) == 30
    text = capsys.readouterr().out
    assert re.findall(r"\d+ of \d+ results are in comparison already\.", text) == [
        "30 of 30 results are in comparison already."  # the second time only
    ]
    for task in compare_features.TASKS:
        score = "entity_f1" if task == "wnut17" else "accuracy"
        cells = r"( \d+\.\d\d \|){3}( [+-]\d+\.\d\d \|){2}"  # one seed has no deviation
        # ELMo by itself and beside words, and all of it twice, the second time from the results.
        assert len(re.findall(rf"^\| {task} \| {score} \| 1 \|{cells}$", text, re.MULTILINE)) == 4
        line = rf"^{task}: \d+ test texts; the label commonest in training is right in \d+\.\d\d %\.$"
        assert len(re.findall(line, text, re.MULTILINE)) == 2 * (score == "accuracy")
        line = rf"^{task}, words and ELMo: \d+\.\d\d % of \d+ test texts are right, so of all such texts between "
        assert len(re.findall(line, text, re.MULTILINE)) == 2 * (task not in ("wnut17", "ewt"))  # not labels of words
    monkeypatch.setattr(sample_efficiency, "LEAST_ROWS", 8)
    for what in ("table2", "table3"):
        sample_efficiency.main(model, what, ["trec"], ["8"], seeds=1, epochs=1)
    assert [[row[0], row[2]] for row in rows_of(capsys.readouterr().out)] == [["trec", "8"]] * 2
    # Without ELMo, its last layer, lambda 1 and 0.001; at the output, and at both.
    assert len(Path("sample_efficiency/results.jsonl").read_text().splitlines()) == 6
    for _ in range(2):
        mix_weights.main(model, ["trec"], seeds=1, epochs=1)
    rows = [row for row in rows_of(capsys.readouterr().out) if len(row) == 7]
    assert [row[:2] for row in rows] == [["trec", "input"], ["trec", "output"]] * 2
    assert rows[:2] == rows[2:]
    plots = ["mixes/mix_weights", "sample_efficiency/table2", "sample_efficiency/table3"]
    assert sorted(str(path) for path in Path().glob("*/*.png")) == [f"{plot}.png" for plot in plots]


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
def test_the_real_data_is_read(
    task: str, sizes: tuple[int, ...], first: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(task_data.VARIABLE, str(shared("data")))
    data = task_data.load(task)
    assert tuple(len(data[name]) for name in ("train", "validation", "test")) == sizes
    assert first.items() <= data["test"][0].items()


def test_data_that_its_variable_does_not_name_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_HF_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"ELMO_HF_DATA must be .*none, which is no folder; unset it"):
        task_data.load("trec")
    monkeypatch.setenv("ELMO_HF_DATA", str(tmp_path))
    for task in task_data.TASKS:
        with pytest.raises(DataError, match=rf"there is no file {tmp_path}/.*; put it there"):
            task_data.load(task)


def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    code = """
import importlib.util

find_spec = importlib.util.find_spec  # transformers asks it what is installed
importlib.util.find_spec = lambda name, *rest: None if name == "datasets" else find_spec(name, *rest)
sys.path.insert(0, sys.argv[1])
try:
    import label_words
except SystemExit as end:
    print(end)
"""
    printed = run_python(without("datasets", "seqeval") + code, tmp_path, EXAMPLES)  # the plain install has neither
    assert printed.startswith("Error: No module named 'datasets'. In a clone of elmo-hf, install ")


def test_word_layers_are_those_of_each_sentence_alone(tiny_folder: Path) -> None:
    model, tokenizer = ElmoModel.from_pretrained(tiny_folder).eval(), ElmoTokenizer.from_pretrained(tiny_folder)
    sentences = [["Ada", "left", "early"], [], ["Yes"]]
    found = dict(word_layers(model, tokenizer, sentences))
    assert list(found) == [2, 0]
    for index, layers in found.items():
        inputs = tokenizer([sentences[index]], is_split_into_words=True, return_tensors="pt")
        alone = model(**inputs, output_hidden_states=True).hidden_states
        np.testing.assert_allclose(layers, np.stack([layer[0, 1:-1].detach().numpy() for layer in alone]), atol=1e-6)


def test_nearest_senses_names_its_options_in_an_error(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus.csv").write_text("first,second\nWe play,We sing\n", encoding="utf-8")
    result = CliRunner().invoke(nearest_senses.app, [str(tiny_folder), "corpus.csv", "play"])
    assert result.exit_code == 1
    *_, line = result.output.splitlines()  # after bars
    assert line.startswith("Error: corpus.csv")
    assert "`--column NAME`" in line


@pytest.mark.usefixtures("made_up")
def test_nearest_senses_lists_neighbours_by_layer(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["We play here", "They play the harp", "A play.", "no such word"]
    Path("corpus.txt").write_text("\n".join(lines), encoding="utf-8")
    nearest_senses.main(str(tiny_folder), Path("corpus.txt"), "play", sentence=["Let us play", "We play here"], top=2)
    text = capsys.readouterr().out
    rows = rows_of(text)
    assert [row[1] for row in rows] == ["0", "", "1", "", "2", ""] * 2
    assert [rows[0][0], rows[6][0]] == ["Let us **play**", "We **play** here"]
    # The given sentence itself is left out, and in layer 0 the word itself.
    assert not any(row[2] in ("play", "We **play** here") for row in rows)
    assert text.splitlines()[-2:] == ["2 times 'play' among 10 words", "Picture: senses/play.png"]
    assert Path("senses/play.png").stat().st_size > 1000
    with pytest.raises(typer.BadParameter, match="'Let us go'"):
        nearest_senses.main(str(tiny_folder), Path("corpus.txt"), "play", sentence=["Let us go"], output=Path("new"))


@pytest.mark.usefixtures("made_up")
def test_nearest_senses_draws_no_picture_of_a_word_that_the_corpus_has_not(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("corpus.txt").write_text("We play here\nA harp\n", encoding="utf-8")
    command = (str(tiny_folder), Path("corpus.txt"), "harp")
    nearest_senses.main(*command, sentence=["A harp"], top=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "0 times 'harp' among 3 words"
    assert lines[-1] == "No picture, because corpus.txt has no 'harp' besides the given sentences."
    assert not Path("senses").exists()
    Path("corpus.txt").write_text("A harp\n\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"corpus\.txt has no words besides the given sentences; give a file with"):
        nearest_senses.main(*command, sentence=["A harp"])


@pytest.mark.usefixtures("made_up")
def test_nearest_senses_keeps_an_earlier_picture_and_names_only_its_own(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("corpus.txt").write_text("We play here\nA harp\n", encoding="utf-8")
    Path("senses").mkdir()
    Path("senses/play.png").write_text("earlier", encoding="utf-8")
    with pytest.raises(FileExistsError, match=r"senses/play\.png exists already; remove it"):
        nearest_senses.main("none", Path("corpus.txt"), "play")
    nearest_senses.main(str(tiny_folder), Path("corpus.txt"), "harp", sentence=["The harp"], top=1)
    assert capsys.readouterr().out.splitlines()[-1] == "Picture: senses/harp.png"
    assert sorted(path.name for path in Path("senses").iterdir()) == ["harp.png", "play.png"]
    assert Path("senses/play.png").read_text(encoding="utf-8") == "earlier"


def test_the_picture_of_senses_says_what_its_colours_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe.plt, "close", lambda figure: None)
    queries, others = np.eye(5, 7)[None].repeat(3, axis=0)[:, :2], np.eye(5, 7)[None].repeat(3, axis=0)
    nearest_senses.plot(queries, others, [["A", "play"], ["We", "play"]], "play", tmp_path / "play.png")
    (legend,) = recipe.plt.gcf().legends
    monkeypatch.undo()
    recipe.plt.close()
    assert [text.get_text() for text in legend.get_texts()] == ["A play", "We play"]
    assert "colour of the sentence (star) that it is nearest to in layer 2" in legend.get_title().get_text()


WRAPPED_TEXT = """The ferry left the harbour at seven in the
morning. It was late, and nobody on the quay
knew why. Mr. Hale had been asleep, they
said, when the tide turned. So the ferry was
late.
"""
SENTENCES_OF_IT = [
    "The ferry left the harbour at seven in the morning.",
    "It was late, and nobody on the quay knew why.",
    "Mr. Hale had been asleep, they said, when the tide turned.",
    "So the ferry was late.",
]


@pytest.mark.parametrize(
    ("text", "expected", "is_noted"),
    [
        (WRAPPED_TEXT, SENTENCES_OF_IT, True),
        (f"ONE\n\n{WRAPPED_TEXT}", ["ONE", *SENTENCES_OF_IT], False),
        (
            "ONE\nWe left. They came\nTwo\nthree\nWe sang.\n",
            ["ONE", "We left.", "They came", "Two", "three", "We sang."],
            False,
        ),
    ],
)
def test_a_text_without_blank_lines_is_joined_if_its_lines_are_cut_within_sentences(
    text: str, expected: list[str], is_noted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "raw.txt"
    path.write_text(text, encoding="utf-8")
    linguist.sentences(path, tmp_path / "sentences.txt")
    assert (tmp_path / "sentences.txt").read_text(encoding="utf-8").splitlines() == expected
    assert ("so all lines were joined" in capsys.readouterr().err) is is_noted


def test_a_table_is_no_running_text_to_cut_into_sentences(tmp_path: Path) -> None:
    path = tmp_path / "stimuli.csv"
    path.write_text("item;sentence\n1;We sat. We left.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"stimuli\.csv must be running text, but is read as a table\. Give it to the"):
        linguist.sentences(path, tmp_path / "sentences.txt")
    assert list(tmp_path.iterdir()) == [path]
    linguist.sentences(path, tmp_path / "sentences.txt", input_format="text")
    lines = (tmp_path / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["item;sentence", "1;We sat.", "We left."]


# The examples that are programs.
PROGRAMS = [path for path in sorted(EXAMPLES.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]
# What each program is given beside a model; the model of `pretrain_and_classify` is made of the file.
ARGUMENTS = {
    "classify_texts": "none.csv",
    "label_words": "none.csv",
    "answer_questions": "none.csv",
    "compare_features": "--task none.csv",
    "sample_efficiency": "table2 --task none.csv",
    "probe_layers": "pos --task none.conll",
    "nearest_senses": "none.txt play",
    "word_senses": "none.csv --word bank",
}


def run_program(path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs an example as a command does; returns its exit code, or the line that it ends with."""
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    return end.value.code


def test_sizes_of_training_sets_are_numbers_with_commas_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = EXAMPLES / "sample_efficiency.py"
    for sizes, reason in (
        ("100,many", "--size must be numbers of rows above 0, such as 100,200, found 'many'."),
        ("0", "--size must be numbers of rows above 0, such as 100,200, found '0'."),
        ("100,200", "there is no file or folder none.csv."),
    ):
        assert run_program(path, ["tiny", "table2", "--task", "none.csv", "--size", sizes], monkeypatch) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"Error: {reason}"


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_no_example_ends_in_a_traceback(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_program(path, ["--help"], monkeypatch) == 0
    assert run_program(path, ["-h"], monkeypatch) == 0
    assert run_program(path, ["--no-such-option"], monkeypatch) == 2
    if path.stem == "linguist":
        assert run_program(path, ["pairs", "-h"], monkeypatch) == 0
    others = ARGUMENTS.get(path.stem, "").split()
    if path.stem == "linguist":
        commands = [["pairs", "tinny", "none.txt", "-o", "new.csv"], ["sentences", "none.txt", "new.txt"]]
    elif path.stem == "pretrain_and_classify":
        commands = [["none.csv"]]
    else:
        commands = [["tinny", *others]]
        if others:
            commands.append(["tiny", *others])
    capsys.readouterr()
    for command in commands:
        assert run_program(path, command, monkeypatch) == 1
        *_, line = capsys.readouterr().err.splitlines()  # after bars
        assert line.startswith("Error: ")
        if "tinny" in command:
            assert "Did you mean `tiny`?" in line
    assert list(tmp_path.iterdir()) == []


def write_semcor(folder: Path, documents: int) -> Path:
    (folder / "brown1" / "tagfiles").mkdir(parents=True)
    for number in range(documents):
        text = SEMCOR.replace("lemma=ferry wnsn=1", f"lemma=ferry wnsn={1 + number % 2}")
        (folder / "brown1" / "tagfiles" / f"br-a{number:02}").write_text(text, encoding="latin-1")
    return folder


def test_semcor_is_read_without_names_and_lost_senses(tmp_path: Path) -> None:
    texts, senses = sense_data.read_semcor(write_semcor(tmp_path / "semcor", 1), None)
    assert texts == [["The", "ferry", "took", "off", "Ada", "lost", "."], []]
    assert senses == [(0, 0, 1, 2, "ferry noun", 1), (0, 0, 2, 4, "take_off verb", 2)]


def write_lines(path: Path, lines: list[str], answers: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for kind, texts in (("data", lines), ("gold", answers)):
        path.with_name(f"{path.name}.{kind}.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def write_wic(folder: Path) -> Path:
    lines = ["board\tN\t3-1\tAda went on board\tThe board met", "leave\tV\t1-3\tWe left early\tThe ferry had left ."]
    write_lines(folder / "train" / "train", [*lines, lines[1]], ["F", "T", "F"])
    write_lines(folder / "dev" / "dev", lines, ["F", "T"])
    return folder


def test_pairs_of_wic_are_two_words_each_with_one_answer(tmp_path: Path) -> None:
    texts, senses = sense_data.read_wic(write_wic(tmp_path), 2)
    assert senses[4:6] == [(1, 4, 3, 4, "board N", 2), (1, 5, 1, 2, "board N", 2)]
    assert senses[6:] == [(1, 6, 1, 2, "leave V", 1), (1, 7, 3, 4, "leave V", 1)]
    assert [texts[sense.sentence][sense.start] for sense in senses[4:]] == ["board", "board", "left", "left"]
    assert [sense.document for sense in senses] == [0] * 4 + [1] * 4  # of three pairs of training two were drawn
    write_lines(tmp_path / "dev" / "dev", ["leave\tV\t1-9\tWe left\tThey left"], ["T"])
    with pytest.raises(typer.BadParameter, match="found '9'"):
        sense_data.read_wic(tmp_path, None)


def test_senses_of_coarsewsd_are_numbered_from_the_commonest_in_training(tmp_path: Path) -> None:
    lines = ["1\tthe bank left", "2\tat the bank", "0\tbank on\u2028board"]
    write_lines(tmp_path / "bank" / "train", lines, ["1", "0", "1"])
    write_lines(tmp_path / "bank" / "test", lines[:2], ["0", "2"])
    texts, senses = sense_data.read_coarsewsd(tmp_path, None)
    assert [(sense.document, sense.sense) for sense in senses] == [(0, 1), (0, 2), (0, 1), (1, 2), (1, 3)]
    assert {texts[sense.sentence][sense.start] for sense in senses} == {"bank"}


def test_a_threshold_on_the_cosine_is_chosen_in_training() -> None:
    def pair(part: int, is_same: bool) -> list[sense_data.Sense]:
        return [sense_data.Sense(part, 0, 0, 1, "bank", 1 if is_same else 2)] * 2

    senses = [*pair(0, True), *pair(0, True), *pair(0, False), *pair(1, True), *pair(1, False), *pair(1, False)]
    cosines = np.array([[0.9, 0.6, 0.5, 0.7, 0.55, 0.1], [0.2, 0.3, 0.9, 0.2, 0.9, 0.1]])
    second = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=-1)
    first = np.broadcast_to([1.0, 0.0], second.shape)
    vectors = np.stack([first, second], axis=2).reshape(2, 12, 2)
    # One answer, "the same"; a layer whose threshold is 0.6; one that is best with all pairs the same, from 0.2.
    right = probe_layers.score_pairs(vectors, senses)["pairs"]
    assert right.tolist() == [[True, False, False], [True, True, True], [True, False, True]]


def test_gains_over_the_token_layer_are_of_the_same_words() -> None:
    right = np.array([[1, 1, 1, 1], [1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1]], dtype=bool)
    # Two of four words more, one of four less: deviations of 0.577 and 0.5 points in a hundred, over the root of 4.
    assert probe_layers.above_token_layer(right) == ["+50.00 ± 28.87", "-25.00 ± 25.00"]
    assert (mean_and_deviation([0.5, 0.7]), mean_and_deviation([0.5])) == ("60.00 ± 14.14", "50.00")


def test_an_interval_of_a_share_is_wilsons(capsys: pytest.CaptureFixture[str]) -> None:
    # The ends p of the interval are the solutions of |p - share| = 1.96 √(p (1 - p) / N).
    for share, count in ((0.5, 10), (0.8, 1000), (1.0, 7), (0.0, 7)):
        low, high = interval(share, count)
        assert low <= share <= high
        for end in (low, high):
            assert (end - share) ** 2 == pytest.approx(1.96**2 * end * (1 - end) / count, abs=1e-12)
    say_interval("films, ELMo", 0.8, 1000)
    assert capsys.readouterr().out == (
        "films, ELMo: 80.00 % of 1,000 test texts are right, so of all such texts between 77.4 and 82.4 % "
        "(95% interval).\n"
    )


def test_a_comparison_says_what_its_deviations_are_and_how_far_accuracies_may_be_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results: list[dict[str, Any]] = []
    for features, scores in (("ELMo", (0.8, 0.9)), ("random ELMo", (0.5, 0.7)), ("words", (0.6, 0.6))):
        for seed, score in enumerate(scores):
            result = {"task": "films", "features": features, "seed": seed, "score": score, "measure": "accuracy"}
            results.append(result | {"test_texts": 40, "has_words": False})
    spread = "After ± is the standard deviation over seeds."
    compare_features.print_results(results)
    text = capsys.readouterr().out
    assert "| 2 | 85.00 ± 7.07 | 60.00 ± 14.14 | 60.00 ± 0.00 | +25.00 | +25.00 |" in " ".join(text.split())
    assert spread in text
    compare_features.print_results([result for result in results if result["seed"] == 0])
    text = capsys.readouterr().out
    assert "| 1 | 80.00 | 50.00 | 60.00 | +30.00 | +20.00 |" in " ".join(text.split())
    assert "±" not in text
    compare_features.print_intervals(results)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("films, ELMo: 85.00 % of 40 test texts are right, so of all such texts between ")
    assert len(others) == 2
    compare_features.print_intervals([result | {"has_words": True} for result in results])
    assert capsys.readouterr().out == ""


def test_a_sense_is_the_nearest_centre_of_its_lemma() -> None:
    def sense(document: int, lemma: str, number: int) -> sense_data.Sense:
        return sense_data.Sense(document, 0, 0, 1, lemma, number)

    def layer(here: np.ndarray, there: np.ndarray) -> np.ndarray:
        return np.concatenate([here[[0, 1, 1, 0]], there[[0, 1, 1, 0]]])

    # Of two documents, one is held out; both say the same.
    senses = [sense(d, *word) for d in (0, 1) for word in (("bank", 2), ("bank", 3), ("bank", 3), (f"only {d}", 1))]
    right, wrong = np.eye(2), np.eye(2)[::-1]
    held_out = probe_layers.draw_documents(senses, 0)
    assert held_out in ([0], [1])
    scores = probe_layers.score_senses(np.stack([layer(right, right), layer(right, wrong)]), senses, held_out)
    # WordNet's first sense, a layer that knows, one that is always wrong
    means = {words: right.mean(axis=1).tolist() for words, right in scores.items()}
    assert means == {"all words": [0.25, 1.0, 0.25], "ambiguous words": [0.0, 1.0, 0.0]}


@pytest.mark.usefixtures("made_up")
def test_probes_end_in_tables_and_plots(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probe_layers.main(str(tiny_folder), "senses", write_semcor(Path("semcor"), 4), seeds=2)
    kinds = [f"{kind}, {words} words" for kind in ("trained", "random weights") for words in ("all", "ambiguous")]
    assert sorted(row[0] for row in rows_of(capsys.readouterr().out)) == sorted(kinds)
    probe_layers.main(str(tiny_folder), "senses", wic=write_wic(Path("wic")), seeds=2)
    probe_layers.main(str(tiny_folder), "pos", task="ewt", seeds=2)
    rows = [row[:2] for row in rows_of(capsys.readouterr().out)]
    assert rows[:2] == [["trained, pairs", "1"], ["random weights, pairs", "2"]]
    assert rows[2:] == [["trained", "1"], ["random weights", "2"]]
    assert sorted(path.name for path in Path("probes").iterdir()) == ["pos.png", "senses.png"]


@pytest.mark.parametrize(
    ("num_run", "expected"),
    [(6, "6 of 20 epochs ran, because the score did not get better any more. "), (20, "20 of 20 epochs ran. ")],
)
def test_a_recipe_says_which_epoch_its_model_is_of(num_run: int, expected: str) -> None:
    trainer = SimpleNamespace(
        state=SimpleNamespace(epoch=float(num_run), global_step=7 * num_run),
        args=SimpleNamespace(num_train_epochs=20, metric_for_best_model="accuracy"),
        step_of_weights=7 * 3,
    )
    end = "The model is that of epoch 3, the first with the best accuracy on the validation set."
    assert recipe.epochs_of(trainer) == expected + end


def test_rows_are_drawn_by_seed_and_rare_words_become_unknown() -> None:
    def row(*ids: int) -> dict[str, list[int]]:
        return {"word_vector_ids": list(ids)}

    rows = {"train": [row(5, 6), row(5, 7)], "validation": [row(6, 5), row(8)], "test": [row(7, 5)]}
    drawn = sample_efficiency.sample(rows, 2, 0, unknown=3, choice=1)
    assert sorted(r["word_vector_ids"] for r in drawn["train"]) == [[5, 3], [5, 3]]
    assert [drawn["validation"], drawn["test"]] == [[row(3, 5)], [row(3, 5)]]


def test_mixes_of_a_saved_model_are_its_weights_and_scales(tmp_path: Path) -> None:
    sizes = {"projection_size": 3, "cell_size": 5, "char_filters": [[1, 4]], "num_highway_layers": 1}
    fields = {"task_encoder": "lstm", "num_output_representations": 2, "scalar_mix_weights": [0.2, 0.3, 0.5]}
    model = ElmoForSequenceClassification(ElmoConfig(**sizes, **fields))
    model.scalar_mixes_of_all()[1].set_weights([0.5, 0.5, 0.0], scale=0.7)
    model.save_pretrained(tmp_path)
    first, second = mix_weights.read_mixes(tmp_path)
    np.testing.assert_allclose(first, [0.2, 0.3, 0.5, 1.0], atol=1e-6)
    np.testing.assert_allclose(second, [0.5, 0.5, 0.0, 0.7], atol=1e-6)


def test_the_legend_of_mixes_covers_no_bar(
    tiny_config: ElmoConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe.plt, "close", lambda figure: None)  # the figure is looked at
    fields = {"task_encoder": "lstm", "num_output_representations": 2}
    model = ElmoForSequenceClassification(ElmoConfig(**tiny_config.to_diff_dict() | fields))
    recipe.plot_mix_weights(model, tmp_path / "mixes.png")
    figure = recipe.plt.gcf()
    (legend,), (axes,) = figure.legends, figure.axes
    assert len(axes.patches) == 2 * len(model.scalar_mixes_of_all()[0].weights)
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


@pytest.mark.parametrize(("column", "nested"), [("label", False), ("labels", True)])
def test_the_commonest_label_of_training_is_scored_on_the_test_set(column: str, nested: bool) -> None:
    def labelled(labels: list[int]) -> Dataset:
        return Dataset.from_dict({column: [labels[:2], labels[2:]] if nested else labels})

    data = DatasetDict(train=labelled([0, 1, 1]), test=labelled([1, 0, 0, 0, 0]))
    assert recipe.share_of_commonest(data, column) == pytest.approx(0.2)  # a fifth is no binary fraction


def test_results_of_other_settings_are_not_taken_for_these(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for _ in range(2):
        check_settings(folder, {}, task="trec", rows=None, epochs=3)
    (folder / "results.jsonl").touch()
    with pytest.raises(DataError) as refused:
        check_settings(folder, {}, task="sst2", rows=100, epochs=4)
    assert str(refused.value) == (
        f"{folder} has results of other settings or files: task was trec and is now sst2; rows was not given and is "
        f"now 100; epochs was 3 and is now 4. Give another `--output`, or delete {folder}."
    )


def test_results_of_other_files_are_not_taken_for_these(tmp_path: Path, tiny_folder: Path) -> None:
    folder, model = tmp_path / "results", shutil.copytree(tiny_folder, tmp_path / "model")
    table, other = tmp_path / "table.csv", tmp_path / "data"
    table.write_text("text,label\n", encoding="utf-8")
    other.mkdir()
    (other / "train.csv").write_text("text,label\n", encoding="utf-8")
    check_settings(folder, contents_of([table, other], model), epochs=3)
    (folder / "results.jsonl").touch()
    (model / "README.md").write_text("no part of the model", encoding="utf-8")
    (other / "cache-1.arrow").write_bytes(b"no part of the data")
    check_settings(folder, contents_of([table], model), epochs=3)  # fewer tasks than before
    # Of equal size, and in a folder under another name.
    for path, change in (
        (table, lambda: table.write_text("text,lapel\n", encoding="utf-8")),
        (other, lambda: (other / "train.csv").rename(other / "test.csv")),
        (model, lambda: (model / "config.json").write_text("{}", encoding="utf-8")),
    ):
        before = contents_of([table, other], model)
        change()
        after = contents_of([table, other], model)
        assert [name for name in after if after[name] != before[name]] == [str(path)]
        with pytest.raises(DataError, match=f"or files: the content of {table} has changed"):
            check_settings(folder, after, epochs=3)
    with pytest.raises(DataError, match=f"there is no file or folder {tmp_path / 'none.csv'}."):
        contents_of([tmp_path / "none.csv"])


def test_a_record_without_results_takes_other_settings(tmp_path: Path) -> None:
    check_settings(tmp_path, {"table.csv": "1"}, epochs=3)
    (tmp_path / "work").mkdir()
    check_settings(tmp_path, {"table.csv": "2"}, epochs=4)  # as after a mended mistake in the table
    recorded = json.loads((tmp_path / "settings.json").read_text(encoding="utf-8"))
    assert recorded == {"epochs": 4, "contents": {"table.csv": "2"}}


def test_results_without_a_record_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"epochs": 3}', encoding="utf-8")
    (tmp_path / "results.jsonl").touch()
    with pytest.raises(DataError, match=r"an earlier version, which did not record .*; give another `--output`"):
        check_settings(tmp_path, {}, epochs=3)


def test_files_that_no_recipe_wrote_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    check_settings(tmp_path / "empty", {}, epochs=3)
    own = tmp_path / "own"
    own.mkdir()
    (own / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"has files that this recipe did not write; give another `--output`\."):
        check_settings(own, {}, epochs=3)
    assert [path.name for path in own.iterdir()] == ["README.md"]
    with pytest.raises(DataError, match="must be a folder, found a file"):
        check_settings(own / "README.md", {}, epochs=3)


@pytest.mark.parametrize("main", [classify_texts.main, label_words.main, answer_questions.main])
@pytest.mark.usefixtures("made_up")
def test_a_recipe_leaves_a_folder_of_another_run_as_it_is(main: Callable[..., None], tiny_folder: Path) -> None:
    task = {"classify_texts": "trec", "label_words": "ewt", "answer_questions": "xquad"}[main.__module__]
    check_settings(Path("out"), {}, recipe="another", epochs=1)
    (Path("out") / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"recipe was another and is now .* Give another `--output`"):
        main(str(tiny_folder), task, Path("out"), epochs=1)
    assert (Path("out") / "README.md").read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in Path("out").iterdir()) == ["README.md", "settings.json"]


@pytest.mark.parametrize(
    ("stop", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "\nStopped. The same command starts again.\n"),
        (KeyboardInterrupt("Stopped after step 5.", 143), 143, "\nStopped after step 5.\n"),
        (DownloadStoppedError("Lost"), 130, "\nStopped. Lost; the same command downloads it again.\n"),
    ],
    ids=["any time", "in pretraining", "in a download"],
)
def test_a_recipe_that_is_stopped_says_what_the_same_command_does(
    stop: KeyboardInterrupt,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    received = []

    def main(name: recipe.Model, rows: recipe.Rows = None) -> None:
        received.append((name, rows))
        raise stop

    monkeypatch.setattr("sys.argv", ["recipe", "tiny", "--rows", "3"])
    with pytest.raises(SystemExit) as end:
        recipe.run(main, recipe.STARTS_AGAIN)
    assert end.value.code == code
    assert received == [("tiny", 3)]
    assert capsys.readouterr().err == line


# For each recipe that takes a model and data: a row of a.jsonl with a protein as one word, and its other arguments.
CHAIN = "MKVLTAAGIVGLLLAQWSWA" * 3
UNSPLIT_TEXT = {"text": CHAIN, "label": "a"}
UNSPLIT_WORD = {"words": [CHAIN], "labels": ["H"]}
UNSPLIT_QUESTION = {"question": CHAIN, "context": CHAIN, "answer": "MKV", "answer_start": 0}
UNSPLIT: dict[Callable[..., None], tuple[dict[str, Any], dict[str, Any]]] = {
    classify_texts.main: (UNSPLIT_TEXT, {"task": "a.jsonl"}),
    label_words.main: (UNSPLIT_WORD, {"task": "a.jsonl"}),
    answer_questions.main: (UNSPLIT_QUESTION, {"task": "a.jsonl"}),
    compare_features.main: (UNSPLIT_TEXT, {"task": ["a.jsonl"]}),
    sample_efficiency.main: (UNSPLIT_WORD, {"what": "figure1", "task": ["a.jsonl"]}),
    probe_layers.main: (UNSPLIT_WORD, {"what": "pos", "task": "a.jsonl"}),
}


@pytest.mark.parametrize("main", UNSPLIT, ids=lambda main: main.__module__)
def test_a_recipe_refuses_proteins_as_words_for_a_model_of_residues(
    main: Callable[..., None], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    shutil.copytree(tiny_folder, "model")
    label_card(Path("model/README.md"), {"language": ["zxx"]})
    row, arguments = UNSPLIT[main]
    Path("a.jsonl").write_text((json.dumps(row) + "\n") * 20, encoding="utf-8")
    with pytest.raises(DataError, match=r"^most texts are one word, but the words of model are residues"):
        main("model", output=Path("out"), **arguments)
    assert not list(Path().glob("out/**/*.safetensors"))


def test_words_of_which_only_a_part_is_read_are_noted_in_all_sets(
    tiny_folder: Path, tiny_tokenizer: ElmoTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    features = Features({"text": STRING, "text_pair": STRING, "label": Value("int64")})
    row = {"text": f"S E {CHAIN}", "text_pair": "S E Q", "label": 0}
    data = DatasetDict({name: Dataset.from_list([row], features) for name in ("train", "validation", "test")})
    recipe.check_words(data, tiny_tokenizer, tiny_folder)
    assert "Note: 3 of 18 words have more than 48 bytes, of which 48 are read." in capsys.readouterr().err
    words = DatasetDict(train=Dataset.from_dict({"words": [[CHAIN, f"{CHAIN} {CHAIN}"]], "labels": [[0, 0]]}))
    recipe.check_words(words, tiny_tokenizer, tiny_folder)
    assert "Note: 2 of 2 words have" in capsys.readouterr().err


def test_a_recipe_notes_raw_text_for_a_model_that_splits_at_blanks(
    tiny_folder: Path, tiny_tokenizer: ElmoTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    at_blanks = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    for text, tokenizer, is_noted in (
        ("The ferry left, late.", at_blanks, True),
        ("The ferry left , late .", at_blanks, False),
        ("The ferry left, late.", tiny_tokenizer, False),
    ):
        data = DatasetDict(train=Dataset.from_dict({"text": [text] * 3, "label": [0, 0, 1]}))
        recipe.check_words(data, tokenizer, tiny_folder)
        note = "Note: 50% of the words at the beginning of the texts end in a mark, such as `left,`"
        assert (note in capsys.readouterr().err) is is_noted


# The recipes that read a user's own data, and the others; `nearest_senses` is a command of its own.
READ_OWN_DATA = (
    answer_questions.main,
    classify_texts.main,
    compare_features.main,
    label_words.main,
    pretrain_and_classify.main,
    probe_layers.main,
    sample_efficiency.main,
)
RECIPES = (*READ_OWN_DATA, mix_weights.main, nearest_senses.main)


def options_of(main: Callable[..., None]) -> set[str]:
    app = typer.Typer()
    app.command()(main)
    return {option for parameter in typer.main.get_command(app).params for option in parameter.opts}


def advised_options(module: str) -> set[str]:
    """The options that the errors in a file of the examples name."""
    tree = ast.parse((EXAMPLES / f"{module}.py").read_text(encoding="utf-8"))
    errors = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return {option for error in errors for option in re.findall(r"--[a-z][a-z-]+", ast.unparse(error))}


@pytest.mark.parametrize("main", RECIPES, ids=lambda main: main.__module__)
def test_a_recipe_has_every_option_that_its_errors_name(main: Callable[..., None]) -> None:
    advised = advised_options(main.__module__) | advised_options("recipe")
    if "check_settings" in main.__code__.co_names:
        advised |= advised_options("seeds")
        assert "--output" in advised
    if main in READ_OWN_DATA:
        advised |= advised_options("own_files") | advised_options("task_data")
        assert {"--column", "--validation", "--test"} <= advised
    if main is probe_layers.main:
        advised |= advised_options("sense_data")
    options = options_of(main)
    assert advised <= options
    assert {"-o", "--output"} <= options


def test_recipes_have_a_short_option_for_their_folder() -> None:
    for main in (classify_texts.main, label_words.main, answer_questions.main):
        app = typer.Typer()
        app.command()(main)
        result = CliRunner().invoke(app, ["tiny", "nothing", "-o", "out"])
        assert isinstance(result.exception, DataError)
        assert str(result.exception).startswith("'nothing' is no task")


def test_the_recipe_that_pretrains_takes_the_columns_of_a_file_and_of_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("films.csv").write_text("review,sentiment\nfine,good\ndull,bad\n")
    with pytest.raises(DataError, match=r"no column 'stars', found review, sentiment; .* `--column label="):
        pretrain_and_classify.main("films.csv", Path("own"), column=["text=review", "label=stars"])
    with pytest.raises(DataError, match="are for files of your own, found one with ag_news"):
        pretrain_and_classify.main("ag_news", Path("own"), column=["text=review"])
    assert not Path("own").exists()


def test_own_text_is_read_raw_or_in_words(tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl.gz"
    path.write_bytes(gzip.compress(b'"It doesn\'t work."\n\n{"words": ["Dull", "film"]}\n'))
    assert list(pretrain_and_classify.own_sentences(path, OwnData())) == [
        ["It", "does", "n't", "work", "."],
        ["Dull", "film"],
    ]
    assert list(pretrain_and_classify.own_sentences(None, OwnData())) == []
