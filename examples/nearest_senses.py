"""The words nearest to a word, with and without context (Peters et al. 2018, §5.3, table 4), and a picture of it.

    python examples/nearest_senses.py MODEL CORPUS WORD --sentence "TEXT WITH WORD" [--sentence ...]
    python examples/nearest_senses.py tiny corpus.txt play
    python examples/nearest_senses.py tiny corpus.txt bank --sentence "The boat lay at the bank ." --sentence "..."

CORPUS is one sentence a line, or JSON lines or CoNLL-U. Each `--sentence` has the word once; for `play` and `bank`, two
sentences each are built in. The table has, for each sentence and layer,

    argmax_j cos(h_k(word in the sentence), h_k(j))        over all words j of the corpus, in other sentences

In layer 0, the context-free vector, each other spelling is listed once. `WORD.png` has a panel for each layer: the word
in its sentences of the corpus, on the two principal components, in the colour of the given sentence (a star) that is
nearest in the top layer. Without context all occurrences of a spelling are one point. There is no picture of a word
that CORPUS does not have.

Glossary: h_k layer k, N words of the corpus, Q given sentences, D = 2P features.
"""

from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import recipe
import typer
from word_layers import word_layers

from elmo_hf import ElmoTokenizer
from elmo_hf.cli.arguments import Column, Encoding, InputFormat
from elmo_hf.cli.errors import Command
from elmo_hf.cli.split_notes import note_cut
from elmo_hf.disk.whole_files import new_file, refuse_existing, refuse_file_in_place
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import model_folder
from elmo_hf.text.sentences import read_sentences

SENTENCES = {
    "play": ["They went to the theatre to see a play .", "The children ran into the garden to play ."],
    "bank": ["He sat down on the bank of the river .", "She put all her money in the bank ."],
}
CONTEXT = 7  # words shown on either side
MOST_POINTS = 400

Place = tuple[int, int]  # a sentence, and a word of it

app = typer.Typer(add_completion=False)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def sentences_with(word: str, given: list[str] | None) -> list[str]:
    """The sentences that are given, or those that are built in for a word."""
    sentences = given if given else SENTENCES.get(word)
    if sentences is None:
        raise typer.BadParameter(f"expected --sentence with {word!r}, found none; only play and bank have their own.")
    return sentences


def find(word: str, words: list[str]) -> int:
    """The first place of a word in a sentence, upper case or lower."""
    places = [place for place, other in enumerate(words) if other.casefold() == word.casefold()]
    if not places:
        raise typer.BadParameter(f"expected {word!r} in each sentence, found {' '.join(words)!r} without it.")
    return places[0]


def shown(words: list[str], place: int) -> str:
    """A word in its context."""
    before, after = words[max(0, place - CONTEXT) : place], words[place + 1 : place + 1 + CONTEXT]
    return " ".join([*before, f"**{words[place]}**", *after]).replace("|", "/")


def nearest(similarities: np.ndarray, names: list[str], top: int) -> list[int]:
    """The places of the most similar of N words, one of each name."""
    chosen: dict[str, int] = {}
    for index in np.argsort(-similarities, kind="stable").tolist():
        chosen.setdefault(names[index], index)
        if len(chosen) == top:
            break
    return list(chosen.values())


def plane(vectors: np.ndarray) -> np.ndarray:
    """The two principal components of `(K, D)` vectors: `(K, 2)`."""
    rows, lengths, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    return rows[:, :2] * lengths[:2]


def plot(queries: np.ndarray, others: np.ndarray, sentences: list[list[str]], word: str, path: Path) -> None:
    """Plots `(L + 1, Q, D)` given words as stars and `(L + 1, K, D)` other occurrences as points, layer by layer."""
    owners = (others[-1] @ queries[-1].T).argmax(axis=-1)
    figure, panels = recipe.plt.subplots(1, len(queries), figsize=(3.4 * len(queries), 3.9), layout="constrained")
    for layer, axes in enumerate(panels):
        points = plane(np.concatenate([queries[layer], others[layer]]))
        for owner, words in enumerate(sentences):
            mine = points[len(sentences) :][owners == owner]
            axes.scatter(*mine.T, s=12, alpha=0.5, color=f"C{owner}")
            label = " ".join(words) if layer == 0 else None
            axes.scatter(*points[owner], s=220, marker="*", color=f"C{owner}", edgecolors="black", label=label)
        reach = max(0.5, 1.1 * np.abs(points).max())  # so that rounding errors do not fill the first panel
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[], aspect="equal")
        axes.set_title(f"layer {layer}" if layer else f"{word}: layer 0, without context")
    colours = f"A point has the colour of the sentence (star) that it is nearest to in layer {len(queries) - 1}."
    figure.legend(loc="outside lower center", title=colours)
    figure.savefig(path, dpi=80, format="png")
    recipe.plt.close(figure)


