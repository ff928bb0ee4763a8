"""Which sense does a word have in its sentence? ELMo vectors, against the commonest sense and random weights.

    python examples/word_senses.py                # tiny; or a folder, a Hub name, or a short name

`word_senses.csv` names the senses of 18 words, such as *bank*, in sentences of `space/sentences.txt`; its column `line`
counts from 1. For each seed half of the usages of each sense are known. Any other usage gets the sense, among those of
its word, whose centre is nearest:

    c_s = mean of h over the known usages of sense s,    s(h) = argmax_s cos(h, c_s)

There are two controls. One gives each word its commonest sense of all usages. The other has the same architecture with
new random weights for each seed. Scores are shares of right answers.

Glossary: h the ELMo vector `(2P)` of a word in its sentence, s a sense, c_s its centre, U usages.
"""

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from elmo_hf import ElmoModel, ElmoTokenizer, load

FOLDER = Path(__file__).parent
SEEDS = 5


class Usage(NamedTuple):
    """A word in a sentence, and its sense there."""

    word: str
    sense: str
    sentence: str


class Scores(NamedTuple):
    """The shares of right answers for one seed."""

    commonest: float
    random: float
    trained: float


def read_usages() -> list[Usage]:
    """The usages of `word_senses.csv`."""
    sentences = (FOLDER / "space" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    with (FOLDER / "word_senses.csv").open(encoding="utf-8", newline="") as file:
        return [Usage(row["word"], row["sense"], sentences[int(row["line"]) - 1]) for row in csv.DictReader(file)]


@torch.inference_mode()
def vectors_of(usages: Sequence[Usage], model: ElmoModel, tokenizer: ElmoTokenizer) -> Tensor:
    """The ELMo vector of each usage's word in its sentence, `(U, 2P)`."""
    inputs = tokenizer([usage.sentence for usage in usages], padding=True, return_tensors="pt")
    places = []
    for row, usage in enumerate(usages):
        words = [word.lower() for word in inputs.tokens(row)]
        places.append(words.index(usage.word))
    return model(**inputs).last_hidden_state[torch.arange(len(usages)), places]


def draw_known(usages: Sequence[Usage], seed: int) -> set[int]:
    """The numbers of the usages that are known: half of those of each sense, rounded up."""
    generator = torch.Generator().manual_seed(seed)
    known = set()
    for numbers in _by_sense(usages, range(len(usages))).values():
        order = torch.randperm(len(numbers), generator=generator).tolist()
        known |= {numbers[place] for place in order[: (len(numbers) + 1) // 2]}
    return known


def nearest_senses(vectors: Tensor, usages: Sequence[Usage], known: set[int]) -> dict[int, str]:
    """The sense of the nearest centre for each usage that is not known, by the usage's number."""
    centres: dict[str, dict[str, Tensor]] = defaultdict(dict)
    for (word, sense), numbers in _by_sense(usages, sorted(known)).items():
        centres[word][sense] = vectors[numbers].mean(dim=0)
    answers = {}
    for number, usage in enumerate(usages):
        if number not in known:
            senses = list(centres[usage.word])
            candidates = torch.stack([centres[usage.word][sense] for sense in senses])
            cosines = torch.cosine_similarity(candidates, vectors[number], dim=-1)
            answers[number] = senses[int(cosines.argmax())]
    return answers


def commonest_senses(usages: Sequence[Usage], known: set[int]) -> dict[int, str]:
    """The commonest sense of its word for each usage that is not known, by the usage's number."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for usage in usages:
        counts[usage.word][usage.sense] += 1
    answers = {}
    for number, usage in enumerate(usages):
        if number not in known:
            answers[number] = counts[usage.word].most_common(1)[0][0]
    return answers


def share_right(answers: dict[int, str], usages: Sequence[Usage]) -> float:
    """The share of the answers that are right."""
    right = sum(usages[number].sense == sense for number, sense in answers.items())
    return right / len(answers)


def compare(usages: Sequence[Usage], model: ElmoModel, tokenizer: ElmoTokenizer, seeds: int = SEEDS) -> list[Scores]:
    """The scores of the commonest sense, of random weights and of the model, for each seed."""
    trained = vectors_of(usages, model, tokenizer)
    scores = []
    for seed in range(seeds):
        known = draw_known(usages, seed)
        torch.manual_seed(seed)
        random = vectors_of(usages, ElmoModel(model.config).eval(), tokenizer)
        score = Scores(
            share_right(commonest_senses(usages, known), usages),
            share_right(nearest_senses(random, usages, known), usages),
            share_right(nearest_senses(trained, usages, known), usages),
        )
        scores.append(score)
    return scores


def print_scores(scores: Sequence[Scores], name: str) -> None:
    """Prints a line for each seed, and the means; `name` is the model's."""
    print(f"seed  commonest sense  random weights  {name}")
    for seed, (commonest, random, trained) in enumerate(scores):
        print(f"{seed:4}{commonest:17.2f}{random:16.2f}{trained:{len(name) + 2}.2f}")
    commonest, random, trained = (sum(column) / len(scores) for column in zip(*scores, strict=True))
    print(f"mean{commonest:17.2f}{random:16.2f}{trained:{len(name) + 2}.2f}")


def _by_sense(usages: Sequence[Usage], numbers: Sequence[int]) -> dict[tuple[str, str], list[int]]:
    """The numbers of usages by word and sense, in their order."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in numbers:
        groups[usages[number].word, usages[number].sense].append(number)
    return groups


def main(name: str = "tiny") -> None:
    """Prints the scores of a model and of the controls."""
    model, tokenizer = load(name)
    print_scores(compare(read_usages(), model, tokenizer), Path(name).name)


if __name__ == "__main__":
    main(*sys.argv[1:])
