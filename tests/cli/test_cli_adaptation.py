"""`elmo-hf pretrain --model`: language models and converted biLMs go on with a newcomer's text and vocabulary."""

from pathlib import Path

import numpy as np
import pytest
import torch
from commands import assert_fails, run
from language_models import state_of, words_file
from newcomer import pretrain
from pretraining_runs import VOCABULARY

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining


@pytest.fixture(scope="module")
def pretrained(work: Path) -> Path:
    """A language model of two steps, to be adapted."""
    result = pretrain(work, work / "lm", "--vocabulary", work / "words.txt", "--config", work / "config.json")
    assert result.exit_code == 0, result.output
    return work / "lm"


def test_a_converted_bilm_learns_a_softmax_while_it_is_frozen(tiny_folder: Path, work: Path, tmp_path: Path) -> None:
    refusal = "this config has none. Make a vocabulary with `elmo-hf vocab`"
    assert_fails(pretrain(work, tmp_path / "out", "--model", tiny_folder), 1, refusal)
    options = ("--model", tiny_folder, "--vocabulary", work / "words.txt", "--frozen-steps", 2)
    result = pretrain(work, tmp_path / "frozen", *options)
    assert result.exit_code == 0, result.output
    before, after = state_of(tiny_folder), state_of(tmp_path / "frozen")
    compared = [name for name in before if "scalar_mixes" not in name]
    assert len(compared) > 10
    for name in compared:
        np.testing.assert_array_equal(after[f"elmo.{name}"], before[name])
    assert np.abs(after["softmax.bias"]).max() > 0
    result = pretrain(work, tmp_path / "thawed", *options[:-1], 1)
    assert result.exit_code == 0, result.output
    thawed = state_of(tmp_path / "thawed")
    assert not any(np.array_equal(thawed[f"elmo.{name}"], before[name]) for name in compared)
    assert ElmoTokenizer.from_pretrained(tmp_path / "thawed").predicted_words == VOCABULARY


@pytest.mark.parametrize(("words", "splitter"), [((), "ptb"), (("--words", "whitespace"), "whitespace")])
def test_an_adapted_model_says_what_it_started_from_and_keeps_its_splitter_unless_told(
    words: tuple[str, ...], splitter: str, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("It isn't late.\n" * 9)
    steps = ("--max-steps", 1, "--rows", 1, "--unroll-steps", 2)
    result = run("pretrain", tmp_path / "text.txt", "-o", tmp_path / "lm", "--model", "tiny", *words, *steps)
    assert result.exit_code == 0, result.output
    assert ElmoTokenizer.from_pretrained(tmp_path / "lm").word_splitter == splitter
    card = (tmp_path / "lm" / "README.md").read_text(encoding="utf-8")
    assert "\ntrained from `tiny`, the small English model in the package `elmo-hf`, with `elmo-hf` " in card
    assert "base_model" not in card
    assert "| unroll_steps | 2 |" in card


def test_a_half_precision_language_model_is_adapted_in_single_precision(
    pretrained: Path, work: Path, tmp_path: Path
) -> None:
    ElmoForPreTraining.from_pretrained(pretrained, dtype=torch.float16).save_pretrained(tmp_path / "half")
    ElmoTokenizer.from_pretrained(pretrained).save_pretrained(tmp_path / "half")
    assert {array.dtype.name for array in state_of(tmp_path / "half").values()} == {"float16"}
    result = pretrain(work, tmp_path / "lm", "--model", tmp_path / "half")
    assert result.exit_code == 0, result.output
    assert {array.dtype.name for array in state_of(tmp_path / "lm").values()} == {"float32"}
    assert ElmoForPreTraining.from_pretrained(tmp_path / "lm").dtype == torch.float32


def test_a_language_model_is_adapted_with_its_own_softmax_or_a_new_one(
    pretrained: Path, work: Path, tmp_path: Path
) -> None:
    result = pretrain(work, tmp_path / "same", "--model", pretrained, "--learning-rate", 0)
    assert result.exit_code == 0, result.output
    before, after = state_of(pretrained), state_of(tmp_path / "same")
    assert set(before) == set(after)
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)
    result = pretrain(work, tmp_path / "other", "--model", pretrained, "--softmax", "sampled", "--samples", 4)
    assert result.exit_code == 0, result.output
    assert ElmoForPreTraining.from_pretrained(tmp_path / "other").config.softmax == "sampled"
    assert ElmoTokenizer.from_pretrained(tmp_path / "other").predicted_words == VOCABULARY
    vocabulary = words_file(tmp_path, VOCABULARY[:9])
    result = pretrain(work, tmp_path / "new", "--model", pretrained, "--vocabulary", vocabulary)
    assert result.exit_code == 0, result.output
    assert state_of(tmp_path / "new")["softmax.weight"].shape == (9, 7)
