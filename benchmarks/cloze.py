"""How well gaps are filled: one word of every sentence, from each direction and from both.

    python benchmarks/cloze.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz --model tiny

The word is drawn among those that the softmax knows. The table has the share of gaps whose right word comes first, and
the cost of the right word, -ln p, on average. The last line reads the sentences with a second gap one to three words
before the first.
"""

import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from timing import print_table
from torch import Tensor

from elmo_hf.folder.loading import load_language_models
from elmo_hf.language_model.cloze import gap_log_probs
from elmo_hf.text.sentences import read_sentences


def main(
    corpus: Annotated[Path, typer.Argument(help="CoNLL-U, or text with words between blanks.")],
    model: Annotated[str, typer.Option(help="A folder with a softmax, or tiny.")] = "tiny",
    sentences: Annotated[int, typer.Option(help="Count of sentences, from the first that are long enough.")] = 300,
    seed: Annotated[int, typer.Option(help="Of the places.")] = 0,
) -> None:
    """Fill the gaps and print a table."""
    language_models, tokenizer = load_language_models(model)
    unknown = tokenizer.word_classes(["<UNK>"])[0]
    generator = random.Random(seed)
    is_first: dict[str, list[bool]] = defaultdict(list)
    costs: dict[str, list[float]] = defaultdict(list)
    for words in read_sentences(corpus):
        words = words.split() if isinstance(words, str) else list(words)
        classes = tokenizer.word_classes(words)
        places = [place for place, word_class in enumerate(classes) if word_class != unknown and place >= 3]
        if not places:
            continue
        place = generator.choice(places)
        log_probs = gap_log_probs(language_models, tokenizer, words, [place])[:, 0]
        second = [*words]
        second[place - generator.randint(1, 3)] = "___"
        answers: dict[str, Tensor] = dict(zip(("forward", "backward"), log_probs, strict=False))
        answers["both"] = log_probs.sum(dim=0).log_softmax(dim=-1)
        answers["forward, a second gap"] = gap_log_probs(language_models, tokenizer, second, [place])[0, 0]
        right = classes[place]
        for name, answer in answers.items():
            is_first[name].append(answer.argmax().item() == right)
            costs[name].append(-answer[right].item())
        if len(costs["both"]) == sentences:
            break
    rows = [[name, f"{fmean(is_first[name]):.1%}", f"{fmean(costs[name]):.2f}"] for name in costs]
    print(f"{len(costs['both'])} gaps")
    print_table(["read", "right word first", "nats"], rows)


if __name__ == "__main__":
    typer.run(main)
