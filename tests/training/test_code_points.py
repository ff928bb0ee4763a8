"""A new model of code points: its alphabet is that of its vocabulary; it trains, resumes, scores and embeds."""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from checkpoints import bits
from commands import output_of
from language_models import state_of, words_file
from pretraining_runs import FIELDS, files_of, pretrain, write_text
from saved_folders import assert_same_without_the_package

from elmo_hf import ElmoModel, ElmoTokenizer

WORDS = "राष्ट्रीय भाषा язык мы идём a".split()  # ऋ and ъ are in none of them
SENTENCES = [["мы", "ऋषि", "भाषा"], ["объём", "राष्ट्रीयकरण", "язык", "a"], ["идём", "राष्ट्रीय"]]
C = FIELDS["max_word_length"]


def row(word: str) -> list[int]:
    """The ids of a word, one letter after the other."""
    alphabet = sorted({letter for each in WORDS for letter in each})
    ids = [7 + alphabet.index(letter) if letter in alphabet else 3 for letter in word[: C - 2]]
    return [5, *ids, 6, *[4] * (C - 2 - len(ids))]


def test_a_new_model_reads_the_letters_of_its_vocabulary(tmp_path: Path) -> None:
    text, model = write_text(tmp_path / "corpus.txt", SENTENCES * 12), tmp_path / "model"
    words_file(tmp_path, ["<S>", "</S>", "<UNK>", *WORDS], "words.txt")
    (tmp_path / "config.json").write_text(json.dumps(FIELDS | {"vocab_size": 9, "bos_token_id": 8}))
    options = (*files_of(tmp_path), "--alphabet", "code_points", "--checkpoint-steps", 1)
    pretrain(tmp_path, model, *options)
    tokenizer, bilm = ElmoTokenizer.from_pretrained(model), ElmoModel.from_pretrained(model).eval()
    inputs = tokenizer(SENTENCES[1], is_split_into_words=True, return_tensors="pt")
    assert inputs["input_ids"][0, 1:-1].tolist() == [row(word) for word in SENTENCES[1]]
    assert (bilm.config.vocab_size, bilm.config.bos_token_id, bilm.config.eos_token_id) == (len(tokenizer), 1, 2)
    assert len(tokenizer) == 7 + len(set("".join(WORDS)))
    assert "36 sentences" in output_of("score", model, text)
    output_of("embed", model, text, "-o", tmp_path / "v.npz", "--layers", "top")
    with torch.no_grad(), np.load(tmp_path / "v.npz") as vectors:
        expected = bilm(**inputs, output_hidden_states=True).hidden_states[-1][0, 1:-1]
        np.testing.assert_allclose(vectors["1"], expected, rtol=1e-5, atol=1e-6)  # float32 in another batch
    (tmp_path / "again").mkdir()
    shutil.copytree(model / "checkpoint-1", tmp_path / "again" / "checkpoint-1")
    shutil.copy(model / "run.json", tmp_path / "again")
    pretrain(tmp_path, tmp_path / "again", *options)
    assert bits(state_of(tmp_path / "again")) == bits(state_of(model))
    for part in (bilm, tokenizer):
        part.save_pretrained(tmp_path / "bilm" / "model")
    (tmp_path / "bilm" / "sentences.json").write_text(json.dumps({"call1": SENTENCES}))
    assert_same_without_the_package(tmp_path / "bilm" / "model")
