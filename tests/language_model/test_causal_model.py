"""The causal language model is the forward half of both models, whose words are counted from 1."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_lm import assert_close, inputs_of, tiny_lm, tiny_word_lm
from transformers import AutoModelForCausalLM

from elmo_hf import ElmoForCausalLM
from elmo_hf.folder.loading import load_complete


@pytest.mark.parametrize("makes", [tiny_lm, tiny_word_lm])
def test_logits_and_loss_are_the_forward_models_of_words_counted_from_one(makes: Any, tmp_path: Path) -> None:
    both = makes()
    both.save_pretrained(tmp_path / "both")
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "both", output_loading_info=True)
    assert not any(info.values())
    inputs = inputs_of(both, side="left")
    expected = both(**inputs, output_logits=True)
    inputs["labels"] = torch.where(inputs["attention_mask"] == 1, inputs["labels"] + 1, 0)
    found = model.eval()(**inputs)
    assert_close(found.logits[..., 1:], expected.forward_logits)
    assert_close(found.loss, expected.forward_loss)
    assert (found.logits.softmax(-1)[..., 0] * found.logits[..., 0] == 0).all()
    model.save_pretrained(tmp_path / "half")
    for folder in ("both", "half"):
        assert_close(load_complete(tmp_path / folder, ElmoForCausalLM)(**inputs).logits, found.logits)
