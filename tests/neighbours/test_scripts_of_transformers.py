"""transformers' own scripts, as they are, train models of a folder, which then answer better than the commonest answer.

`TRANSFORMERS_EXAMPLES` is the folder `examples/pytorch` of transformers' repository, at the tag of the installed
version; what pip installs has no scripts. `.ci/neighbours` fetches it. The metrics are `tests/helpers/metrics`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elmo_hf import ElmoConfig, ElmoForCausalLM, ElmoForSequenceClassification, tiny_model, tiny_tokenizer
from tests.helpers.fresh_process import python_path
from tests.helpers.tiny_inputs import TINY
from tests.helpers.tiny_lm import SENTENCES, WORDS, tokenizer_with

ROOT = Path(__file__).parents[2]
METRICS = ROOT / "tests" / "helpers" / "metrics"
TEXTS = [json.loads(line) for line in (ROOT / "examples" / "sea_or_house.jsonl").read_text().splitlines()]
NAMES = ["Ada", "Bob", "Cara", "Dan", "Eve"]
TIMES = ["At noon", "Late in the evening", "Today", "On the first day of May"]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def scripts() -> Path:
    folder = os.environ.get("TRANSFORMERS_EXAMPLES")
    if not folder:
        pytest.skip("TRANSFORMERS_EXAMPLES does not name the folder examples/pytorch of transformers")
    return Path(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def run_script(script: Path, folder: Path, model: Path, data: str, options: str) -> subprocess.CompletedProcess[str]:
    """Runs a script that trains a model on a file and evaluates it on the same file."""
    command = [sys.executable, str(script), "--model_name_or_path", str(model), "--trust_remote_code"]
    if script.stem == "run_glue_no_trainer":
        command.append("True")  # in the other scripts the option has no value
    command += ["--train_file", data, "--validation_file", data, "--output_dir", "trained", *options.split()]
    if not script.stem.endswith("no_trainer"):
        command += ["--do_train", "--do_eval", "--report_to", "none", "--save_strategy", "no", "--disable_tqdm", "True"]
    environment = os.environ | {"PYTHONPATH": python_path(METRICS, ROOT), "HF_HOME": str(folder / "home")}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def score_of(script: Path, folder: Path, model: Path, data: str, options: str) -> float:
    """The last score of a script that ends well."""
    process = run_script(script, folder, model, data, options)
    assert process.returncode == 0, process.stderr[-3000:]
    return float((folder / "scores.txt").read_text(encoding="utf-8").split()[-1])


def write_rows(path: Path, rows: list[Row]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path.name


def pair_rows() -> Iterator[Row]:
    """Each text beside itself, with label 1, and beside the next one."""
    texts = [row["text"] for row in TEXTS]
    for text, other in zip(texts, texts[1:] + texts[:1], strict=True):
        yield {"first": text, "second": text, "label": 1}
        yield {"first": text, "second": other, "label": 0}


def name_rows() -> Iterator[Row]:
    for time in TIMES:
        for name in NAMES:
            words = [*time.split(), name, "went", "home", "."]
            yield {"tokens": words, "ner_tags": ["B-PER" if word == name else "O" for word in words]}


def question_rows() -> Iterator[Row]:
    for time in TIMES:
        for name in NAMES:
            context = f"{time} {name} went home."
            answers = {"text": [name], "answer_start": [context.index(name)]}
            row = {"id": f"{time} {name}", "title": "", "context": context}
            yield row | {"question": "Who went home?", "answers": answers}


LEARNING = "--learning_rate 1e-2 --per_device_train_batch_size 4 --num_train_epochs"


@pytest.mark.parametrize("name", ["run_glue", "run_glue_no_trainer", "run_classification"])
def test_texts_get_their_label(name: str, scripts: Path, tiny: Path, tmp_path: Path) -> None:
    rows = [{"sentence": row["text"], "label": row["label"]} for row in TEXTS]
    data = write_rows(tmp_path / "texts.json", rows)
    script = scripts / "text-classification" / f"{name}.py"
    assert score_of(script, tmp_path, tiny, data, f"{LEARNING} 6") > 0.9  # half of the texts have one label


def test_pairs_get_their_label_if_the_folder_says_that_its_texts_are_pairs(
    scripts: Path, tiny: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs"
    # Dropout would move two equal texts apart while the model learns, and only then.
    fields = {"text_pairs": True, "representation_dropout": 0.0}
    ElmoForSequenceClassification.from_pretrained(tiny, **fields).save_pretrained(pairs)
    tiny_tokenizer().save_pretrained(pairs)
    data = write_rows(tmp_path / "pairs.json", list(pair_rows()))
    script = scripts / "text-classification" / "run_glue.py"
    assert score_of(script, tmp_path, pairs, data, f"{LEARNING} 6") > 0.9  # half of the pairs have one label


@pytest.mark.parametrize("name", ["run_ner", "run_ner_no_trainer"])
def test_names_are_labelled(name: str, scripts: Path, tiny: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "names.json", list(name_rows()))
    script = scripts / "token-classification" / f"{name}.py"
    options = f"{LEARNING} 6 --label_column_name ner_tags"
    assert score_of(script, tmp_path, tiny, data, options) > 0.9  # no sentence is right if every word is O


@pytest.mark.parametrize("name", ["run_qa", "run_qa_no_trainer"])
def test_questions_are_answered(name: str, scripts: Path, tiny: Path, tmp_path: Path) -> None:
    data = "questions.json"
    (tmp_path / data).write_text(json.dumps({"data": list(question_rows())}), encoding="utf-8")
    script = scripts / "question-answering" / f"{name}.py"
    options = f"{LEARNING} 8 --max_seq_length 24 --doc_stride 4"
    assert score_of(script, tmp_path, tiny, data, options) > 0.7  # a fifth of the questions have one answer


CORPUS = [{"text": " ".join(SENTENCES[0])}] * 60
CLM = "--learning_rate 3e-2 --per_device_train_batch_size 4 --num_train_epochs 8 --block_size 16"


def test_a_language_model_of_words_learns_the_next_word(scripts: Path, tmp_path: Path) -> None:
    sizes = TINY | {"token_encoder": "word_embedding", "vocab_size": len(WORDS) + 1, "num_softmax_words": len(WORDS)}
    ElmoForCausalLM(ElmoConfig(**sizes)).save_pretrained(tmp_path / "words")
    tokenizer_with(token_encoder="word_embedding").save_pretrained(tmp_path / "words")
    data = write_rows(tmp_path / "corpus.json", CORPUS)
    script = scripts / "language-modeling" / "run_clm.py"
    assert score_of(script, tmp_path, tmp_path / "words", data, CLM) > 0.9  # the commonest word is an eighth


def test_a_language_model_of_characters_says_what_its_labels_are(scripts: Path, tiny: Path, tmp_path: Path) -> None:
    data = write_rows(tmp_path / "corpus.json", CORPUS)
    process = run_script(scripts / "language-modeling" / "run_clm.py", tmp_path, tiny, data, CLM)
    assert process.returncode != 0
    assert "`labels` must be the numbers of words" in process.stderr
