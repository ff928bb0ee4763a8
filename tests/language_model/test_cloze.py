"""Words that fit a gap: probabilities equal those by hand; the pipeline and the command give the same."""

import json
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForPreTraining

import elmo_hf
from elmo_hf import ElmoForPreTraining, ElmoTokenizer, predict_words, tiny_model, tiny_tokenizer
from elmo_hf.language_model.cloze import gap_log_probs, gaps, rank_words
from tests.helpers.commands import output_of
from tests.helpers.one_direction import forward_half
from tests.helpers.tiny_lm import WORDS, assert_close, tiny_lm, tiny_word_lm, tokenizer_of

SENTENCE = ["the", "unseen", "___", "left", ",", "at", "___", "."]
KINDS = {
    "full": tiny_lm,
    "words": tiny_word_lm,
    "shared": lambda: tiny_word_lm(share_embedding_softmax=True),
    "one direction": lambda: forward_half(tiny_lm()),
}


def by_hand(model: ElmoForPreTraining, tokenizer: ElmoTokenizer, words: list[str], place: int) -> dict[str, Tensor]:
    """Distributions `(V,)`: each language model reads its own side alone; then exp(W h + b), normalised."""
    sides = {"forward": ["<S>", *words[:place]], "backward": [*words[place + 1 :], "</S>"]}
    found = {}
    for index, name in enumerate([*sides][: model.config.num_directions]):
        ids = torch.from_numpy(np.asarray([tokenizer.convert_tokens_to_ids(sides[name])], dtype=np.int64))
        with torch.no_grad():
            top = model.elmo(ids, output_hidden_states=True).hidden_states[-1][0]
            hidden = top.split(model.config.projection_size, dim=-1)[index][-1 if index == 0 else 0]
            is_shared = model.softmax.weight is None
            matrix = model.elmo.get_input_embeddings().weight[1:] if is_shared else model.softmax.weight
            terms = torch.exp(torch.stack([row @ hidden for row in matrix]) + model.softmax.bias)
        found[name] = terms / terms.sum()
    product = torch.stack([*found.values()]).prod(dim=0)
    return found | {"both": product / product.sum()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 2, 7])
def test_distributions_are_those_of_each_side_read_alone_without_dropout(kind: str, place: int) -> None:
    model = KINDS[kind]().train()
    model.config.lm_dropout = 0.5
    model.elmo.token_encoder.eval()
    modes = [module.training for module in model.modules()]
    tokenizer = tokenizer_of(model)
    log_probs = gap_log_probs(model, tokenizer, SENTENCE, [6, place])
    expected = by_hand(model, tokenizer, SENTENCE, place)
    alone = {name: each for name, each in expected.items() if name != "both"}
    assert log_probs.shape == (len(alone), 2, len(WORDS))
    assert_close(log_probs[:, 1].exp(), torch.stack([*alone.values()]))
    for direction, probabilities in expected.items():
        # Places count from either end, as in a list.
        for counted in (place, place - len(SENTENCE)):
            best = predict_words(model, tokenizer, SENTENCE, counted, top_k=99, direction=direction)
            classes = [each.word_class for each in best]
            assert sorted(classes) == [*range(3, len(WORDS))]
            assert [each.word for each in best] == [WORDS[index] for index in classes]
            assert [each.probability for each in best] == sorted((each.probability for each in best), reverse=True)
            for name, numbers in {"probability": probabilities, **alone}.items():
                assert_close(torch.tensor([getattr(each, name) for each in best]), numbers[classes])
            assert "backward" in alone or {each.backward for each in best} == {None}
    assert [module.training for module in model.modules()] == modes


def test_candidates_keep_their_probabilities() -> None:
    model = tiny_lm()
    tokenizer, words = tokenizer_of(model), ["the", "___", "left", "___"]
    assert gaps(["___", "_", "__", "a___", "_____"]) == [0, 4]
    everything = predict_words(model, tokenizer, words, top_k=99, candidates=WORDS)
    assert sum(each.probability for each in everything) == pytest.approx(1, abs=1e-5)
    for candidates in (["ten", "dawn", "ten"], ["<UNK>", "<S>", "</S>"]):
        chosen = predict_words(model, tokenizer, words, candidates=candidates)
        assert chosen == [each for each in everything if each.word in candidates]


def test_a_product_that_32_bits_cannot_hold_is_not_zero() -> None:
    tokenizer = tokenizer_of(tiny_lm())
    log_probs = torch.zeros(2, 1, len(WORDS))
    log_probs[:, :, 5] = -80
    (ranked,) = rank_words(log_probs, tokenizer, 99, None, "both")
    rarest = ranked[-1]
    assert rarest.word_class == 5
    expected = np.exp(-160) / (len(WORDS) - 1)
    assert rarest.probability == pytest.approx(expected, rel=1e-4, abs=0)  # log-probabilities have 32 bits