@app.command(cls=Command)
def main(
    name: recipe.Model,
    corpus: Annotated[Path, typer.Argument(help="A file of sentences, which the tokenizer splits into words.")],
    word: Annotated[str, typer.Argument(help="The word to look for.")],
    sentence: Annotated[list[str] | None, typer.Option(help="A sentence with the word; repeat it.")] = None,
    top: Annotated[int, typer.Option(help="Neighbours to list.")] = 5,
    rows: Annotated[int | None, typer.Option(help="Limit of sentences.")] = None,
    input_format: InputFormat = None,
    encoding: Encoding = "utf-8",
    column: Column = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the picture.")] = Path("senses"),
) -> None:
    """Print the neighbours of each sentence's word by layer, and plot its occurrences."""
    picture = output / f"{word}.png"
    refuse_existing(picture, is_folder=False)
    refuse_file_in_place(output)
    source = model_folder(name)
    model, tokenizer = load_complete(source), ElmoTokenizer.from_pretrained(source)
    asked = [tokenizer.tokenize(text) for text in sentences_with(word, sentence)]
    asked_places = [find(word, words) for words in asked]
    read = islice(read_sentences(corpus, encoding, column, input_format), rows)
    split = (tokenizer.tokenize(text) if isinstance(text, str) else text for text in read)
    texts = [words for words in note_cut(split, tokenizer) if words not in asked]
    if not any(texts):
        raise ValueError(f"{corpus} has no words besides the given sentences; give a file with other sentences.")
    found = dict(word_layers(model, tokenizer, asked, "sentences"))
    queries = unit(np.stack([found[row][:, place] for row, place in enumerate(asked_places)], axis=1))
    places: list[Place] = []
    similarities, occurrences = [], []
    for index, layers in word_layers(model, tokenizer, texts, str(corpus)):
        places += [(index, place) for place in range(len(texts[index]))]
        vectors = unit(layers)
        similarities.append(np.einsum("lqd,lnd->lqn", queries, vectors))
        is_word = [other.casefold() == word.casefold() for other in texts[index]]
        occurrences.append(vectors[:, is_word])
    by_layer = np.concatenate(similarities, axis=-1)  # (L + 1, Q, N)
    others = np.concatenate(occurrences, axis=1)[:, :MOST_POINTS]

    spellings = [texts[index][place] for index, place in places]
    is_other = np.array([spelling.casefold() != word.casefold() for spelling in spellings])
    table = [["sentence", "layer", "nearest", "cosine"]]
    for row, words in enumerate(asked):
        for layer, scores in enumerate(by_layer[:, row]):
            names = [str(index) for index in range(len(places))] if layer else spellings
            for rank, near in enumerate(nearest(scores if layer else np.where(is_other, scores, -1), names, top)):
                head = [shown(words, asked_places[row]), str(layer)] if rank == 0 else ["", ""]
                text = shown(texts[places[near][0]], places[near][1]) if layer else spellings[near]
                table.append([*head, text, f"{scores[near]:.2f}"])
    recipe.print_table(table)
    print(f"{others.shape[1]} times {word!r} among {len(places):,} words")
    if others.shape[1] == 0:
        print(f"No picture, because {corpus} has no {word!r} besides the given sentences.")
        return
    output.mkdir(parents=True, exist_ok=True)
    with new_file(picture, replaces=False) as partial:
        plot(queries, others, asked, word, partial)
    print(f"Picture: {picture}")


if __name__ == "__main__":
    app()
