"""What mean-pooled vectors tell of sentence similarity: Spearman's correlation with the judgements of the SICK corpus.

Each pair of sentences has a relatedness score from 1 to 5, the mean of ten people's. It is compared with the cosine of
both sentences' vectors (the mean over the words of a layer, or of the mix of all), with the same of random weights, and
with the share of words that both sentences have. `- mean` subtracts the mean vector of all
sentences first. `ridge` is a ridge regression of the score on [|u - v|; u * v], learned from the training pairs.
After ± stands, for random weights, the standard deviation over the seeds, and otherwise the standard error, from 1,000
samples of the pairs.

    python benchmarks/similarity.py MODEL SICK_train.txt SICK_test_annotated.txt [--seeds 1 2 3 4 5]
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo_hf.loading import load_complete, model_folder
from elmo_hf.model.modeling_elmo import ElmoModel
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer

BATCH = 64
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
    """`(L + 2, sentences, 2P)`: means over the words of each layer, and of the equal mix of all layers."""
    order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
    found: list[np.ndarray] = [np.empty(0)] * len(sentences)
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        inputs = tokenizer([sentences[index] for index in chosen], padding=True, return_tensors="pt")
        is_word = inputs["attention_mask"].bool() & ~model.boundaries(inputs["input_ids"])
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states)
        sums = (layers * is_word.unsqueeze(-1)).sum(dim=2)
        means = sums / is_word.sum(dim=1, keepdim=True)
        for row, index in enumerate(chosen):
            found[index] = torch.cat([means[:, row], means[:, row].mean(dim=0, keepdim=True)]).numpy()
    return np.stack(found, axis=1)


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of each pair of vectors."""
    norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return (first * second).sum(axis=-1) / norms


def shared_words(first: list[str], second: list[str]) -> np.ndarray:
    """For each pair, the number of words in both sentences over the number in either."""
    sets = [({*one.lower().split()}, {*other.lower().split()}) for one, other in zip(first, second, strict=True)]
    return np.array([len(one & other) / len(one | other) for one, other in sets])


def correlation(similarities: np.ndarray, scores: np.ndarray) -> float:
    """Spearman's correlation times 100."""
    return 100 * float(spearmanr(similarities, scores).statistic)


def with_error(similarities: np.ndarray, scores: np.ndarray) -> str:
    """The correlation and its standard error over samples of the pairs."""
    generator = np.random.default_rng(0)
    samples = [generator.integers(len(scores), size=len(scores)) for _ in range(1000)]
    error = np.std([correlation(similarities[sample], scores[sample]) for sample in samples])
    return f"{correlation(similarities, scores):.1f} ± {error:.1f}"


def features(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What the regression reads of each pair of vectors."""
    return np.concatenate([np.abs(first - second), first * second], axis=-1)


class Pairs:
    """The vectors of all pairs by one model, and the rows of its column of the table."""

    def __init__(self, model: ElmoModel, tokenizer: ElmoTokenizer, train: Part, test: Part) -> None:
        """Embeds both parts."""
        self.train, self.test = (
            [sentence_vectors(model, tokenizer, sentences) for sentences in part[:2]] for part in (train, test)
        )
        self.train_scores = train[2]

    def rows(self) -> dict[str, np.ndarray]:
        """The similarity of each test pair by each method."""
        first, second = self.test
        names = [*(f"layer {number}" for number in range(len(first) - 1)), "mix"]
        middle = np.concatenate(self.test, axis=1).mean(axis=1)
        rows = {name: cosines(first[row], second[row]) for row, name in enumerate(names)}
        for row, name in enumerate(names):
            rows[f"{name} - mean"] = cosines(first[row] - middle[row], second[row] - middle[row])
        for row, name in enumerate(names):
            regression = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 5, 11)))
            regression.fit(features(self.train[0][row], self.train[1][row]), self.train_scores)
            rows[f"{name}, ridge"] = regression.predict(features(first[row], second[row]))
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
        random.append({name: correlation(row, scores) for name, row in rows.items()})
    print(f"{len(scores):,} pairs; 100 x Spearman's correlation; {len(random)} seeds of random weights\n")
    print("| | trained | random weights |\n|---|---|---|")
    for name, row in Pairs(trained, tokenizer, train, test).rows().items():
        found = [each[name] for each in random]
        print(f"| {name} | {with_error(row, scores)} | {np.mean(found):.1f} ± {np.std(found, ddof=1):.1f} |")
    print(f"| words in both | {with_error(shared_words(*test[:2]), scores)} | |")


if __name__ == "__main__":
    main()
