"""Tables for R or a spreadsheet: the sentences of a text, distances between uses of a word, similarities of sentences.

    python examples/linguist.py sentences novel.txt sentences.txt
    python examples/linguist.py uses tiny cell 1890.txt 2020.txt -o cell.csv
    python examples/linguist.py pairs tiny sentences.txt -o pairs.csv

`uses` has a row for each pair of uses of a word, with their cosine distance in each biLM layer, and prints means. For
two files, such as two periods, these include two measures of change, with u a use in one file and v a use in the other:

    average pairwise distance    APD = mean_{u, v} (1 - cos(u, v))
    prototype distance           PRT = 1 - cos(mean_u u, mean_v v)

(Kutuzov and Giulianelli 2020, https://aclanthology.org/2020.semeval-1.14/, who write PRT as 1 / cos.) `pairs` has a row
for each pair of sentences: the cosine of their pooled vectors, and the share of their words that are in both.

Glossary: K uses, L layers of LSTMs, D = 2P features.
"""

import csv
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from word_layers import word_layers

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.cli.errors import Command
from elmo_hf.disk.whole_files import check_new_file, new_file
from elmo_hf.embedding.window_vectors import Selection, embed_window
from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.text.sentences import read_sentences

sys.path.append(str(Path(__file__).parent / "tiny_model"))
from english_sentences import split_sentences

BATCH_WORDS = 2048
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A folder, a Hub name, or tiny.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="The table to write.")]
Split = Annotated[bool, typer.Option("--split-into-words", help="Sentences are words separated by blanks already.")]
Place = tuple[int, int]  # a sentence, from 0, and a position in it, where 0 is <S>: as `elmo-hf score` counts

app = typer.Typer(add_completion=False)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def read_words(path: Path, tokenizer: ElmoTokenizer, is_split: bool) -> list[list[str]]:
    """The words of each sentence of a file."""
    split = str.split if is_split else tokenizer.tokenize
    texts = [split(each) if isinstance(each, str) else each for each in read_sentences(path)]
    if not any(texts):
        raise ValueError(f"{path} has no sentences.")
    return texts


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table with commas, and prints how many rows it has."""
    with new_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        number = sum(1 for row in rows if writer.writerow(row))
    print(f"Wrote {number:,} rows to {path}.")


def find_uses(
    model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]], word: str, most: int, name: str
) -> tuple[list[Place], np.ndarray]:
    """At most `most` uses of a word, spread evenly over the texts: their places, and vectors `(K, L, D)`."""
    is_use = [[each.casefold() == word.casefold() for each in words] for words in texts]
    places = [(row, column + 1) for row, uses in enumerate(is_use) for column, use in enumerate(uses) if use]
    if not places:
        raise ValueError(f"{word!r} is not a word of {name}, in upper or lower case, as the tokenizer splits it.")
    places = [places[len(places) * number // most] for number in range(most)] if len(places) > most else places
    rows = sorted({row for row, _ in places})
    layers = dict(word_layers(model, tokenizer, [texts[row] for row in rows], name))
    return places, np.stack([layers[rows.index(row)][1:, position - 1] for row, position in places])


@app.command(cls=Command)
def sentences(text: Path, output: Path) -> None:
    """Cut an English text into sentences, one a line. Paragraphs end at blank lines, or without any at each line."""
    check_new_file(output)
    content = text.read_text(encoding="utf-8")
    paragraphs = re.split(r"\n\s*\n", content) if re.search(r"\S\s*\n\s*\n\s*\S", content) else content.splitlines()
    lines = [line for each in paragraphs if each.strip() for line in split_sentences(" ".join(each.split())) if line]
    if not lines:
        raise ValueError(f"{text} has no sentences.")
    with new_file(output) as partial:
        partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"Wrote {len(lines):,} sentences to {output}.")


@app.command(cls=Command)
def uses(
    model_name: Model,
    word: Annotated[str, typer.Argument(help="The word, in any case.")],
    files: Annotated[list[Path], typer.Argument(help="One file, or two, such as two periods.")],
    output: Output,
    most: Annotated[int, typer.Option(help="Most uses from each file, spread over it evenly.", min=1)] = 200,
    is_split: Split = False,
) -> None:
    """Measure how far apart the uses of a word are, in one file or in two."""
    if len(files) > 2:
        raise typer.BadParameter(f"expected one file or two, found {len(files)}.")
    check_new_file(output)
    model, tokenizer = load_complete(model_name), load_tokenizer(model_name)
    found = [
        find_uses(model, tokenizer, read_words(path, tokenizer, is_split), word, most, str(path)) for path in files
    ]
    if sum(len(own) for own, _ in found) == 1:
        raise ValueError(f"{word!r} occurs only once, so there is no pair to compare.")
    vectors = unit(np.concatenate([layers for _, layers in found]))
    distances = 1 - np.einsum("uld,vld->luv", vectors, vectors)
    places = [(str(path), *place) for path, (own, _) in zip(files, found, strict=True) for place in own]
    header = [f"{name}_{number}" for number in (1, 2) for name in ("file", "sentence", "position")]
    write_table(
        output,
        [*header, *(f"layer_{layer}" for layer in range(1, len(distances) + 1))],
        (
            (*places[u], *places[v], *(f"{distance:.4f}" for distance in distances[:, u, v]))
            for u, v in combinations(range(len(places)), 2)
        ),
    )
    first = len(found[0][0])  # uses in the first file
    parts = [(f"within {path}", part) for path, part in zip(files, (slice(first), slice(first, None)), strict=False)]
    means = [(f"{name}, {len(places[part])} uses", _mean_of_pairs(distances[:, part, part])) for name, part in parts]
    if len(files) == 2:
        before, after = (unit(layers.mean(axis=0)) for _, layers in found)
        means.append(("between, mean of pairs (APD)", distances[:, :first, first:].mean(axis=(1, 2))))
        means.append(("between the mean vectors (PRT)", 1 - (before * after).sum(axis=-1)))
    for name, values in means:
        print(f"{name:32}", *(f"layer {layer} {value:.2f}" for layer, value in enumerate(values, start=1)), sep="  ")


def _mean_of_pairs(distances: np.ndarray) -> np.ndarray:
    """The mean distance of two different uses in each layer, from `(L, K, K)`; NaN for a single use."""
    upper = np.triu_indices(distances.shape[-1], k=1)
    return distances[:, *upper].mean(axis=-1) if len(upper[0]) else np.full(len(distances), np.nan)


@app.command(cls=Command)
def pairs(model_name: Model, file: Path, output: Output, is_split: Split = False) -> None:
    """Measure how similar each two sentences of a file are. ELMo is a poor measure: compare the shared words."""
    check_new_file(output)
    model, tokenizer = load_complete(model_name), load_tokenizer(model_name)
    texts = read_words(file, tokenizer, is_split)
    pooled = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    for row, arrays in embed_window(model, tokenizer, texts, Selection("pooled"), BATCH_WORDS):
        pooled[row] = arrays["vectors"]
    full = [row for row, words in enumerate(texts) if words]
    pooled[full] = unit(pooled[full])
    sets = [{word.casefold() for word in words} for words in texts]
    write_table(
        output,
        ["sentence_1", "sentence_2", "cosine", "shared_words", "text_1", "text_2"],
        (
            (
                u,
                v,
                f"{pooled[u] @ pooled[v]:.4f}",
                f"{len(sets[u] & sets[v]) / len(sets[u] | sets[v]):.4f}",
                " ".join(texts[u]),
                " ".join(texts[v]),
            )
            for u, v in combinations(full, 2)
        ),
    )


if __name__ == "__main__":
    app()
