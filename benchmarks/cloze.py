"""How well gaps are filled: one word of every sentence, from each direction and from both.

    python benchmarks/cloze.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-dev.conllu.gz --model tiny

The word is drawn among those that the softmax knows. The table has the share of gaps whose right word comes first, and
the cost of the right word, -ln p, on average. The last line reads the sentences with a second gap one to three words
before the first.
"""

import random
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
    found: dict[str, list[tuple[bool, float]]] = {}
    for words in read_sentences(corpus):
        words = words.split() if isinstance(words, str) else list(words)
        classes = tokenizer.word_classes(words)
        places = [place for place, each in enumerate(classes) if each != unknown and place >= 3]
        if not places:
            continue
        place = generator.choice(places)
        log_probs = gap_log_probs(language_models, tokenizer, words, [place])[:, 0]
        second = [*words]
        second[place - generator.randint(1, 3)] = "___"
        answers: dict[str, Tensor] = dict(zip(("forward", "backward"), log_probs, strict=False))
        answers["both"] = log_probs.sum(dim=0).log_softmax(dim=-1)
        answers["forward, a second gap"] = gap_log_probs(language_models, tokenizer, second, [place])[0, 0]
        for name, each in answers.items():
            found.setdefault(name, []).append((each.argmax().item() == classes[place], -each[classes[place]].item()))
        if len(found["both"]) == sentences:
            break
    rows = [
        [name, f"{fmean(first for first, _ in each):.1%}", f"{fmean(cost for _, cost in each):.2f}"]
        for name, each in found.items()
    ]
    print(f"{len(found['both'])} gaps")
    print_table(["read", "right word first", "nats"], rows)


if __name__ == "__main__":
    typer.run(main)
