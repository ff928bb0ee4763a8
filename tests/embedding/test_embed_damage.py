"""A damaged working folder is computed again, a changed input is refused, and two runs never share an output."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vectors import SENTENCES

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.disk.whole_files import only_writer
from elmo_hf.embedding import embed
from elmo_hf.embedding.embed import embed_file
from elmo_hf.sentences import Sentence

NUMBERS, FACTS = "chunk-00000000.bin", "chunk-00000000.json"


@pytest.fixture
def whole(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The output of an undisturbed run; further ones have three windows too."""
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", 59)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "whole.npz")
    return tmp_path / "whole.npz"


@pytest.fixture
def work(
    whole: Path,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The working folder of a run that was interrupted before it joined its chunks."""
    with monkeypatch.context() as patch:
        patch.setattr(embed, "_finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "out.npz")
    return tmp_path / "out.npz.partial"


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def nest(path: Path) -> None:
    path.write_text("[" * 100_000)


@pytest.mark.parametrize("damage", [zero, truncate, flip, nest, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", [NUMBERS, FACTS, "job.json"])
def test_what_is_damaged_is_computed_again(
    damage: Callable[[Path], Any],
    name: str,
    work: Path,
    whole: Path,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(work / name)
    embed_file(mixed_model, tiny_tokenizer, corpus, work.with_suffix(""))
    assert work.with_suffix("").read_bytes() == whole.read_bytes()
    assert not work.exists()
    is_said = name == NUMBERS or (name == FACTS and damage is not Path.unlink)
    assert caplog.messages == [f"{work / NUMBERS} is damaged, or not of this input; it is computed again."] * is_said


def test_a_chunk_that_is_damaged_at_the_last_moment_is_not_used(
    work: Path, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = embed._finish

    def damage_and_finish(*arguments: Any) -> None:
        flip(work / NUMBERS)
        finish(*arguments)

    monkeypatch.setattr(embed, "_finish", damage_and_finish)
    message = f"{work / NUMBERS} was damaged while the run went on; give the same command again."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        embed_file(mixed_model, tiny_tokenizer, corpus, work.with_suffix(""))
    assert not work.with_suffix("").exists()


@pytest.mark.parametrize("reading", [2, 3], ids=["while computing", "while joining"])
@pytest.mark.parametrize(
    "change",
    [
        lambda sentences: sentences[:-1],
        lambda sentences: [*sentences, "One more."],
        lambda sentences: ["Another one.", *sentences[1:]],
        lambda sentences: [*sentences[:-1], "Another one."],
        lambda sentences: [],
    ],
    ids=["one less", "one more", "another first", "another last", "emptied"],
)
def test_an_input_that_changes_meanwhile_is_refused(
    change: Callable[[list[str]], list[str]],
    reading: int,
    whole: Path,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, calls = embed.read_sentences, []

    def changing(path: Path, *settings: Any) -> Iterator[Sentence]:
        calls.append(path)
        if len(calls) == reading:
            path.write_text("".join(f"{sentence}\n" for sentence in change(SENTENCES)), encoding="utf-8")
        return read(path, *settings)

    content = corpus.read_bytes()
    out = tmp_path / "out.npz"
    with monkeypatch.context() as patch:
        patch.setattr(embed, "read_sentences", changing)
        message = (
            f"{corpus} changed while it was being embedded, so nothing was written. Make it what it was, or delete "
            f"{out}.partial; then give the same command again."
        )
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            embed_file(mixed_model, tiny_tokenizer, corpus, out)
    assert not out.exists()
    corpus.write_bytes(content)
    embed_file(mixed_model, tiny_tokenizer, corpus, out)
    assert out.read_bytes() == whole.read_bytes()


def test_a_second_run_with_the_same_output_is_refused(
    work: Path, whole: Path, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path
) -> None:
    out = work.with_suffix("")
    before = {path.name: path.read_bytes() for path in work.iterdir()}
    message = rf"^{re.escape(str(out))} is being written by another process"
    with only_writer(out), pytest.raises(BlockingIOError, match=message):
        embed_file(mixed_model, tiny_tokenizer, corpus, out)
    assert {path.name: path.read_bytes() for path in work.iterdir()} == before
    embed_file(mixed_model, tiny_tokenizer, corpus, out)
    assert out.read_bytes() == whole.read_bytes()


def test_an_input_that_cannot_be_read_leaves_no_folder(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, tmp_path: Path
) -> None:
    source = tmp_path / "corpus.jsonl"
    source.write_text(json.dumps("fine") + "\n17\n")
    with pytest.raises(ValueError, match=rf"^{source}, line 2: must be a string"):
        embed_file(mixed_model, tiny_tokenizer, source, tmp_path / "out.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_a_chunks_facts_that_are_another_sealed_file_are_computed_again(
    work: Path, whole: Path, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path
) -> None:
    (work / FACTS).write_bytes((work / "job.json").read_bytes())
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == whole.read_bytes()
