"""What each layer knows: parts of speech and word senses, layer by layer (Peters et al. 2018, §5.3, tables 5 and 6).

    python examples/probe_layers.py tiny pos                             # UD English EWT
    python examples/probe_layers.py tiny senses --semcor semcor3.0

pos      a logistic regression on one layer's frozen vectors predicts the universal part of speech (table 6)
senses   the sense of a word is the one with the nearest centre (table 5):

    c_s = mean of h over the training occurrences of sense s,    s(h) = argmax_s cos(h, c_s)

    among the senses of the same lemma; a lemma that training does not have gets WordNet's first sense. Each seed holds
    out a tenth of the documents. "first sense" is the score of WordNet's first sense for every word.

`pos` learns from the training set of a task of labelled words and is scored on its validation set, by which nothing is
chosen. SemCor 3.0 is part of the Brown corpus with WordNet 3.0's senses (web.eecs.umich.edu/~mihalcea/downloads.html,
Princeton's WordNet licence); all but names of its folders `brown1` and `brown2` is read. Scores are accuracies; each
word has one answer, so they are also F1. The same architecture with random weights is probed too.

Glossary: h the vector `(2P)` of a word in one layer, s a sense, c_s its centre, L layers.
"""

import collections
import re
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import recipe
import torch
import typer
from datasets import Dataset
from seeds import mean_and_deviation, plot_band
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from task_data import load
from tqdm import tqdm
from word_layers import word_layers

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.loading import load_complete, model_folder

SEMCOR_WORD = re.compile(r"<(?:wf|punc)([^>]*)>(.*)</(?:wf|punc)>")
KINDS = {"1": "noun", "2": "verb", "3": "adjective", "4": "adverb", "5": "adjective"}


class Sense(NamedTuple):
    """A word of SemCor with its sense: words `[start, end)` of a sentence."""

    document: int
    sentence: int
    start: int
    end: int
    lemma: str  # with its part of speech
    sense: int  # WordNet's number


def read_semcor(folder: Path, documents: int | None) -> tuple[list[list[str]], list[Sense]]:
    """The sentences of SemCor's files, or of some drawn with a fixed seed, and the words with senses."""
    paths = sorted(folder.glob("brown[12]/tagfiles/*"))
    if not paths:
        raise typer.BadParameter(f"expected SemCor's files brown1/tagfiles/* in {folder}, found none.")
    sentences: list[list[str]] = [[]]
    senses = []
    for document, path in enumerate(np.random.default_rng(0).permutation(paths)[:documents].tolist()):
        for line in path.read_text(encoding="latin-1").splitlines():
            found = SEMCOR_WORD.fullmatch(line.strip())
            if found:
                words = found[2].split("_")
                fields = dict(re.findall(r"(\w+)=(\S+)", found[1]))
                number = fields.get("wnsn", "0").split(";")[0]  # 0: WordNet 3.0 has lost the sense
                if number.isdigit() and number != "0" and "pn" not in fields:
                    lemma = f"{fields['lemma']} {KINDS[fields['lexsn'][0]]}"
                    start = len(sentences[-1])
                    senses.append(Sense(document, len(sentences) - 1, start, start + len(words), lemma, int(number)))
                sentences[-1] += words
            elif line.strip() == "</s>":
                sentences.append([])
    return sentences, senses


def score_senses(vectors: np.ndarray, senses: list[Sense], seed: int) -> tuple[list[float], list[float]]:
    """The accuracy of WordNet's first sense and of each layer: of all held-out words, and of ambiguous ones.

    `vectors` `(L + 1, senses, 2P)` have length 1. A lemma is ambiguous if training has several senses of it.
    """
    documents = sorted({sense.document for sense in senses})
    drawn = np.random.default_rng(seed).permutation(documents)[: max(1, len(documents) // 10)]
    lemmas = collections.defaultdict(list)
    for index, sense in enumerate(senses):
        lemmas[sense.lemma].append(index)
    right, is_ambiguous = [], []
    for indices in lemmas.values():
        numbers = np.array([senses[index].sense for index in indices])
        held_out = np.isin([senses[index].document for index in indices], drawn)
        # Equal similarities go to the sense that is more frequent in training.
        known = [number for number, _ in collections.Counter(numbers[~held_out].tolist()).most_common()]
        found = np.ones((len(vectors) + 1, held_out.sum()), dtype=int)
        if known and held_out.any():
            here = vectors[:, indices].astype(np.float32)
            centres = np.stack([here[:, ~held_out & (numbers == number)].mean(axis=1) for number in known], axis=1)
            centres /= np.linalg.norm(centres, axis=-1, keepdims=True)
            similarities = here[:, held_out] @ centres.swapaxes(1, 2)
            found[1:] = np.array(known)[similarities.round(4).argmax(axis=-1)]
        right.append(found == numbers[held_out])
        is_ambiguous += [len(known) > 1] * int(held_out.sum())
    correct = np.concatenate(right, axis=1)
    return correct.mean(axis=1).tolist(), correct[:, is_ambiguous].mean(axis=1).tolist()


def sense_vectors(
    model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]], senses: list[Sense]
) -> np.ndarray:
    """`(L + 1, senses, 2P)`, the mean over each sense's words, of length 1, in half precision."""
    places = collections.defaultdict(list)
    for index, sense in enumerate(senses):
        places[sense.sentence].append(index)
    shape = (model.config.num_hidden_layers + 1, len(senses), model.config.hidden_size)
    vectors = np.empty(shape, dtype=np.float16)
    for sentence, layers in word_layers(model, tokenizer, texts):
        for index in places[sentence]:
            vector = layers[:, senses[index].start : senses[index].end].mean(axis=1)
            vectors[:, index] = vector / np.linalg.norm(vector, axis=-1, keepdims=True)
    return vectors


