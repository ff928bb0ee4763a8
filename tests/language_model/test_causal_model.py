"""The causal language model is the forward half of both models; one id a word gives the scores of characters."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_lm import SENTENCES, WORDS, assert_close, inputs_of, tiny_lm, tiny_word_lm, tokenizer_of
from transformers import AutoModelForCausalLM

from elmo_hf import ElmoForCausalLM, WordIdTokenizer
from elmo_hf.folder.loading import load_complete


@pytest.mark.parametrize("makes", [tiny_lm, tiny_word_lm])
def test_logits_and_loss_are_the_forward_models_of_words_counted_from_one(makes: Any, tmp_path: Path) -> None:
    both = makes()
    both.save_pretrained(tmp_path / "both")
    model, info = AutoModelForCausalLM.from_pretrained(tmp_path / "both", output_loading_info=True)
    assert not any(info.values())
    assert [both.config.bidirectional, model.eval().config.bidirectional] == [True, False]
    inputs = inputs_of(both, side="left")
    expected = both(**inputs, output_logits=True)
    inputs["labels"] = torch.where(inputs["attention_mask"] == 1, inputs["labels"] + 1, 0)
    found = model(**inputs)
    assert_close(found.logits[..., 1:], expected.forward_logits)
    assert_close(found.loss, expected.forward_loss)
    probabilities = found.logits.softmax(-1)
    assert (probabilities[..., 0] == 0).all()
    assert torch.isfinite(probabilities * found.logits.log_softmax(-1)).all()
    model.save_pretrained(tmp_path / "half")
    for folder in ("both", "half"):
        assert_close(load_complete(tmp_path / folder, ElmoForCausalLM)(**inputs).logits, found.logits)


@pytest.mark.parametrize("makes", [tiny_lm, tiny_word_lm])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_looked_up_at_the_next_word_ids_are_the_scores(makes: Any, side: str, tmp_path: Path) -> None:
    both = makes()
    both.save_pretrained(tmp_path)
    model, tokenizer = load_complete(tmp_path, ElmoForCausalLM), WordIdTokenizer(tokenizer_of(both), "whitespace")
    tokenizer.padding_side = side
    texts = [" ".join(words) for words in SENTENCES]
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        log_probs = model(**inputs).logits.log_softmax(-1)
    scores = both.score(SENTENCES, tokenizer_of(both))
    for row, words in enumerate(SENTENCES):
        is_word = inputs["attention_mask"][row].bool()
        ids, found = inputs["input_ids"][row][is_word], log_probs[row][is_word]
        assert tokenizer.convert_ids_to_tokens(ids) == [w if w in WORDS else "<UNK>" for w in ["<S>", *words]]
        expected = -scores.surprisals(row)[0][:-1] * np.log(2)
        np.testing.assert_allclose(found[:-1].gather(1, ids[1:, None])[:, 0], expected, rtol=1e-5, atol=1e-5)
        alone = tokenizer(texts[row])
        assert alone["input_ids"] == ids.tolist()
        assert tokenizer(words, is_split_into_words=True, add_special_tokens=False)["input_ids"] == ids[1:].tolist()
    with pytest.raises(ValueError, match="text_pair"):
        tokenizer(texts[0], texts[1])
