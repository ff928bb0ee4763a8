"""The Space of `examples/space`: its numbers, its drawings and, if Gradio is installed, its page through the API."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmo_hf import ElmoForPreTraining, ElmoModel, ElmoTokenizer, tiny_model, tiny_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "space"))
import computing
import drawing

LINES = ("The ferry left early.", "Left?")


@pytest.fixture
def name(tiny_folder: Path) -> str:
    """A model without softmax."""
    return str(tiny_folder)


def hidden_states(folder: str, lines: tuple[str, ...]) -> torch.Tensor:
    """`(L+1, N, D)`, one sentence at a time, without the boundaries."""
    model, tokenizer = ElmoModel.from_pretrained(folder).eval(), ElmoTokenizer.from_pretrained(folder)
    rows = [model(**tokenizer(line, return_tensors="pt"), output_hidden_states=True).hidden_states for line in lines]
    return torch.cat([torch.stack(row)[:, 0, 1:-1] for row in rows], dim=1).detach()


def test_layers_are_the_hidden_states_of_each_sentence_alone(name: str) -> None:
    found = computing.read_layers(name, LINES)
    assert found.texts == [["The", "ferry", "left", "early", "."], ["Left", "?"]]
    assert [found.word(index) for index in (0, 4, 5, 6)] == ["The", ".", "Left", "?"]
    torch.testing.assert_close(torch.from_numpy(found.layers), hidden_states(name, LINES), atol=1e-6, rtol=0)


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [0.0, 0.3, 0.9]])
def test_a_comparison_holds_the_nearest_words_of_every_view(name: str, weights: list[float]) -> None:
    found = computing.compare(name, LINES, 2, weights)
    texts, corpus = (hidden_states(name, lines) for lines in (LINES, tuple(computing.CORPUS)))
    share = torch.tensor(weights) / sum(weights)
    mixed = [torch.cat([each, torch.einsum("l,lnd->nd", share, each)[None]]) for each in (texts, corpus)]
    cosines = torch.cosine_similarity(mixed[0][:, 2:3], mixed[1], dim=-1)
    torch.testing.assert_close(torch.from_numpy(found.similarities), cosines[:, found.words], atol=1e-5, rtol=0)
    assert (np.diff(found.similarities[-1]) <= 0).all()
    least = cosines.topk(computing.NUM_NEAREST).values[:, -1:]
    # Of words whose cosines differ by a rounding, either may be the nearer one.
    must_be_near, may_be_near = cosines > least + 1e-5, cosines >= least - 1e-5
    for view in range(1, len(cosines)):
        near = {word for word, is_near in zip(found.words, found.is_near[view], strict=True) if is_near}
        assert len(near) == computing.NUM_NEAREST
        assert {*must_be_near[view].nonzero().flatten().tolist()} <= near
        assert near <= {*may_be_near[view].nonzero().flatten().tolist()}
    words = computing.read_layers(name, tuple(computing.CORPUS))
    same = [place for place in range(len(words.places)) if words.word(place).casefold() == "left"]
    assert len({*same} & {*found.words}) == min(len(same), computing.NUM_SAME)


@pytest.mark.parametrize(("word", "nearest"), [(1, "He left"), (11, "The road turns to the left")])
def test_the_small_model_keeps_the_two_meanings_of_left_apart(word: int, nearest: str) -> None:
    lines = ("They left the town at noon.", "He turned to the left.")
    corpus = computing.read_layers("tiny", tuple(computing.CORPUS))
    text, place = corpus.places[computing.compare("tiny", lines, word, [0, 0, 1]).words[0]]
    assert " ".join(corpus.texts[text][: place + 1]) == nearest


def test_a_map_keeps_distances_on_a_plane_and_is_turned_without_changing_them() -> None:
    random = np.random.default_rng(0)
    plane = random.normal(size=(6, 2))
    points, variance = computing._plane(plane @ random.normal(size=(2, 7)))
    assert variance == pytest.approx(1)
    turned = computing._turned(points, plane)
    for found in (points, turned):
        np.testing.assert_allclose(found @ found.T, points @ points.T, atol=1e-9)
    assert ((turned - plane) ** 2).sum() <= ((points - plane) ** 2).sum()
    assert computing._plane(np.ones((4, 7)))[1] == 0


def test_surprisals_are_the_models_own_score_and_unknown_words_are_told() -> None:
    lines = ("The sailor smiled .", "Zyzzyva .")
    scores = tiny_model(ElmoForPreTraining).score([line.split() for line in lines], tiny_tokenizer())
    for index, found in enumerate(computing.read_surprisals("tiny", lines)):
        for bits, expected in zip(found, scores.surprisals(index), strict=True):
            np.testing.assert_array_equal(bits, expected)
    assert computing.unknown_words("tiny", lines) == [[False] * 4, [True, False]]


REFUSED: dict[str, Callable[[str], object]] = {
    "empty": lambda name: computing.read_text("tiny", " \n\t"),
    "The text is empty": lambda name: computing.read_text("tiny", None),
    "2,001 characters": lambda name: computing.read_text("tiny", "x" * 2001),
    "'xxxxxxxxxxxxxxxxxxxx'... is longer than the 48": lambda name: computing.read_text("tiny", "so " + "x" * 49),
    "401 words": lambda name: computing.read_text("tiny", "x " * 399),
    "is not on this page, which has tiny": lambda name: computing.read_text(name, "Yes."),
    "'my-org/absent'": lambda name: computing.load("my-org/absent"),
    "Move at least one slider": lambda name: computing.compare(name, LINES, 0, [0, 0, 0]),
    "from 0 to 1, found nan": lambda name: computing.compare(name, LINES, 0, [1, float("nan"), 0]),
    "from 0 to 1, found None": lambda name: computing.compare(name, LINES, 0, [1, 0, None]),
    "counted from 0, is missing": lambda name: computing.compare(name, LINES, None, [1, 1, 1]),
    "there is no word 8": lambda name: computing.compare(name, LINES, 7, [1, 1, 1]),
    "no softmax": lambda name: computing.read_surprisals(name, LINES),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_shown_is_told_in_one_line(words: str, name: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        REFUSED[words](name)
    assert "\n" not in str(error.value)


def test_drawings_escape_words_and_say_what_equals_what() -> None:
    corpus = computing.Layers([["<i>", "b"], ["<i>"]], [(0, 0), (0, 1), (1, 0)], np.zeros(0))
    apart, equal = [[0, 0], [0, 1], [1, 0], [3, 3]], [[0, 0], [0, 0], [0, 0], [1, 0]]
    points = np.array([equal, apart, apart])
    cosines = np.array([[1, 1, 0.25], [0.75, 0.5, -0.5], [0.875, 0.75, -0.125]])
    comparison = computing.Comparison([0, 2, 1], cosines, cosines > 0.6, points, [1.0, 0.5, 0.0])
    maps = drawing.maps(comparison, "<i>", [True, True, False])
    assert "<i>" not in maps
    assert maps.count("<figure>") == 3
    assert re.findall(r">(\d×)</text>", maps) == ["2×"]
    assert "shows 50.0% of the variance" in maps
    assert "all vectors are equal" in maps
    table = drawing.table(comparison, corpus, [True, True, False])
    assert "<i>" not in table
    assert "<mark>&lt;i&gt;</mark> b" in table
    rows = [re.findall(r">(-?\d\.\d\d)<", row) for row in table.split("</tr>")]
    assert rows[1:4] == [["1.00", "0.75", "0.88"], ["1.00", "0.50", "0.75"], ["0.25", "-0.50", "-0.12"]]
    assert table.count('class="cosine near"') == 5


def test_coloured_text_has_bits_for_each_word_and_boundary() -> None:
    bits = [(np.array([8.0, 20.0, 1.0]), np.array([2.0, 4.0, 0.0]))]
    html = drawing.surprisal([["<i>", "b"]], bits, [[False, True]], 10_000)
    forward, backward = html.split("</section>")[:2]
    chip = r'<span class="word ?(\w*)" style="--share:([\d.]+)">([^<]*)<small>([\d.]+)</small>'
    assert re.findall(chip, forward) == [
        ("", "0.50", "&lt;i&gt;", "8.0"),
        ("unknown", "1.00", "b", "20.0"),
        ("boundary", "0.06", "end", "1.0"),
    ]
    assert [found[2:] for found in re.findall(chip, backward)] == [("start", "2.0"), ("&lt;i&gt;", "4.0"), ("b", "0.0")]
    assert "here on average 2.0 bits, perplexity 4" in backward
    assert "not among the model's 10,000 words" in html


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    pytest.importorskip("gradio")
    gradio_client = pytest.importorskip("gradio_client")
    import app

    _, address, _ = app.demo.launch(**app.LAUNCH, prevent_thread_lock=True, quiet=True)
    yield gradio_client.Client(address, verbose=False)
    app.demo.close(verbose=False)


def test_the_page_answers_through_its_api(client: Any) -> None:
    model, text, word, surprisal, *_ = client.predict("tiny", "He turned to the left.\nYes.", api_name="/read")
    assert (model, word) == ("tiny", 4)
    assert '<section class="forward">' in surprisal
    words, maps, table = client.predict(model, text, word, 0, 0, 1, api_name="/nearest")
    assert [each["token"] for each in words[4:]] == ["left ", ".\n", "Yes ", ".\n"]
    assert [each["class_or_confidence"] for each in words[4:]] == ["clicked", None, None, None]
    assert maps.count("<figure>") == 4
    assert "The road turns to the <mark>left</mark> beyond the church" in table.split("</tr>")[1]


def test_the_page_opens_no_other_model(client: Any, name: str) -> None:
    gradio_client = pytest.importorskip("gradio_client")
    for arguments, path in (((name, "Yes."), "/read"), ((name, "Yes.", 0, 1, 1, 1), "/nearest")):
        with pytest.raises(gradio_client.exceptions.AppError, match=r"not (on this page|in the list of choices)"):
            client.predict(*arguments, api_name=path)