def test_the_pipeline_answers_as_the_stock_one(tmp_path: Path) -> None:
    model = tiny_lm()
    tokenizer = tokenizer_of(model)
    fill = elmo_hf.pipeline("fill-mask", model, tokenizer)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    assert type(AutoModelForPreTraining.from_pretrained(tmp_path / "saved", trust_remote_code=True)) is type(model)
    text = "the  ferry left, ___."
    answers = fill(text, top_k=2)
    best = predict_words(model, tokenizer, ["the", "ferry", "left", ",", "___", "."], top_k=2)
    expected = [(each.probability, each.word_class, each.word, f"the  ferry left, {each.word}.") for each in best]
    assert [[*answer] for answer in answers] == [["score", "token", "token_str", "sequence"]] * 2
    assert [tuple(answer.values()) for answer in answers] == expected
    assert elmo_hf.pipeline("fill-mask", tmp_path / "saved")(text, top_k=2) == answers
    assert elmo_hf.pipeline("fill-mask", str(tmp_path / "saved"), tokenizer).tokenizer is tokenizer
    assert fill([text, text], top_k=2, batch_size=2) == [answers, fill([text], top_k=2)]
    assert [each["token_str"] for each in fill(text, targets="ten", direction="backward")] == ["ten"]
    first, second = fill("the ___ left ___.")
    assert first[0]["sequence"] == f"the {first[0]['token_str']} left ___."
    assert second[4]["sequence"] == f"the ___ left {second[4]['token_str']}."


def table(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith("  ")]


def shown(probability: float | None) -> str:
    """Four digits behind the point, or two digits and an exponent."""
    assert probability is not None
    return f"{probability:.4f}" if probability >= 0.001 else f"{probability:.1e}"


def test_the_command_prints_the_probabilities(tmp_path: Path) -> None:
    text = "The old ___ told us a story ."
    printed = output_of("fill", "tiny", text, "--top-k", 3)
    model, tokenizer = tiny_model(ElmoForPreTraining), tiny_tokenizer()
    best = predict_words(model, tokenizer, text.split(), top_k=3)
    numbers = [(each.probability, each.forward, each.backward) for each in best]
    rows = [[each.word, *map(shown, row)] for each, row in zip(best, numbers, strict=True)]
    assert printed.splitlines()[0] == text
    assert table(printed) == [["word", "both", "forward", "backward"], *rows]
    (tmp_path / "a.jsonl").write_text('["The", "___", "."]\n\n' + json.dumps("We saw a ___ and a ___.") + "\n")
    printed = output_of("fill", "tiny", tmp_path / "a.jsonl", "--candidates", "ship man", "--direction", "backward")
    assert [line for line in printed.splitlines() if line[0] != " "] == ["The ___ .", "We saw a ___ and a ___."]
    header, *found = table(printed)
    assert header == ["word", "backward", "forward"]
    assert sorted(row[0] for row in found) == [*["man"] * 3, *["ship"] * 3, *["word"] * 2]
    (small,) = [row for row in table(output_of("fill", "tiny", text, "--candidates", "ship")) if row[0] == "ship"]
    (ship,) = predict_words(model, tokenizer, text.split(), candidates=["ship"])
    assert ship.probability < 0.0001
    assert small == ["ship", shown(ship.probability), shown(ship.forward), shown(ship.backward)]


@pytest.mark.parametrize(
    ("direction", "names"),
    [
        ("both", ["both", "forward", "backward"]),
        ("forward", ["forward", "backward"]),
        ("backward", ["backward", "forward"]),
    ],
)
def test_the_command_writes_the_words_of_each_gap_as_a_table(direction: str, names: list[str], tmp_path: Path) -> None:
    sentences = ["We don't ___ it .", "", "The ___ of an old ___ ."]
    rows = [f'{number},"{sentence}"\n' for number, sentence in enumerate(sentences)]
    (tmp_path / "gaps.csv").write_text("".join(["item,said\n", *rows]), encoding="utf-8")
    command = ("fill", "tiny", tmp_path / "gaps.csv", "--column", "said", "--top-k", 2, "--direction", direction)
    printed = output_of(*command, "-o", tmp_path / "words.csv")
    assert printed.endswith(f"Wrote {tmp_path / 'words.csv'}.\n")
    written = pyarrow.csv.read_csv(tmp_path / "words.csv")
    assert written.column_names == ["sentence", "position", "word", *names]
    model, tokenizer = tiny_model(ElmoForPreTraining), tiny_tokenizer()
    expected = []
    for number, place in ((0, 3), (2, 1), (2, 5)):
        words = tokenizer.tokenize(sentences[number])
        best = predict_words(model, tokenizer, words, place, top_k=2, direction=direction)
        expected += [(number, place + 1, prediction) for prediction in best]
    for row, (number, position, prediction) in zip(written.to_pylist(), expected, strict=True):
        assert (row["sentence"], row["position"], row["word"]) == (number, position, prediction.word)
        # Several gaps are multiplied with the softmax at once, which rounds differently.
        assert row[direction] == pytest.approx(prediction.probability, rel=1e-4, abs=0)
        assert row["forward"] == pytest.approx(prediction.forward, rel=1e-4, abs=0)
        assert row["backward"] == pytest.approx(prediction.backward, rel=1e-4, abs=0)


def test_a_forward_model_fills_gaps_without_backward_probabilities(tmp_path: Path) -> None:
    model = forward_half(tiny_lm())
    model.save_pretrained(tmp_path / "half")
    tokenizer_of(model).save_pretrained(tmp_path / "half")
    printed = output_of("fill", tmp_path / "half", "the ___ left .", "-o", tmp_path / "words.parquet")
    assert table(printed)[0] == ["word", "both", "forward"]
    written = pyarrow.parquet.read_table(tmp_path / "words.parquet")
    assert written.column_names == ["sentence", "position", "word", "both", "forward"]
    assert written["both"].to_pylist() == pytest.approx(written["forward"].to_pylist(), rel=1e-5)  # normalised again