def score_tags(model: ElmoModel, tokenizer: ElmoTokenizer, train: Dataset, test: Dataset) -> list[float]:
    """The accuracy of a linear probe on each layer, learned from one set of labelled words and tested on another."""
    parts = []
    for part in (train, test):
        found = dict(word_layers(model, tokenizer, part["words"][:]))
        vectors = np.concatenate([found[index] for index in sorted(found)], axis=1)
        parts.append((vectors, np.concatenate(part["labels"][:])))
    (learned, labels), (tested, right) = parts
    scores = []
    for layer, tested_layer in zip(tqdm(learned, desc="probes"), tested, strict=True):
        scaler = StandardScaler().fit(layer)
        probe = LogisticRegression(max_iter=100).fit(scaler.transform(layer), labels)
        scores.append(float(probe.score(scaler.transform(tested_layer), right)))
    return scores


def plot(scores: dict[str, list[list[float]]], path: Path) -> None:
    """Plots means over seeds by layer, with a band of one standard deviation."""
    figure, axes = recipe.plt.subplots(figsize=(5.5, 3.7), layout="constrained")
    for name, found in scores.items():
        by_layer = list(zip(*found, strict=True))
        plot_band(axes, range(len(by_layer)), by_layer, name)
    axes.set_xticks(range(len(by_layer)), ["token", *(f"layer {layer}" for layer in range(1, len(by_layer)))])
    axes.set_ylabel("accuracy (%)")
    figure.legend(loc="outside upper center", ncols=2)
    figure.savefig(path, dpi=80)


def main(
    name: recipe.Model,
    what: Annotated[str, typer.Argument(help="pos or senses")],
    semcor: Annotated[Path, typer.Option(help="Folder of SemCor 3.0.")] = Path("semcor3.0"),
    documents: Annotated[int | None, typer.Option(help="Limit of SemCor's documents.")] = None,
    task: Annotated[str, typer.Option(help="A task of labelled words, for pos.")] = "ewt",
    rows: recipe.Rows = None,
    seeds: int = 5,
    output: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("probes"),
) -> None:
    """Probe the model and random weights, print the table and plot it."""
    source = model_folder(name)
    tokenizer, trained = ElmoTokenizer.from_pretrained(source), load_complete(source)
    scores: dict[str, list[list[float]]] = collections.defaultdict(list)
    if what == "pos":
        data = load(task, rows)
    else:
        texts, senses = read_semcor(semcor, documents)
        vectors = sense_vectors(trained, tokenizer, texts, senses)
        print(f"{len(senses):,} words with a sense, {sum(map(len, texts)):,} words")
    for seed in range(seeds):
        torch.manual_seed(seed)
        random = ElmoModel(trained.config).eval()
        if what == "pos":
            if seed == 0:
                scores["trained"].append(score_tags(trained, tokenizer, data["train"], data["validation"]))
            scores["random weights"].append(score_tags(random, tokenizer, data["train"], data["validation"]))
            continue
        for kind, found in (("trained", vectors), ("random weights", sense_vectors(random, tokenizer, texts, senses))):
            every, ambiguous = score_senses(found, senses, seed)
            scores[f"{kind}, all words"].append(every)
            scores[f"{kind}, ambiguous words"].append(ambiguous)
    layers = ["token", *(f"layer {layer}" for layer in range(1, trained.config.num_hidden_layers + 1))]
    table = [["weights", "seeds", *([] if what == "pos" else ["first sense"]), *layers]]
    for kind, values in scores.items():
        table.append([kind, str(len(values)), *map(mean_and_deviation, zip(*values, strict=True))])
    recipe.print_table(table)
    output.mkdir(parents=True, exist_ok=True)
    plot({kind: [row[-len(layers) :] for row in values] for kind, values in scores.items()}, output / f"{what}.png")


if __name__ == "__main__":
    typer.run(main)
