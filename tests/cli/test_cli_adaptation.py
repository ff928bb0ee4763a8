"""`elmo-hf pretrain --model`: language models and converted biLMs go on with a newcomer's text and vocabulary."""

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import bits
from commands import assert_fails, run
from language_models import state_of, words_file
from newcomer import pretrain
from pretraining_runs import VOCABULARY

from elmo_hf import ElmoTokenizer
from elmo_hf.language_model.pretraining import ElmoForPreTraining


def test_a_converted_bilm_learns_a_softmax_while_it_is_frozen(tiny_folder: Path, work: Path, tmp_path: Path) -> None:
    refused = run("pretrain", work / "corpus.txt", "-o", tmp_path / "out", "--model", tiny_folder)
    assert_fails(refused, 1, "this config has none. Make a vocabulary with `elmo-hf vocab`")
    before = state_of(tiny_folder)
    compared = [name for name in before if "scalar_mixes" not in name]
    assert len(compared) > 10
    for name, steps in (("frozen", 2), ("thawed", 1)):
        options = ("--model", tiny_folder, "--vocabulary", work / "words.txt", "--frozen-steps", steps)
        pretrain(work, tmp_path / name, *options)
        after = state_of(tmp_path / name)
        is_equal = {np.array_equal(after[f"elmo.{each}"], before[each]) for each in compared}
        assert is_equal == {name == "frozen"}
        assert np.abs(after["softmax.bias"]).max() > 0
        assert ElmoTokenizer.from_pretrained(tmp_path / name).predicted_words == VOCABULARY


@pytest.mark.parametrize(("words", "splitter"), [((), "ptb"), (("--words", "whitespace"), "whitespace")])
def test_an_adapted_model_says_what_it_started_from_and_keeps_its_splitter_unless_told(
    words: tuple[str, ...], splitter: str, work: Path, tmp_path: Path
) -> None:
    pretrain(work, tmp_path / "lm", "--model", "tiny", *words)
    assert ElmoTokenizer.from_pretrained(tmp_path / "lm").word_splitter == splitter
    card = (tmp_path / "lm" / "README.md").read_text(encoding="utf-8")
    assert "\ntrained from `tiny`, the small English model in the package `elmo-hf`, with `elmo-hf` " in card
    assert "base_model" not in card
    assert "| unroll_steps | 5 |" in card


def test_a_half_precision_language_model_is_adapted_in_single_precision(
    pretrained: tuple[Path, str], work: Path, tmp_path: Path
) -> None:
    ElmoForPreTraining.from_pretrained(pretrained[0], dtype=torch.float16).save_pretrained(tmp_path / "half")
    ElmoTokenizer.from_pretrained(pretrained[0]).save_pretrained(tmp_path / "half")
    pretrain(work, tmp_path / "lm", "--model", tmp_path / "half")
    for name, dtype in (("half", "float16"), ("lm", "float32")):
        assert {array.dtype.name for array in state_of(tmp_path / name).values()} == {dtype}
    assert ElmoForPreTraining.from_pretrained(tmp_path / "lm").dtype == torch.float32


def test_a_language_model_is_adapted_with_its_own_softmax_or_a_new_one(
    pretrained: tuple[Path, str], work: Path, tmp_path: Path
) -> None:
    pretrain(work, tmp_path / "same", "--model", pretrained[0], "--learning-rate", 0)
    assert bits(state_of(tmp_path / "same")) == bits(state_of(pretrained[0]))
    pretrain(work, tmp_path / "other", "--model", pretrained[0], "--softmax", "sampled", "--samples", 4)
    assert ElmoForPreTraining.from_pretrained(tmp_path / "other").config.softmax == "sampled"
    assert ElmoTokenizer.from_pretrained(tmp_path / "other").predicted_words == VOCABULARY
    vocabulary = words_file(tmp_path, VOCABULARY[:9])
    pretrain(work, tmp_path / "new", "--model", pretrained[0], "--vocabulary", vocabulary)
    assert state_of(tmp_path / "new")["softmax.weight"].shape == (9, 7)
