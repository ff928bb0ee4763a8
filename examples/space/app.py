"""The page: a visitor clicks a word, sees which words are near in each layer, moves the mix, and reads surprisals.

`python app.py` starts it. The environment variable `ELMO_MODEL` has the models that a visitor may choose, Hub names,
folders or short names, with commas between them; the default is `tiny`, which needs no network. `GRADIO_SERVER_PORT`
has the port. Ctrl-C stops the page.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

import computing
import drawing

try:
    import gradio as gr
except ModuleNotFoundError:
    sys.exit("Error: the demo needs gradio: in a clone of elmo-hf, pip install '.[space]'.")

TEXT = "They left the town at noon.\nHe turned to the left."
EXAMPLES = [
    TEXT,
    "We sat on the bank of the river.\nHe has no money in the bank.",
    "I cannot bear it.\nA bear ran away.",
]
MAX_LAYERS = 4
INTRODUCTION = """
# ELMo, layer by layer
ELMo ([Peters et al. 2018](https://aclanthology.org/N18-1202/)) gives every word a vector that depends on its sentence.
Layer 0 sees the word alone; the layers above read the whole sentence, before and after it. A task uses a mix, a
weighted sum of the layers.
"""


@contextmanager
def told_on_the_page() -> Iterator[None]:
    """Shows bad input to the visitor in one sentence."""
    try:
        yield
    except ValueError as error:
        raise gr.Error(str(error), duration=30, print_exception=False) from error


def read(model: str, text: str) -> list[Any]:
    """Reads a text; returns the page's state, its surprisal, a word to begin with, and a slider for each layer."""
    with told_on_the_page():
        lines = computing.read_text(model, text)
        layers = computing.read_layers(model, lines)
        num_layers = len(layers.layers) - 1
        if num_layers > MAX_LAYERS:
            raise ValueError(f"The model {model!r} has {num_layers} layers; this page shows up to {MAX_LAYERS}.")
        sliders = [gr.Slider(visible=layer <= num_layers) for layer in range(MAX_LAYERS + 1)]
        return [model, text, computing.first_word(model, lines), surprisal_of(model, lines), *sliders]


def surprisal_of(model: str, lines: tuple[str, ...]) -> str:
    """The coloured text, or the reason why there is none."""
    try:
        bits = computing.read_surprisals(model, lines)
    except ValueError as error:
        return f'<p class="key">{escape(str(error))}</p>'
    _, tokenizer = computing.load(model)
    texts, unknown = computing.read_layers(model, lines).texts, computing.unknown_words(model, lines)
    return drawing.surprisal(texts, bits, unknown, tokenizer.num_word_classes)


def nearest(
    model: str, text: str, word: int | None, *weights: float | None
) -> tuple[list[tuple[str, str | None]], str, str]:
    """Compares a word, counted from 0, with the corpus: the text with the word marked, the maps, the table."""
    with told_on_the_page():
        lines = computing.read_text(model, text)
        layers = computing.read_layers(model, lines)
        comparison = computing.compare(model, lines, word, weights[: len(layers.layers)])
    corpus = computing.read_layers(model, tuple(computing.CORPUS))
    clicked = layers.word(word)
    is_same = [corpus.word(place).casefold() == clicked.casefold() for place in comparison.words]
    return (
        marked(layers, word),
        drawing.maps(comparison, clicked, is_same),
        drawing.table(comparison, corpus, is_same),
    )


def marked(layers: computing.Layers, clicked: int) -> list[tuple[str, str | None]]:
    """The words of a text for the component to click, one sentence a line."""
    ends = {len(layers.places) - 1} | {i for i, (_, place) in enumerate(layers.places[1:]) if place == 0}
    return [
        (layers.word(index) + ("\n" if index in ends else " "), "clicked" if index == clicked else None)
        for index in range(len(layers.places))
    ]


with gr.Blocks(title="ELMo, layer by layer", analytics_enabled=False) as demo:
    gr.Markdown(INTRODUCTION)
    with gr.Row():
        text = gr.Textbox(TEXT, label="Text, one sentence a line", lines=3, max_lines=6, scale=3, elem_id="text")
        with gr.Column(scale=1):
            model = gr.Dropdown(computing.MODELS, value=computing.MODELS[0], label="Model", elem_id="model")
            button = gr.Button("Read", variant="primary", elem_id="read")
    examples = gr.Examples(EXAMPLES, text, label="Texts to try: click one", elem_id="examples")
    gr.Markdown("## Which words are near, layer by layer?")
    words = gr.HighlightedText(
        label="Click a word", color_map={"clicked": "#dc2626"}, show_inline_category=False, elem_id="words"
    )
    maps = gr.HTML(elem_id="maps")
    with gr.Row(elem_id="mix"):
        sliders = [
            gr.Slider(0, 1, 1, step=0.05, label=f"Your mix: weight of layer {layer}", visible=layer < 3, buttons=[])
            for layer in range(MAX_LAYERS + 1)
        ]
    table = gr.HTML(elem_id="table")
    gr.Markdown("## How surprising is each word?")
    surprisal = gr.HTML(elem_id="surprisal")
    # The text that the page shows; the fields above may have newer input that was not read yet.
    read_model = gr.Textbox("", label="model", visible=False)
    read_text = gr.Textbox("", label="text", visible=False)
    clicked = gr.Number(0, label="word, counted from 0", precision=0, visible=False)

    state = [read_model, read_text, clicked]
    show = {"fn": nearest, "inputs": [*state, *sliders], "outputs": [words, maps, table]}
    reading = {
        "fn": read,
        "inputs": [model, text],
        "outputs": [*state, surprisal, *sliders],
        "show_progress_on": [words, surprisal],
    }
    gr.on([button.click, demo.load], **reading, api_name="read").success(**show, api_name="nearest")
    examples.load_input_event.then(**reading, api_visibility="private").success(**show, api_visibility="private")

    def choose(event: gr.SelectData) -> int:
        """The number of the clicked word."""
        return event.index

    words.select(choose, None, clicked, api_visibility="private").then(**show, api_visibility="private")
    for slider in sliders:
        slider.input(**show, api_visibility="private", show_progress="hidden", trigger_mode="always_last")

LAUNCH = {
    "footer_links": ["api", "gradio", "settings"],
    "css_paths": Path(__file__).with_name("style.css"),
    # Fonts of the visitor's own system; other fonts would need the network.
    "theme": gr.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
}


def warm_up() -> None:
    """Loads the first model and reads the corpus before the first visit; the page shows an error for a wrong name."""
    with suppress(ValueError):
        computing.read_layers(computing.MODELS[0], tuple(computing.CORPUS))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warm_up()
    demo.launch(**LAUNCH)
