"""The HTML and SVG of the page: maps of a word's neighbours, a table of similarities, coloured text.

Every word comes from a visitor or a model and is escaped. Colours are classes of `style.css`, which also has colours
for dark pages.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

import numpy as np
from computing import NUM_NEAREST, Comparison, Layers

FULL_BITS = 16  # the strongest colour
WIDTH, HEIGHT, MARGIN = 300, 230, 26  # of a map, in pixels
MAX_LABEL = 16  # letters of a word on a map
MAPS_KEY = """<p class="key"><span class="star">★</span> the word you clicked,
<span class="badge same">1</span> the same word in the corpus, <span class="badge other">2</span> another word.
Numbers are rows of the table below; <b>4×</b> is four equal vectors. Each map shows vectors of length 1 on their two
principal axes, all maps in one scale: near is similar.</p>"""
TABLE_KEY = """<p class="key">Cosine similarity to the clicked word, 1 for the same direction. Framed: the
{near} nearest among all {words:,} words of the corpus, and their equals. Rows follow your mix: set all weights but one
to 0 to sort by a layer.</p>"""


def view_names(num_layers: int) -> list[str]:
    """Names of the layers 0 to L and of the mix."""
    return ["Layer 0: the word alone", *(f"Layer {layer}" for layer in range(1, num_layers + 1)), "Your mix"]


def maps(comparison: Comparison, word: str, is_same: Sequence[bool]) -> str:
    """One map for each view, all in one scale; the numbers are rows of the table."""
    points = comparison.points - comparison.points.mean(axis=1, keepdims=True)
    extent = np.maximum(np.abs(points).max(axis=(0, 1)), 1e-6)
    scale = min((WIDTH / 2 - MARGIN) / extent[0], (HEIGHT / 2 - MARGIN) / extent[1])
    places = np.round(points * scale + np.array([WIDTH / 2, HEIGHT / 2])).astype(int)
    names = view_names(len(places) - 2)
    figures = [
        f"<figure><figcaption>{name}</figcaption>{_map(place.tolist(), word, is_same, name)}"
        f"<small>{f'shows {variance:.1%} of the variance' if variance else 'all vectors are equal'}</small></figure>"
        for name, variance, place in zip(names, comparison.variances, places, strict=True)
    ]
    return f'<div class="maps">{"".join(figures)}</div>{MAPS_KEY}'


def _map(places: list[list[int]], word: str, is_same: Sequence[bool], name: str) -> str:
    """One map: equal vectors share a dot, which shows their number."""
    dots = defaultdict(list)
    for number, place in enumerate(places):
        dots[tuple(place)].append(number)
    marks = []
    for (x, y), numbers in sorted(dots.items(), key=lambda dot: -max(dot[1])):
        others = [number for number in numbers if number]
        if not others:
            continue
        label = str(others[0]) if len(others) == 1 else f"{len(others)}×"
        kind = "same" if is_same[others[0] - 1] else "other"
        lowered = y + 20 * (0 in numbers)  # below the clicked word
        marks.append(
            f'<g class="{kind}"><title>row {", ".join(map(str, others))}</title>'
            f'<circle cx="{x}" cy="{lowered}" r="{8 if len(others) == 1 else 10}"/>'
            f'<text x="{x}" y="{lowered + 3.5}">{label}</text></g>'
        )
    x, y = places[0]
    star = f'<path class="star" d="{_star(x, y)}"/>'
    beside = [below - y for left, below in places[1:] if abs(left - x) < 30 and abs(below - y) < 30]
    is_below = sum(np.sign(beside)) < 0  # on the side with fewer dots
    shown = word if len(word) <= MAX_LABEL else word[: MAX_LABEL - 1] + "…"
    label = f'<text class="star" x="{x}" y="{y + 24 if is_below else y - 15}">{escape(shown)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">{star}{"".join(marks)}{label}</svg>'


def _star(x: float, y: float, radius: float = 13) -> str:
    """The outline of a star with five points."""
    angles = np.arange(10) * np.pi / 5 - np.pi / 2
    lengths = np.where(np.arange(10) % 2, 0.45, 1) * radius
    corners = zip(x + lengths * np.cos(angles), y + lengths * np.sin(angles), strict=True)
    return "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in corners) + "Z"


def table(comparison: Comparison, corpus: Layers, is_same: Sequence[bool]) -> str:
    """A row for each occurrence of the corpus: its sentence, and its similarity in every view."""
    names = view_names(len(comparison.similarities) - 2)
    head = "".join(f"<th>{name.split(':')[0]}</th>" for name in names)
    rows = []
    for row, place in enumerate(comparison.words):
        cells = "".join(
            f'<td class="cosine{" near" if is_near else ""}" style="--share:{max(cosine, 0):.2f}">{cosine:.2f}</td>'
            for cosine, is_near in zip(comparison.similarities[:, row], comparison.is_near[:, row], strict=True)
        )
        badge = f'<span class="badge {"same" if is_same[row] else "other"}">{row + 1}</span>'
        rows.append(f"<tr><td>{badge}</td><td>{_sentence(corpus, place)}</td>{cells}</tr>")
    key = TABLE_KEY.format(near=NUM_NEAREST, words=len(corpus.places))
    return f"<table><tr><th></th><th>Occurrence in the corpus</th>{head}</tr>{''.join(rows)}</table>{key}"


def _sentence(corpus: Layers, place: int) -> str:
    text, index = corpus.places[place]
    words = [escape(word) for word in corpus.texts[text]]
    return " ".join([*words[:index], f"<mark>{words[index]}</mark>", *words[index + 1 :]])


def surprisal(
    texts: list[list[str]], bits: list[tuple[np.ndarray, np.ndarray]], is_unknown: list[list[bool]], vocabulary: int
) -> str:
    """The text twice, coloured by the bits of the forward and of the backward language model."""
    panels = [
        ("forward", "Forward →", "each word, given the words before it"),
        ("backward", "← Backward", "each word, given the words after it"),
    ]
    sections = []
    for direction, (kind, title, meaning) in enumerate(panels):
        values = [each[direction] for each in bits]
        mean = float(np.concatenate(values).mean())
        lines = map(_coloured, texts, is_unknown, values, [direction == 0] * len(texts))
        sections.append(
            f'<section class="{kind}"><h4>{title} <span>{meaning}</span></h4>{"".join(lines)}'
            f'<p class="key">0 bits <i></i> {FULL_BITS} bits or more; here on average {mean:.1f} bits, '
            f"perplexity {2**mean:,.0f}</p></section>"
        )
    note = (
        "Surprisal in bits, -log2 of the probability that the model gives to the word: 0 is certain, 1 a coin's toss."
    )
    if any(map(any, is_unknown)):
        note += f" <u>Dotted</u>: not among the model's {vocabulary:,} words, so scored as &lt;UNK&gt;."
    return f'<div class="surprisal">{"".join(sections)}</div><p class="key">{note}</p>'


def _coloured(words: list[str], is_unknown: list[bool], bits: np.ndarray, is_forward: bool) -> str:
    """One sentence; the forward language model also predicts its end, the backward one its start."""
    kinds = ["word unknown" if unknown else "word" for unknown in is_unknown]
    chips = list(zip(kinds, words, strict=True))
    chips = [*chips, ("word boundary", "end")] if is_forward else [("word boundary", "start"), *chips]
    spans = [
        f'<span class="{kind}" style="--share:{min(value / FULL_BITS, 1):.2f}">{escape(word)}'
        f"<small>{value:.1f}</small></span>"
        for (kind, word), value in zip(chips, bits, strict=True)
    ]
    return f'<p class="line">{"".join(spans)}</p>'
