"""Commands refuse a wrong output, and name a missing input, before they load, download or compute anything."""

import shutil
from pathlib import Path

import pytest

from elmo_hf.embedding import processes
from tests.helpers.checkpoints import BASE
from tests.helpers.commands import assert_fails, run
from tests.helpers.hostile_folders import weights
from tests.helpers.interrupts import contents

# The tensor that a folder lacks, `unloadable`, whose description is read without an error, but not its weights.
MISSING = "bilm.layers.0.forward_lstm.input_linear.weight"
# A folder whose loading is an error, in place of a model.
BROKEN = "broken"
OF_BROKEN = "broken/config.json is damaged"
# An address that nothing is downloaded from, because its port has no server; the error names it.
ADDRESS = "http://127.0.0.1:9/elmo.zip"
FROM_ADDRESS = f"convert --model small --from {ADDRESS}"
# Commands that are right except for the model, with the error about it.
RIGHT = {
    f"embed {BROKEN} text.txt -o v.npz": OF_BROKEN,
    f"embed {BROKEN} text.txt -o v/": OF_BROKEN,
    f"embed {BROKEN} table.csv --column line -o v.npz": OF_BROKEN,
    f"embed {BROKEN} text.txt --dry-run": OF_BROKEN,
    f"vectors {BROKEN} words.txt -o v.txt": OF_BROKEN,
    f"usages {BROKEN} text.txt table.csv --word sea -o u.csv": OF_BROKEN,
    f"score {BROKEN} text.txt --per-word s.tsv": OF_BROKEN,
    f"score {BROKEN} table.csv --column line --by item --per-word s.tsv": OF_BROKEN,
    f"fill {BROKEN} ___": OF_BROKEN,
    f"fill {BROKEN} gaps.txt": OF_BROKEN,
    f"fill {BROKEN} gaps.csv --column line -o gaps.tsv": OF_BROKEN,
    f"pretrain text.txt -o lm --model {BROKEN}": OF_BROKEN,
    f"export {BROKEN} m.pt2": OF_BROKEN,
    f"convert {BROKEN} new --to allennlp": OF_BROKEN,
    f"card {BROKEN}": OF_BROKEN,
    "push unloadable org/name": MISSING,
    f"{FROM_ADDRESS} new": ADDRESS,
}
# The same with something wrong besides, which alone is named.
WRONG = {
    f"embed {BROKEN} text.txt -o v.csv": "found v.csv",
    f"embed {BROKEN} text.txt -o s3://bucket/v.npz": "found s3://bucket/v.npz",
    f"embed {BROKEN} text.txt -o there.npz": "there.npz exists already",
    f"embed {BROKEN} text.txt -o none/v.npz": "there is no folder none to write v.npz in.",
    f"embed {BROKEN} text.txt -o other/": "other holds other files, such as README.md; choose another output.",
    f"embed {BROKEN} text.txt -o text.txt/": "text.txt must be a folder, found a file;",
    f"embed {BROKEN} words.txt -o text.txt/": "text.txt must be a folder, found a file;",
    f"embed {BROKEN} words.txt -o text.txt/v/": "text.txt must be a folder, found a file;",
    f"embed {BROKEN} words.txt -o taken.npz": "taken.npz.partial must be a folder, found a file;",
    f"embed {BROKEN} text.txt -o v.npz --dtype bfloat16": "in .npz arrays, found 'bfloat16'",
    f"embed {BROKEN} text.txt -o v/ --format npz --dtype bfloat16": "in .npz arrays, found 'bfloat16'",
    f"embed {BROKEN} text.txt -o v.npz --words none.txt": "there is no file or folder none.txt.",
    f"embed {BROKEN} none.txt -o v.npz": "there is no file none.txt;",
    f"embed {BROKEN} none.txt --dry-run": "there is no file none.txt;",
    f"embed {BROKEN} table.csv none.csv --column line -o v.npz": "there is no file none.csv; with a column, give files",
    f"embed {BROKEN} memory://none.csv --column line -o v.npz": "there is no file memory://none.csv; with a column, ",
    f"embed {BROKEN} org/none.json --column line -o v.npz": "is not looked for on the Hub: download a dataset of such",
    f"embed {BROKEN} there/is/none --column line -o v.npz": "or names of the Hub.",
    f"vectors {BROKEN} words.txt -o there.npz": "there.npz exists already",
    f"vectors {BROKEN} none.txt -o v.txt": "there is no file or folder none.txt.",
    f"usages {BROKEN} text.txt table.csv --word sea -o there.tsv": "there.tsv exists already",
    f"usages {BROKEN} text.txt none.csv --word sea -o u.csv": "there is no file none.csv;",
    f"score {BROKEN} text.txt --per-word there.tsv": "there.tsv exists already",
    f"score {BROKEN} none.txt": "there is no file or folder none.txt.",
    f"score {BROKEN} bad.jsonl": "bad.jsonl, line 1: ",
    f"score {BROKEN} none.csv --column line --by item --per-word s.tsv": "there is no file or folder none.csv.",
    f"score {BROKEN} table.csv --column line --by who --per-word s.tsv": "table.csv has no column 'who'",
    f"fill {BROKEN} other": "other is a folder; give a file of sentences, or a sentence, with ___ in place of a word.",
    f"fill {BROKEN} none.txt": "there is no file none.txt; give a file of sentences, or a sentence, with ___ in place",
    f"fill {BROKEN} none.csv --column line": "there is no file none.csv;",
    f"fill {BROKEN} none": "there is no gap in 'none', and no file has this name: write ___",
    f"fill {BROKEN} Yes.": "there is no gap in 'Yes.', and no file has this name: write ___",
    f"fill {BROKEN} blank.txt": "blank.txt has no sentences; give a file that has sentences.",
    f"fill {BROKEN} ___ -o there.tsv": "there.tsv exists already",
    f"pretrain text.txt -o lm --model {BROKEN} --held-out none.txt": "there is no file none.txt.",
    f"pretrain none.txt -o lm --model {BROKEN}": "there is no file none.txt.",
    f"pretrain text.txt -o finished --model {BROKEN}": "finished holds a finished model; choose another folder.",
    f"pretrain text.txt -o other --model {BROKEN}": "other has README.md but no run.json, so it is not the folder",
    f"pretrain text.txt -o text.txt --model {BROKEN}": "text.txt must be a folder, found a file;",
    f"pretrain text.txt -o text.txt/lm --model {BROKEN}": "text.txt must be a folder, found a file;",
    f"export {BROKEN} m.bin": "the output's suffix must be .onnx or .pt2, found 'm.bin'.",
    f"export {BROKEN} there.pt2": "there.pt2 exists already",
    f"convert {BROKEN} other --to allennlp": "other exists already",
    f"convert {BROKEN} text.txt/new --to allennlp": "text.txt must be a folder, found a file;",
    f"convert {BASE} other": "other exists already",
    f"convert {BASE} text.txt/new": "text.txt must be a folder, found a file;",
    f"convert {BASE} new --softmax none.hdf5": "there is no file none.hdf5.",
    f"{FROM_ADDRESS} other": "other exists already",
    f"{FROM_ADDRESS} text.txt/new": "text.txt must be a folder, found a file;",
    f"{FROM_ADDRESS} new --options none.json": "there is no file none.json.",
    f"{FROM_ADDRESS} new --softmax none.hdf5": "there is no file none.hdf5.",
    f"{FROM_ADDRESS} new --align 1=none.pth": "there is no file none.pth.",
    "card original": "there is no folder original; original is the name of a published model.",
    "check seqvec": "`elmo-hf models seqvec` shows its folder if it was used here before, and `elmo-hf convert --model",
    "push pubmed org/x": "`elmo-hf convert --model pubmed elmo-pubmed` writes a new one; give the folder.",
    f"card {BROKEN} --license M!T": "'M!T'",
    "push unloadable org/name --include none.txt": "no file of unloadable fits 'none.txt';",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    work = tmp_path_factory.mktemp("work")
    shutil.copytree(tiny_folder, work / "unloadable")
    weights(lambda tensors: tensors.pop(MISSING))(work / "unloadable")
    for name, text in {
        "broken/config.json": "{",
        "finished/config.json": "{}",
        "other/README.md": "mine\n",
        "text.txt": "The sea .\nA sea .\n",
        "words.txt": "sea\nriver\n",
        "gaps.txt": "The ___ .\n",
        "gaps.csv": "item,line\n1,The ___ .\n",
        "blank.txt": "\n \n",
        "table.csv": "item,line\n1,sea\n",
        "bad.jsonl": '{"sentence": 1}\n',
        **dict.fromkeys(("there.npz", "there.tsv", "there.pt2", "taken.npz.partial"), "text\n"),
    }.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    return work


@pytest.mark.parametrize("command", [*RIGHT, *WRONG])
def test_what_is_wrong_besides_the_model_is_named_before_the_model_is_loaded(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    before = contents(work)
    result = run(*command.split())
    assert_fails(result, 1, {**RIGHT, **WRONG}[command])
    assert contents(work) == before


class SecondProcess(processes.Alone):
    """The second of two processes, before it meets the first."""

    process_index, num_processes, is_main_process = 1, 2, False


@pytest.mark.parametrize("output", ["v.csv", "there.npz", "text.txt/", "other/"])
def test_every_process_refuses_a_wrong_output_before_the_model_is_loaded(
    output: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    monkeypatch.setattr(processes, "launched", lambda **_: SecondProcess())
    refusal = WRONG[f"embed {BROKEN} text.txt -o {output}"]
    assert_fails(run("embed", BROKEN, "text.txt", "-o", output), 1, refusal)
