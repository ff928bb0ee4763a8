"""Benchmarks that need neither AllenNLP nor a GPU run on a tiny model, and compare the values of all contestants."""

import gzip
import importlib
import json
import re
from types import SimpleNamespace

import pytest

from tests.helpers.checkpoints import BASE
from tests.helpers.pages import ROOT, START, run_programs

FAST = "--small --rounds 1"
# The arguments of each, and how many rows its tables have.
RUNS = {
    "speed": (f"sentences.jsonl {FAST} --threads 1 --only frozen --only fine-tuning --only pretraining", 7),
    "operations": (f"sentences.jsonl {FAST} --threads 1", 6),
    "scaling": (f"sentences.jsonl {FAST} --threads 1 -o scaling.png", 5),
    "gpu": (f"sentences.jsonl {FAST} --device cpu --batch-size 3", 12),
    "gpu_scan": ("--small --device cpu", 12),
    "frozen_bilm": ("--projection-size 4 --cell-size 8 --sentences 16 --rounds 1", 6),
    "similarity": ("tiny pairs.txt pairs.txt --seeds 1", 25),
    "kneser_ney": ("tiny text.txt text.txt", 1),
    "cloze": ("text.conllu.gz --sentences 2", 4),
    "cold_start": ("long.txt tiny --count 2", 12),
    "word_splitting": ("text.conllu.gz", 1),
    "tokenizer": ("text.txt --rounds 1", 3),
    "parity": (str(BASE), 1),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("benchmarks")
    texts = [[f"word{(number * place) % 17}" for place in range(1, 2 + number % 5)] for number in range(450)]
    (folder / "sentences.jsonl").write_text("".join(f"{json.dumps(words)}\n" for words in texts))
    (folder / "text.txt").write_text("The ferry left at noon .\nShe sat on the left .\n" * 3)
    (folder / "long.txt").write_text("The ferry left at noon and came back late .\n" * 16 + "The ferry left " * 20)
    pairs = "A dog runs\tThe dog runs fast\t4.5\nTwo men eat\tA storm came\t1.2\nA man sings\tA man sang\t4.1\n"
    (folder / "pairs.txt").write_text(f"sentence_A\tsentence_B\trelatedness_score\n{pairs}")
    words = ["The", "ferry", "left", "the", "old", "harbour", "at", "noon", "and", "came", "back", "late", "."]
    lines = "".join(f"{number}\t{word}" + "\t_" * 8 + "\n" for number, word in enumerate(words, start=1))
    (folder / "text.conllu.gz").write_bytes(gzip.compress(f"# text = {' '.join(words)}\n{lines}\n".encode() * 3))
    commands = {name: f"python {ROOT}/benchmarks/{name}.py {arguments}" for name, (arguments, _) in RUNS.items()}
    codes = {name: f"{START}run_command({line!r}, False)" for name, line in commands.items()}
    return run_programs(folder, {name: (folder, code) for name, code in codes.items()})


@pytest.mark.parametrize("name", RUNS)
def test_a_benchmark_prints_its_rows(name: str, printed: dict[str, str]) -> None:
    text = re.sub(r"^\|.*\n\|[-|:]+\|$", "", printed[name], flags=re.MULTILINE)  # heads of tables
    assert len(re.findall(r"^\| .*\|$", text, re.MULTILINE)) == RUNS[name][1], printed[name]


@pytest.mark.parametrize(
    ("shapes", "kind"),
    [
        ([[466, 512], [512, 512]], "products, 64 vectors or more"),
        ([[1, 466, 512], [1, 512, 512]], "products, 64 vectors or more"),
        ([[63, 512], [512, 512]], "products, fewer vectors"),
        ([[2, 8, 512], [2, 512, 512]], "products, fewer vectors"),
    ],
)
def test_a_product_is_counted_by_its_vectors(
    shapes: list[list[int]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    operations = importlib.import_module("operations")
    key = "aten::mm" if len(shapes[0]) == 2 else "aten::bmm"
    assert operations.kind_of(SimpleNamespace(key=key, input_shapes=shapes)) == kind
