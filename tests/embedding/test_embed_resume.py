"""Embedding a corpus: an interrupted run goes on where it stopped, and never with what another left."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from vectors import SENTENCES, assert_all_close, embed_alone, read_places, read_vectors

from elmo_hf import BiLMState, ElmoModel, ElmoTokenizer
from elmo_hf.embedding import embed
from elmo_hf.embedding.embed import embed_file
from elmo_hf.embedding.working_folder import WorkingFolder

FIRST_CHUNK = ["chunk-00000000.bin", "chunk-00000000.json", "job.json"]


class Interrupt(Exception):
    """Stands for a power cut."""


def fail_at_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, number: int) -> None:
    """Makes `OWNER.NAME` fail at its call of this number, counted from 1."""
    function, calls = getattr(owner, name), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise Interrupt
        return function(*args)

    monkeypatch.setattr(owner, name, failing)


def count_rows(mixed_model: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records how many sentences each call of the biLM reads."""
    forward, counts = mixed_model.bilm.forward, []

    def counting(vectors: Tensor, *args: Any) -> tuple[list[Tensor], BiLMState]:
        counts.append(len(vectors))
        return forward(vectors, *args)

    monkeypatch.setattr(mixed_model.bilm, "forward", counting)
    return counts


def assert_is_whole(path: Path, model: ElmoModel, tokenizer: ElmoTokenizer, layers: str) -> None:
    """The file holds the vectors of every sentence, as if nothing had happened."""
    expected = [embed_alone(model, tokenizer, sentence, layers) for sentence in SENTENCES]
    assert_all_close(read_vectors(path), expected)


@pytest.fixture
def interrupted(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The output of a run that ended after the first of its windows, three sentences; it is not there yet."""
    output = tmp_path / "vectors.npz"
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", 59)
    with monkeypatch.context() as patch:
        fail_at_call(patch, WorkingFolder, "write", 2)
        with pytest.raises(Interrupt):
            embed_file(mixed_model, tiny_tokenizer, corpus, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "vectors.npz.partial"]
    work = tmp_path / "vectors.npz.partial"
    assert sorted(path.name for path in work.iterdir()) == FIRST_CHUNK
    assert sorted(read_places(work / "chunk-00000000.json")) == ["0", "1", "2"]
    return output


def test_an_interrupted_run_goes_on_where_it_stopped(
    interrupted: Path,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = count_rows(mixed_model, monkeypatch)
    assert embed_file(mixed_model, tiny_tokenizer, corpus, interrupted) == len(SENTENCES)
    assert sum(counts) == len(SENTENCES) - 3
    assert_all_close(
        read_vectors(interrupted), [embed_alone(mixed_model, tiny_tokenizer, sentence, "all") for sentence in SENTENCES]
    )
    assert sorted(path.name for path in interrupted.parent.iterdir()) == ["corpus.txt", "vectors.npz"]


def test_a_run_may_go_on_with_other_batches(
    interrupted: Path, mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path
) -> None:
    embed_file(mixed_model, tiny_tokenizer, corpus, interrupted, batch_words=1)
    assert_is_whole(interrupted, mixed_model, tiny_tokenizer, "all")


def test_a_run_that_the_model_interrupts_goes_on(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", 1)
    with monkeypatch.context() as patch:
        fail_at_call(patch, embed, "_embed_window", 4)
        with pytest.raises(Interrupt):
            embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.hdf5")
    counts = count_rows(mixed_model, monkeypatch)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.hdf5")
    assert counts == [1, 1, 1]
    assert_is_whole(tmp_path / "vectors.hdf5", mixed_model, tiny_tokenizer, "all")


def test_a_run_interrupted_while_writing_computes_nothing_again(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at_call(patch, embed, "_records", 1)
        with pytest.raises(Interrupt):
            embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.npz", layers="top")
    assert not (tmp_path / "vectors.npz").exists()
    counts = count_rows(mixed_model, monkeypatch)
    embed_file(mixed_model, tiny_tokenizer, corpus, tmp_path / "vectors.npz", layers="top")
    assert counts == []
    assert_is_whole(tmp_path / "vectors.npz", mixed_model, tiny_tokenizer, "top")


def test_an_interrupted_stream_goes_on_when_it_comes_again(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed, "WINDOW_CHARACTERS", 59)
    with monkeypatch.context() as patch:
        fail_at_call(patch, WorkingFolder, "write", 2)
        with pytest.raises(Interrupt):
            embed_file(mixed_model, tiny_tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    counts = count_rows(mixed_model, monkeypatch)
    embed_file(mixed_model, tiny_tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    assert sum(counts) == len(SENTENCES) - 3
    assert_is_whole(tmp_path / "vectors.npz", mixed_model, tiny_tokenizer, "all")


def test_another_stream_does_not_disturb_an_interrupted_one(
    mixed_model: ElmoModel, tiny_tokenizer: ElmoTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fail_at_call(patch, embed, "_records", 1)
        with pytest.raises(Interrupt):
            embed_file(mixed_model, tiny_tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    with pytest.raises(ValueError, match=r"was left by an interrupted run with another input;"):
        embed_file(mixed_model, tiny_tokenizer, io.BytesIO(b"Another sentence.\n"), tmp_path / "vectors.npz")
    embed_file(mixed_model, tiny_tokenizer, io.BytesIO(corpus.read_bytes()), tmp_path / "vectors.npz")
    assert_is_whole(tmp_path / "vectors.npz", mixed_model, tiny_tokenizer, "all")


def other_input(mixed_model: ElmoModel, corpus: Path) -> dict[str, Any]:
    corpus.write_text("Another sentence.\n", encoding="utf-8")
    return {}


def other_model(mixed_model: ElmoModel, corpus: Path) -> dict[str, Any]:
    mixed_model.scalar_mixes[0].set_weights([0.3, 0.5, 0.2])
    return {}


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        (lambda mixed_model, corpus: {"layers": "top"}, "layers"),
        (lambda mixed_model, corpus: {"dtype": "float16"}, "dtype"),
        (lambda mixed_model, corpus: {"split_into_words": True}, "split_into_words"),
        (lambda mixed_model, corpus: {"dtype": "float16", "layers": "mix"}, "layers and dtype"),
        (other_input, "input"),
        (other_model, "model"),
    ],
    ids=["layers", "dtype", "splitting", "layers and dtype", "input", "model"],
)
def test_what_another_job_left_is_not_used(
    change: Callable[[ElmoModel, Path], dict[str, Any]],
    differing: str,
    interrupted: Path,
    mixed_model: ElmoModel,
    tiny_tokenizer: ElmoTokenizer,
    corpus: Path,
) -> None:
    work = interrupted.with_name("vectors.npz.partial")
    options = change(mixed_model, corpus)
    message = f"{work} was left by an interrupted run with another {differing}; delete that folder to start anew."
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        embed_file(mixed_model, tiny_tokenizer, corpus, interrupted, **options)
    assert not interrupted.exists()
    assert sorted(path.name for path in work.iterdir()) == FIRST_CHUNK


def test_what_another_tokenizer_left_is_not_used(
    interrupted: Path, mixed_model: ElmoModel, tiny_folder: Path, corpus: Path
) -> None:
    tiny_tokenizer = ElmoTokenizer.from_pretrained(tiny_folder, word_splitter="whitespace")
    with pytest.raises(ValueError, match=r"was left by an interrupted run with another tokenizer;"):
        embed_file(mixed_model, tiny_tokenizer, corpus, interrupted)
