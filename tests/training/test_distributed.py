"""Two processes train as one process with the rows of both, and resume where they were killed."""

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoints import bits
from commands import output_of
from language_models import state_of, words_file
from launching import fork_two
from pretraining_runs import FIELDS, VOCABULARY, make_sentences, write_text
from two_ranks import EXACT, arguments


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, and of one, in its folders `exact`, `random`, `resumed` and `alone`."""
    folder = tmp_path_factory.mktemp("distributed")
    write_text(folder / "corpus.txt", make_sentences(20))
    write_text(folder / "held-out.txt", make_sentences(4, seed=2))
    words_file(folder, VOCABULARY, "words.txt")
    for name, dropout in (("exact", 0.0), ("alone", 0.0), ("random", 0.3)):
        (folder / f"{name}.json").write_text(json.dumps(FIELDS | {"lm_dropout": dropout}))
    output_of(*arguments(folder, "alone", f"{EXACT} --rows 4"))
    fork_two("two_ranks", folder)
    return folder


def test_two_processes_equal_one_with_the_rows_of_both(folder: Path) -> None:
    together, alone = state_of(folder / "exact"), state_of(folder / "alone")
    assert set(together) == set(alone)
    for name, array in alone.items():
        np.testing.assert_allclose(together[name], array, atol=2e-5, rtol=0, err_msg=name)
    logs = [json.loads((folder / name / "log.json").read_text()) for name in ("exact", "alone")]
    numbers = ("loss", "forward_loss", "backward_loss", "grad_norm", "eval_perplexity", "eval_carried_perplexity")
    for entries in zip(*logs, strict=True):
        names = [name for name in numbers if name in entries[1]]
        assert [entries[0][name] for name in names] == pytest.approx([entries[1][name] for name in names], abs=2e-4)
    assert sum("forward_loss" in entry for entry in logs[0]) == 8


def test_two_processes_resume_bit_for_bit_each_with_its_own_random_numbers(folder: Path) -> None:
    assert bits(state_of(folder / "resumed")) == bits(state_of(folder / "random"))
    for rank in (0, 1):
        states = [folder / name / "checkpoint-8" / f"bilm_state_{rank}.safetensors" for name in ("resumed", "random")]
        assert states[0].read_bytes() == states[1].read_bytes()
    generators = [(folder / "random" / "checkpoint-4" / f"rng_state_{rank}.pth").read_bytes() for rank in (0, 1)]
    assert generators[0] != generators[1]


def test_if_one_process_gets_a_signal_both_stop_when_they_ask_each_other(folder: Path) -> None:
    assert [(folder / f"stops-{rank}").read_text() for rank in (0, 1)] == ["[False, True]"] * 2
