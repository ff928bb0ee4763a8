"""Parts of speech and word senses from the vectors of each layer (Peters et al. 2018, §5.3, tables 5 and 6).

    python examples/probe_layers.py tiny pos                             # UD English EWT
    python examples/probe_layers.py tiny senses --semcor semcor3.0
    python examples/probe_layers.py tiny senses --coarsewsd CoarseWSD-20
    python examples/probe_layers.py tiny senses --wic WiC_dataset

pos      a logistic regression on one layer's frozen vectors predicts the universal part of speech (table 6)
senses   the sense of a word is the one with the nearest centre (table 5):

    c_s = mean of h over the training occurrences of sense s,    s(h) = argmax_s cos(h, c_s)

    among the senses of the same lemma; a lemma that is not in the training data gets the first sense: WordNet's, or the
    commonest. Each seed holds out a tenth of SemCor's documents. "first sense" is the score of the first sense for all
    words.

    WiC's pairs share a sense if cos(h, h') is at least t, which is chosen on the training set; "first sense" is then
    the score of one answer for all pairs.

`pos` learns from the training set of a task of labelled words and is scored on its validation set, which is not used to
choose anything. `sense_data.py` names the sources of the data. Scores are accuracies; each word has one answer, so they
are also F1. The same architecture with random weights is probed too. Gains over the token layer are over the same
words.

Glossary: h the vector `(2P)` of a word in one layer, s a sense, c_s its centre, t a threshold, L layers.
"""

import collections
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import recipe
import torch
import typer
from data_errors import DataError
from datasets import Dataset, DatasetDict
from own_files import WORDS, OwnData
from seeds import mean_and_deviation, plot_band, say_spread
from sense_data import HELD_OUT, Sense, read_coarsewsd, read_semcor, read_wic
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from task_data import load
from tqdm import tqdm
from word_layers import word_layers

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import load_complete, load_tokenizer


