"""What each layer encodes about parts of speech: a linear probe on frozen vectors (Peters et al. 2018, §5.3, table 6).

A logistic regression predicts the universal part of speech from a word's vector. It learns from the training part of a
treebank, and the accuracy is that on the development part; for the model, and for its architecture with random weights.

    python benchmarks/probe.py MODEL TRAIN.conllu.gz DEV.conllu.gz [--seeds 1 2 3]
"""

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from elmo_hf.loading import load_complete, model_folder
from elmo_hf.model.modeling_elmo import ElmoModel
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer


def read_tagged(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Words and parts of speech of each sentence of a CoNLL-U file."""
    words: list[str] = []
    tags: list[str] = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            columns = line.rstrip("\n").split("\t")
            if columns[0].isdigit():
                words.append(columns[1])
                tags.append(columns[3])
            elif not line.strip() and words:
                yield words, tags
                words, tags = [], []


@torch.no_grad()
def vectors(model: ElmoModel, tokenizer: ElmoTokenizer, sentences: list[list[str]]) -> np.ndarray:
    """`(L + 1, words, 2P)`: each word's vector in each layer, in text order."""
    order = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
    found: list[np.ndarray] = [np.empty(0)] * len(sentences)
    for start in range(0, len(order), 64):
        chosen = order[start : start + 64]
        inputs = tokenizer(
            [sentences[index] for index in chosen], is_split_into_words=True, padding=True, return_tensors="pt"
        )
        layers = torch.stack(model(**inputs, output_hidden_states=True).hidden_states).numpy()
        for row, index in enumerate(chosen):
            found[index] = layers[:, row, 1 : len(sentences[index]) + 1]
    return np.concatenate(found, axis=1)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or tiny")
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="seeds of the random weights")
    arguments = parser.parse_args()
    folder = model_folder(arguments.model)
    tokenizer = ElmoTokenizer.from_pretrained(folder)
    trained = load_complete(folder)
    models = {"trained": trained}
    for seed in arguments.seeds:
        torch.manual_seed(seed)
        models[f"random weights, seed {seed}"] = ElmoModel(trained.config).eval()
    train, dev = (list(read_tagged(path)) for path in (arguments.train, arguments.dev))
    tags = {name: [tag for _, tags in part for tag in tags] for name, part in (("train", train), ("dev", dev))}
    print(f"{len(tags['train']):,} words to learn from, {len(tags['dev']):,} to test on")
    print(f"{'accuracy by layer':28}" + "".join(f"{layer:>9}" for layer in range(trained.config.num_hidden_layers + 1)))
    for name, model in models.items():
        train_vectors, dev_vectors = (vectors(model, tokenizer, [words for words, _ in part]) for part in (train, dev))
        accuracies = []
        for train_layer, dev_layer in zip(train_vectors, dev_vectors, strict=True):
            scaler = StandardScaler().fit(train_layer)
            probe = LogisticRegression(max_iter=100).fit(scaler.transform(train_layer), tags["train"])
            accuracies.append(probe.score(scaler.transform(dev_layer), tags["dev"]))
        print(f"{name:28}" + "".join(f"{accuracy:9.2%}" for accuracy in accuracies), flush=True)


if __name__ == "__main__":
    main()
