"""What the embedding of documents and batches refuses: the kind of error, and what its message must name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interrupts import at_call, contents, count_rows, unjoined, work_of
from vectors import SENTENCES, read_vectors

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding import Embedder, vector_files
from elmo_hf.embedding.chosen_words import ChosenWords
from elmo_hf.embedding.processes import Alone
from elmo_hf.embedding.vector_files import Record
from elmo_hf.embedding.window_vectors import Selection

Embed = Callable[..., int]
each_output = pytest.mark.parametrize("output", ["out/", "out.npz"])


def many_arrays() -> None:
    one = np.zeros(1, dtype=np.int8)
    record = Record(0, "", {"vectors": one, "scales": one}, ("", 0))
    vector_files.write_safetensors(Path("v"), iter([record] * 3), most=1)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no such layers": (lambda: Selection("second").check(), ValueError, "'second'"),
    "no such dtype": (lambda: Selection(dtype="int4").check(), ValueError, "'int4'"),
    "words of pooled": (lambda: Selection("pooled", words=ChosenWords("a")).check(), ValueError, "with `words`"),
    "bfloat16 in NumPy": (lambda: Embedder(dtype="bfloat16"), ValueError, "NumPy"),
    "bfloat16 in hdf5": (lambda: Selection(dtype="bfloat16").check(".hdf5"), ValueError, ".hdf5"),
    "no file of words": (lambda: ChosenWords("words.txt"), FileNotFoundError, "words.txt"),
    "no pattern": (lambda: ChosenWords("(bank"), ValueError, "'(bank'"),
    "no column": (lambda: Embedder()({"body": ["a"]}), KeyError, "text"),
    "not a text": (lambda: Embedder()({"text": ["a", 17]}), ValueError, "found 17"),
    "a header that is too long": (many_arrays, ValueError, "at most 1 arrays"),
}


@pytest.mark.parametrize(("call", "kind", "named"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(
    call: Callable[[], Any], kind: type[Exception], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    assert named in str(caught.value)


def test_vectors_that_are_nan_are_refused_with_the_first_sentence(
    embed: Embed, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer
) -> None:
    inputs = tiny_tokenizer([["Übung"]], is_split_into_words=True, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        mixed_model.token_encoder.embedding.weight[inputs[0, 1, 1]] = torch.nan  # a byte of sentence 3 alone
    for dtype in ("float32", "int8"):
        for output in ("out.npz", "out/"):
            with pytest.raises(ValueError, match="NaN for sentence 3, counted from 0"):
                embed(f"{dtype}-{output}", dtype=dtype)
    embed("v.npz", allow_nan=True, layers="top")
    assert [np.isnan(each).any() for each in read_vectors("v.npz")] == [n == 3 for n in range(6)]


SENTENCES_CHANGED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "another first": lambda sentences: ["Another one.", *sentences[1:]],
    "another last": lambda sentences: [*sentences[:-1], "Another one."],
    "one less": lambda sentences: sentences[:-1],
    "one more": lambda sentences: [*sentences, "One more."],
    "emptied": lambda sentences: [],
    "words of a string": lambda sentences: [sentences[0].split(), *sentences[1:]],
}
OF_THE_JOB = ["layers", "dtype", "words", "split_into_words", "tokenizer", "model"]


@each_output
@pytest.mark.parametrize("change", [*SENTENCES_CHANGED, "another name", *OF_THE_JOB])
def test_a_run_does_not_go_on_with_other_sentences_or_another_job(
    change: str, output: str, embed: Embed, mixed_model: ElmoModel, tiny_folder: Path
) -> None:
    def write(name: str, sentences: list[Any]) -> str:
        Path(name).write_text("".join(f"{json.dumps(sentence)}\n" for sentence in sentences))
        return name

    folder = unjoined(embed, output, write("in.jsonl", SENTENCES), layers="top", words=ChosenWords("Yes"))
    if change in ("another first", "another name", *OF_THE_JOB):  # found before the missing shard is computed
        for path in folder.rglob("part-00002*"):
            path.unlink()
    whole, counts = contents(folder), count_rows(mixed_model)
    name = "other.jsonl" if change == "another name" else "in.jsonl"
    write(name, SENTENCES_CHANGED.get(change, list)(SENTENCES))
    Path("words.txt").write_text("Yes")  # a list is not the same as a pattern
    tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    options: dict[str, Any] = {"layers": "mix", "dtype": "float16", "words": ChosenWords("words.txt")}
    options |= {"split_into_words": True, "tokenizer": tokenizer}
    given = {"layers": "top", "words": ChosenWords("Yes")} | {key: options[key] for key in options if key == change}
    if change == "model":
        mixed_model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2])
    said = f"the input changed: {folder}/part-0000"
    if change in OF_THE_JOB:
        said = f'{folder} holds shards of another job than  "{change}": '
    with pytest.raises(ValueError, match=f"^{said}"):
        embed(output, name, **given)
    assert (contents(folder), counts) == (whole, [])
    assert not Path("out.npz").exists()


@each_output
@pytest.mark.parametrize("replaces", [True, False], ids=["replaced", "rewritten"])
def test_an_input_that_changes_while_it_is_read_is_refused(
    replaces: bool, output: str, embed: Embed, mixed_model: ElmoModel
) -> None:
    def change_it() -> None:
        target = Path("new.txt" if replaces else "corpus.txt")
        target.write_text("".join(f"{sentence}\n" for sentence in reversed(SENTENCES)), encoding="utf-8")
        target.rename("corpus.txt")

    with at_call(mixed_model, 1, change_it), pytest.raises(ValueError, match="changed while it was being read"):
        embed(output)
    assert not Path("out.npz").exists()
    assert not Path("out", "_index.jsonl").exists()


@each_output
def test_a_folder_of_other_files_and_that_of_a_second_run_are_left_alone(output: str, embed: Embed) -> None:
    with only_writer(Path(output)), pytest.raises(BlockingIOError):
        embed(output)
    folder = work_of(output)
    folder.mkdir()
    (folder / "__init__.py").touch()
    with pytest.raises(FileExistsError, match=rf"^{folder} holds other files, such as __init__.py;"):
        embed(output)
    assert [*contents(folder)] == ["__init__.py"]


def test_a_machine_that_does_not_see_the_folder_stops_before_the_work(embed: Embed, mixed_model: ElmoModel) -> None:
    second, counts = Alone(), count_rows(mixed_model)
    second.process_index, second.num_processes, second.is_main_process = 1, 2, False
    with pytest.raises(FileNotFoundError, match=r"out/_job\.json"):
        embed("out/", processes=second)
    assert counts == []
