"""How well pooled vectors measure sentence similarity: Spearman's correlation with the judgements of the SICK corpus.

Each pair of sentences has a relatedness score from 1 to 5, the mean of ten people's. It is compared with the cosine of
both sentences' vectors (the mean or the maximum over the words of a layer, or of the mix of all), with the cosine for
random weights, and with the share of words that both sentences have. `- mean` subtracts the mean vector of all
sentences first. `ridge` is a ridge regression of the score on [|u - v|; u * v], learned from the training pairs. `above
layer 0` compares with the context-free layer, pooled in the same way. The number after ± is the standard deviation over
the seeds for random weights, and otherwise the standard error, from 1,000 samples of the pairs.

    python benchmarks/similarity.py MODEL SICK_train.txt SICK_test_annotated.txt [--seeds 1 2 3 4 5]
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo_hf import ElmoModel, ElmoTokenizer
from elmo_hf.folder.loading import load_complete
from elmo_hf.folder.model_names import model_folder

BATCH = 64
POOLINGS = ("mean", "maximum")
# First sentences, second sentences, scores.
Part = tuple[list[str], list[str], np.ndarray]


def read_pairs(path: Path) -> Part:
    """Both sentences and the score of each pair of a SICK file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    scores = np.array([float(row["relatedness_score"]) for row in rows])
    return [row["sentence_A"] for row in rows], [row["sentence_B"] for row in rows], scores


@torch.no_grad()
def sentence_vectors(model: ElmoModel, tokenizer: ElmoTokenizer, sentences: list[str]) -> np.ndarray:
    """`(2, L + 2, sentences, 2P)`: mean and maximum over the words of each layer, and of the equal mix of all."""
    order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
    found: list[np.ndarray] = [np.empty(0)] * len(sentences)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        inputs = tokenizer([sentences[index] for index in chosen], padding=True, return_tensors="pt")
        is_word = inputs["attention_mask"].bool() & ~model.boundaries(inputs["input_ids"])
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)
        layers = torch.cat([layers, layers.mean(dim=0, keepdim=True)])
        for row, index in enumerate(chosen):
            words = layers[:, row, is_word[row]]
            found[index] = torch.stack([words.mean(dim=1), words.amax(dim=1)]).numpy()
    return np.stack(found, axis=2)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of each pair of vectors."""
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / norms


def shared_words(first: list[str], second: list[str]) -> np.ndarray:
    """For each pair, the number of words in both sentences over the number in either."""
    sets = [({*one.lower().split()}, {*other.lower().split()}) for one, other in zip(first, second, strict=True)]
    return np.array([len(one & other) / len(one | other) for one, other in sets])


def correlation(similarities: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Spearman's correlation times 100, along the last axis."""
    ranks, others = (rankdata(values, axis=-1) for values in (similarities, scores))
    ranks, others = (values - values.mean(axis=-1, keepdims=True) for values in (ranks, others))
    norms = np.linalg.norm(ranks, axis=-1) * np.linalg.norm(others, axis=-1)
    return 100 * (ranks * others).sum(axis=-1) / np.where(norms == 0, 1, norms)


def with_error(scores: np.ndarray, similarities: np.ndarray, others: np.ndarray | None = None) -> str:
    """The correlation, or its distance above that of `others`, and the standard error over samples of the pairs."""
    samples = np.random.default_rng(0).integers(len(scores), size=(1000, len(scores)))

    def value(chosen: slice | np.ndarray) -> np.ndarray:
        found = correlation(similarities[chosen], scores[chosen])
        return found if others is None else found - correlation(others[chosen], scores[chosen])

    return f"{value(slice(None)):.1f} ± {value(samples).std():.1f}"


def features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The input of the regression for each pair of vectors."""
    return np.concatenate([np.abs(first - second), first * second], axis=-1)


class Pairs:
    """The vectors of all pairs by one model, and the rows of its column of the table."""

    def __init__(self, model: ElmoModel, tokenizer: ElmoTokenizer, train: Part, test: Part) -> None:
        """Embeds both parts."""
        first, second, self.train_scores = train
        self.train = [sentence_vectors(model, tokenizer, sentences) for sentences in (first, second)]
        first, second, _ = test
        self.test = [sentence_vectors(model, tokenizer, sentences) for sentences in (first, second)]

    def rows(self) -> dict[tuple[str, str, str], np.ndarray]:
        """The similarity of each test pair by pooling, method and layer."""
        rows: dict[tuple[str, str, str], np.ndarray] = {}
        for pooling, name in enumerate(POOLINGS):
            first, second = (vectors[pooling] for vectors in self.test)
            learned = [vectors[pooling] for vectors in self.train]
            middle = np.concatenate([first, second], axis=1).mean(axis=1)
            for row, layer in enumerate([*map(str, range(len(first) - 1)), "mix"]):
                rows[name, "cosine", layer] = cosines(first[row], second[row])
                rows[name, "cosine - mean", layer] = cosines(first[row] - middle[row], second[row] - middle[row])
                regression = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 5, 11)))
                regression.fit(features(learned[0][row], learned[1][row]), self.train_scores)
                rows[name, "ridge", layer] = regression.predict(features(first[row], second[row]))
        return rows


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or tiny")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds of the random weights")
    arguments = parser.parse_args()
    train, test = read_pairs(arguments.train), read_pairs(arguments.test)
    scores = test[2]
    folder = model_folder(arguments.model)
    tokenizer, trained = ElmoTokenizer.from_pretrained(folder), load_complete(folder)
    random = []
    for seed in arguments.seeds:
        torch.manual_seed(seed)
        rows = Pairs(ElmoModel(trained.config).eval(), tokenizer, train, test).rows()
        random.append({name: float(correlation(row, scores)) for name, row in rows.items()})
    print(f"{len(scores):,} pairs; 100 x Spearman's correlation; {len(random)} seeds of random weights\n")
    print("| pooling | method | layer | trained | above layer 0 | random weights |\n|---|---|---|---|---|---|")
    rows = Pairs(trained, tokenizer, train, test).rows()
    for (pooling, method, layer), row in sorted(rows.items(), key=lambda item: item[0][:2]):
        found = [each[pooling, method, layer] for each in random]
        above = "" if layer == "0" else with_error(scores, row, rows[pooling, method, "0"])
        figures = f"{with_error(scores, row)} | {above} | {np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}"
        print(f"| {pooling} | {method} | {layer} | {figures} |")
    print(f"| words in both | | | {with_error(scores, shared_words(*test[:2]))} | | |")


if __name__ == "__main__":
    main()