def draw_documents(senses: list[Sense], seed: int) -> list[int]:
    """A tenth of the documents."""
    documents = sorted({sense.document for sense in senses})
    return np.random.default_rng(seed).permutation(documents)[: max(1, len(documents) // 10)].tolist()


def score_senses(vectors: np.ndarray, senses: list[Sense], documents: list[int]) -> dict[str, np.ndarray]:
    """Whether the first sense and each layer are right `(L + 2, n)` on held-out documents; also on ambiguous words.

    `vectors` `(L + 1, senses, 2P)` have length 1. A lemma is ambiguous if training has several senses of it.
    """
    lemmas = collections.defaultdict(list)
    for index, sense in enumerate(senses):
        lemmas[sense.lemma].append(index)
    right, is_ambiguous = [], []
    for indices in lemmas.values():
        numbers = np.array([senses[index].sense for index in indices])
        held_out = np.isin([senses[index].document for index in indices], documents)
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
    kinds = {"all words": np.concatenate(right, axis=1)}
    if not all(is_ambiguous):
        kinds["ambiguous words"] = kinds["all words"][:, is_ambiguous]
    return kinds


def score_pairs(vectors: np.ndarray, senses: list[Sense]) -> dict[str, np.ndarray]:
    """Whether one answer and each layer's threshold are right `(L + 2, n)` on n held-out pairs, 2i and 2i + 1."""
    first_words = senses[::2]
    is_same = np.array([word.sense == 1 for word in first_words])
    held_out = np.array([word.document == HELD_OUT for word in first_words])
    right = [is_same[held_out] == (is_same[~held_out].mean() >= 0.5)]
    for first, second in zip(vectors[:, ::2].astype(np.float32), vectors[:, 1::2].astype(np.float32), strict=True):
        cosines = (first * second).sum(axis=-1).round(4)
        thresholds = np.unique(cosines[~held_out])
        agreement = ((cosines[~held_out] >= thresholds[:, None]) == is_same[~held_out]).mean(axis=1)
        right.append((cosines[held_out] >= thresholds[agreement.argmax()]) == is_same[held_out])
    return {"pairs": np.stack(right)}


def above_token_layer(right: np.ndarray) -> list[str]:
    """The points by which each biLM layer is above the token layer, with the standard error over the same n words."""
    gains = 100 * (right[2:].astype(float) - right[1])
    return [f"{gain.mean():+.2f} ± {gain.std(ddof=1) / len(gain) ** 0.5:.2f}" for gain in gains]


def sense_vectors(
    model: ElmoModel, tokenizer: ElmoTokenizer, texts: list[list[str]], senses: list[Sense]
) -> np.ndarray:
    """`(L + 1, senses, 2P)`, the mean over each sense's words, of length 1, in half precision."""
    places = collections.defaultdict(list)
    for index, sense in enumerate(senses):
        places[sense.sentence].append(index)
    vectors = np.empty((model.config.num_hidden_layers + 1, len(senses), model.config.hidden_size), dtype=np.float16)
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
    recipe.plt.close(figure)


def random_model(trained: ElmoModel, seed: int) -> ElmoModel:
    """A model of the same size with random weights."""
    torch.manual_seed(seed)
    return ElmoModel(trained.config).eval()


def probe_tags(
    trained: ElmoModel, tokenizer: ElmoTokenizer, data: DatasetDict, seeds: int
) -> dict[str, list[list[float]]]:
    """The scores of each layer with trained and with random weights, for each seed."""
    scores = {"trained": [score_tags(trained, tokenizer, data["train"], data["validation"])], "random weights": []}
    for seed in range(seeds):
        random = random_model(trained, seed)
        scores["random weights"].append(score_tags(random, tokenizer, data["train"], data["validation"]))
    return scores


def probe_senses(
    trained: ElmoModel,
    vectors_of: Callable[[ElmoModel], np.ndarray],
    judge: Callable[[np.ndarray, int], dict[str, np.ndarray]],
    seeds: int,
    has_fixed_parts: bool,
) -> tuple[dict[str, list[list[float]]], dict[str, list[str]]]:
    """The scores of the commonest sense and of each layer, and points above the token layer.

    Args:
        trained: the model.
        vectors_of: gives a model's vectors of the words with a sense.
        judge: says by kind of words which vectors are right, with the held-out words of a seed.
        seeds: how many.
        has_fixed_parts: whether the data says which words are held out. Then trained weights have the same score for
            each seed, and so points above the token layer.
    """
    scores = collections.defaultdict(list)
    gains = {}
    trained_vectors = vectors_of(trained)
    for seed in range(seeds):
        if seed == 0 or not has_fixed_parts:
            for words, right in judge(trained_vectors, seed).items():
                scores[f"trained, {words}"].append(right.mean(axis=1).tolist())
                if has_fixed_parts:
                    gains[words] = above_token_layer(right)
        for words, right in judge(vectors_of(random_model(trained, seed)), seed).items():
            scores[f"random weights, {words}"].append(right.mean(axis=1).tolist())
    return scores, gains


def main(
    name: recipe.Model,
    what: Annotated[str, typer.Argument(help="pos or senses")],
    semcor: Annotated[Path, typer.Option(help="Folder of SemCor 3.0.")] = Path("semcor3.0"),
    documents: Annotated[int | None, typer.Option(help="Limit of SemCor's documents.")] = None,
    coarsewsd: Annotated[Path | None, typer.Option(help="Folder of CoarseWSD-20, instead of SemCor.")] = None,
    wic: Annotated[Path | None, typer.Option(help="Folder of WiC, instead of SemCor.")] = None,
    task: Annotated[str, typer.Option(help="A task of labelled words, for pos.")] = "ewt",
    rows: recipe.Rows = None,
    column: recipe.Columns = None,
    validation: recipe.Validation = None,
    test: recipe.Test = None,
    input_format: recipe.InputFormat = None,
    encoding: recipe.Encoding = "utf-8",
    seeds: int = 5,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the plot.")] = Path("probes"),
) -> None:
    """Probe the model and random weights, print the table and plot it."""
    recipe.check_known("WHAT", [what], ("pos", "senses"))
    if coarsewsd and wic:
        raise DataError("give --coarsewsd or --wic, not both.")
    tokenizer, trained = load_tokenizer(name), load_complete(name)
    gains: dict[str, list[str]] = {}
    if what == "pos":
        options = OwnData(column, validation, test, input_format, encoding)
        data = load(task, rows, (WORDS,), options)
        recipe.check_words(data, tokenizer, name)
        scores = probe_tags(trained, tokenizer, data, seeds)
    else:
        if coarsewsd:
            texts, senses = read_coarsewsd(coarsewsd, rows)
        elif wic:
            texts, senses = read_wic(wic, rows)
        else:
            texts, senses = read_semcor(semcor, documents)
        print(f"{len(senses):,} words with a sense, {sum(map(len, texts)):,} words")

        def judge(vectors: np.ndarray, seed: int) -> dict[str, np.ndarray]:
            if wic:
                return score_pairs(vectors, senses)
            return score_senses(vectors, senses, [HELD_OUT] if coarsewsd else draw_documents(senses, seed))

        vectors_of = partial(sense_vectors, tokenizer=tokenizer, texts=texts, senses=senses)
        has_fixed_parts = coarsewsd is not None or wic is not None
        scores, gains = probe_senses(trained, vectors_of, judge, seeds, has_fixed_parts)
    layers = ["token", *(f"layer {layer}" for layer in range(1, trained.config.num_hidden_layers + 1))]
    table = [["weights", "seeds", *([] if what == "pos" else ["first sense"]), *layers]]
    for kind, values in scores.items():
        table.append([kind, str(len(values)), *map(mean_and_deviation, zip(*values, strict=True))])
    recipe.print_table(table)
    say_spread(max(map(len, scores.values())))
    for words, points in gains.items():
        print(f"{words}, points above the token layer, ± standard error: {', '.join(points)}")
    output.mkdir(parents=True, exist_ok=True)
    by_layer = {}
    for kind, values in scores.items():
        by_layer[kind] = [row[-len(layers) :] for row in values]  # without the score of the commonest sense
    plot(by_layer, output / f"{what}.png")
    recipe.say_where_pictures_are(output)


if __name__ == "__main__":
    recipe.run(main, recipe.STARTS_AGAIN)
