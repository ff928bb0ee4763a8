"""Words that fit a gap: probabilities equal those by hand, in Python, in the pipeline and on the command line."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import assert_fails, run
from tiny_lm import SIZES, WORDS, assert_close, tiny_lm, tiny_tokenizer_of, tiny_word_lm
from torch import Tensor
from transformers import AutoModelForPreTraining

import elmo_hf
from elmo_hf import ElmoConfig, ElmoForPreTraining, ElmoModel, ElmoTokenizer, predict_words, tiny_model, tiny_tokenizer
from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words

SENTENCE = "the unseen ___ left , at ___ .".split()
REAL_WORDS = WORDS[3:]
KINDS = {
    "full": tiny_lm,
    "words": tiny_word_lm,
    "shared": lambda: tiny_word_lm(share_embedding_softmax=True),
}


def by_hand(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, words: list[str], place: int) -> list[Tensor]:
    """Both distributions `(V,)`: each language model reads its own side alone; then exp(W h + b), normalised."""
    sides = (["<S>", *words[:place]], [*words[place + 1 :], "</S>"])
    found = []
    for index, side in enumerate(sides):
        ids = torch.from_numpy(np.asarray([tokenizer.convert_tokens_to_ids(side)], dtype=np.int64))
        with torch.no_grad():
            top = model.elmo(ids, output_hidden_states=True).hidden_states[-1][0]
            hidden = top.chunk(2, dim=-1)[index][-1 if index == 0 else 0]
            weight = model.elmo.get_input_embeddings().weight[1:] if model.softmax.weight is None else None
            matrix = model.softmax.weight if weight is None else weight
            terms = torch.exp(torch.stack([row @ hidden for row in matrix]) + model.softmax.bias)
        found.append(terms / terms.sum())
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 2, 7])
def test_distributions_are_those_of_each_side_read_alone(kind: str, place: int, tmp_path: Path) -> None:
    model = KINDS[kind]()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    log_probs = gap_log_probs(model, tokenizer, SENTENCE, [6, place])
    assert log_probs.shape == (2, 2, len(WORDS))
    forward, backward = by_hand(model, tokenizer, SENTENCE, place)
    assert_close(log_probs[:, 1].exp(), torch.stack([forward, backward]))
    product = forward * backward / (forward * backward).sum()
    for direction, expected in (("forward", forward), ("backward", backward), ("both", product)):
        best = predict_words(model, tokenizer, SENTENCE, place, top_k=99, direction=direction)
        numbers = {word: float(expected[index]) for index, word in enumerate(WORDS) if word in REAL_WORDS}
        assert [each.word for each in best] == sorted(numbers, key=lambda word: -numbers[word])
        assert [each.probability for each in best] == pytest.approx([numbers[each.word] for each in best], abs=1e-5)
        assert [WORDS[each.word_class] for each in best] == [each.word for each in best]
        for name, alone in (("forward", forward), ("backward", backward)):
            numbers = [float(alone[each.word_class]) for each in best]
            assert [getattr(each, name) for each in best] == pytest.approx(numbers, abs=1e-5)


def test_the_word_at_the_place_is_not_read_and_dropout_is_off(tmp_path: Path) -> None:
    model = tiny_lm(lm_dropout=0.5).train()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    model.elmo.token_encoder.eval()
    modes = [module.training for module in model.modules()]
    first, second = (predict_words(model, tokenizer, ["the", word, "left"], 1) for word in ("___", "harbour"))
    assert first == second
    assert [module.training for module in model.modules()] == modes


def test_candidates_keep_their_probabilities(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    words = ["the", "___", "left"]
    everything = {each.word: each for each in predict_words(model, tokenizer, words, top_k=99)}
    chosen = predict_words(model, tokenizer, words, candidates=["ten", "dawn", "ten"])
    assert sorted(each.word for each in chosen) == ["dawn", "ten"]
    assert all(each == pytest.approx(everything[each.word]) for each in chosen if each.word)
    names = ["<UNK>", "<S>", "</S>"]
    rest = predict_words(model, tokenizer, words, candidates=names)
    total = sum(each.probability for each in [*everything.values(), *rest])
    assert sorted(each.word for each in rest) == sorted(names)
    assert total == pytest.approx(1, abs=1e-5)


def test_a_saved_language_model_is_the_packages_class_where_it_is_imported(tmp_path: Path) -> None:
    tiny_lm().save_pretrained(tmp_path)
    model = AutoModelForPreTraining.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(model) is ElmoForPreTraining


def test_a_forward_model_has_one_distribution(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    log_probs = gap_log_probs(model, tokenizer, SENTENCE, [2])
    both, forward = (rank_words(log_probs[:1], tokenizer, direction=name) for name in ("both", "forward"))
    assert both == forward
    assert {each.backward for each in both[0]} == {None}
    with pytest.raises(ValueError, match=r"^the direction must be one of forward, both, found 'backward'\.$"):
        rank_words(log_probs[:1], tokenizer, direction="backward")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": ["the", "ferry"]}, "there is no gap: write ___ in place of the word to predict, found 'the ferry'."),
        ({"words": "a ___"}, "give a list of words, `tokenizer.tokenize(text)`, not the string 'a ___'."),
        ({"words": "a b", "position": 1}, "give a list of words, `tokenizer.tokenize(text)`, not the string 'a b'."),
        ({}, "the sentence has gaps at [2, 6]; say which with `position`."),
        ({"position": 8}, "a position must be from 0 to 7 in 8 words, found [8]."),
        ({"position": -1}, "a position must be from 0 to 7 in 8 words, found [-1]."),
        ({"position": 2, "top_k": 0}, "`top_k` must be at least 1, found 0."),
        (
            {"position": 2, "direction": "left"},
            "the direction must be one of forward, backward, both, found 'left'.",
        ),
        (
            {"position": 2, "candidates": ["ten", "Ada", "boat"]},
            "the softmax cannot predict 'Ada', 'boat': 2 of 3 candidates are not among its 17 words.",
        ),
        ({"position": 2, "candidates": []}, "the candidates must be a list of words, found []."),
        ({"position": 2, "candidates": "ten"}, "the candidates must be a list of words, found 'ten'."),
    ],
    ids=str,
)
def test_what_cannot_be_predicted_is_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        predict_words(model, tokenizer, **{"words": SENTENCE} | arguments)


def test_a_tokenizer_without_the_words_is_refused() -> None:
    message = "the softmax has 17 words, but the tokenizer knows none of them: load both from one folder."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        predict_words(tiny_lm(), ElmoTokenizer(max_word_length=11), ["___"])


def test_gaps_are_words_of_three_underscores_or_more() -> None:
    assert gaps(["___", "_", "__", "a___", "_____"]) == [0, 4]


def test_the_pipeline_answers_as_the_stock_one(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tiny_tokenizer_of(model, tmp_path)
    fill = elmo_hf.pipeline("fill-mask", model, tokenizer)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    text = "the  ferry left, ___."
    answers = fill(text, top_k=2)
    best = predict_words(model, tokenizer, ["the", "ferry", "left", ",", "___", "."], top_k=2)
    assert answers == [
        {
            "score": pytest.approx(each.probability, abs=1e-6),
            "token": each.word_class,
            "token_str": each.word,
            "sequence": f"the  ferry left, {each.word}.",
        }
        for each in best
    ]
    assert fill([text], top_k=2) == answers
    assert elmo_hf.pipeline("fill-mask", tmp_path / "saved")(text, top_k=2) == answers
    white = ElmoTokenizer(max_word_length=tokenizer.max_word_length, words_file=str(tmp_path / "saved" / "words.txt"))
    white.word_splitter = "whitespace"  # a tokenizer of the caller's, not the folder's
    assert elmo_hf.pipeline("fill-mask", str(tmp_path / "saved"), white).tokenizer is white
    assert fill([text, text], top_k=2, batch_size=2) == [answers, answers]
    assert [each["token_str"] for each in fill(text, targets="ten", direction="backward")] == ["ten"]
    first, second = fill("the ___ left ___.")
    assert len(first) == len(second) == 5
    assert first[0]["sequence"] == f"the {first[0]['token_str']} left ___."
    assert second[0]["sequence"] == f"the ___ left {second[0]['token_str']}."


def test_the_pipeline_says_what_it_needs(tmp_path: Path) -> None:
    ElmoModel(ElmoConfig(**{**SIZES, "num_softmax_words": None})).save_pretrained(tmp_path / "encoder")
    with pytest.raises(ValueError, match="encoder has no softmax over words, so it embeds text and cannot score it"):
        elmo_hf.pipeline("fill-mask", str(tmp_path / "encoder"))
    message = "fill-mask needs the softmax of the language models, which ElmoModel lacks: load the folder "
    with pytest.raises(ValueError, match=f"^{message}as ElmoForPreTraining, or give its name"):
        elmo_hf.pipeline("fill-mask", ElmoModel(ElmoConfig(**SIZES)), tiny_tokenizer())


def table(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith("  ")]


def test_the_command_prints_the_probabilities_by_hand(tmp_path: Path) -> None:
    text = "The old ___ told us a story ."
    result = run("fill", "tiny", text, "--top-k", 3)
    assert result.exit_code == 0, result.output
    model, tokenizer = tiny_model(ElmoForPreTraining), tiny_tokenizer()
    forward, backward = by_hand(model, tokenizer, text.split(), 2)
    product = forward * backward / (forward * backward).sum()
    best = [index for index in product.argsort(descending=True).tolist() if index > 2][:3]
    numbers = [[f"{float(each[index]):.4f}" for each in (product, forward, backward)] for index in best]
    rows = [[word, *row] for word, row in zip(tokenizer.class_words(best), numbers, strict=True)]
    assert result.stdout.splitlines()[0] == text
    assert table(result.stdout) == [["word", "both", "forward", "backward"], *rows]
    (tmp_path / "a.jsonl").write_text('["The", "___", "."]\n\n' + json.dumps("We saw a ___ and a ___.") + "\n")
    result = run("fill", "tiny", tmp_path / "a.jsonl", "--candidates", "ship man", "--direction", "backward")
    assert result.exit_code == 0, result.output
    assert [line for line in result.stdout.splitlines() if line[0] != " "] == ["The ___ .", "We saw a ___ and a ___."]
    assert [row[0] for row in table(result.stdout)].count("word") == 3
    assert {tuple(row[1:]) for row in table(result.stdout) if row[0] == "word"} == {("backward", "forward")}
    assert {row[0] for row in table(result.stdout)} == {"word", "ship", "man"}


def test_the_command_refuses_unknown_candidates_and_lines_without_a_gap(tmp_path: Path) -> None:
    message = "the softmax cannot predict 'zzyzx': 1 of 2 candidates are not among its 20,000 words."
    assert_fails(run("fill", "tiny", "a ___", "--candidates", "man zzyzx"), 1, message)
    (tmp_path / "a.txt").write_text("a ___ .\nno gap\n")
    result = run("fill", "tiny", tmp_path / "a.txt")
    assert_fails(result, 1, "there is no gap: write ___ in place of the word to predict")
    assert result.stdout == ""
    assert_fails(run("fill", "tiny", "no gap " * 50), 1, "has no gap ___ and is no file.")
