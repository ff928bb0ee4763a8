"""The agreement of `word_splitter="ptb"` with a treebank: precision, recall and F1 of word spans in raw text.

    python benchmarks/word_splitting.py $ELMO_HF_DATA/ud_english_ewt/en_ewt-ud-test.conllu.gz

A word is found if its first and last characters have the positions of a gold word's, not counting white space.
Multiword tokens of the treebank are split (`do n't`).
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from elmo_hf.model.tokenization_elmo import make_word_splitter


def sentences(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Raw text and words of each CoNLL-U sentence, with multiword tokens split (`do n't`)."""
    text, words = "", []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if line.startswith("# text = "):
                text, words = line.rstrip("\n").removeprefix("# text = "), []
            elif fields == [""]:
                yield text, words
            elif fields[0].isdecimal():
                words.append(fields[1])


def spans(words: list[str]) -> set[tuple[int, int]]:
    """Start and end of each word, in characters, not counting white space."""
    result, start = set(), 0
    for word in words:
        end = start + len("".join(word.split()))
        result.add((start, end))
        start = end
    return result


class Agreement(NamedTuple):
    """Counts of words: found and in the treebank; found; in the treebank."""

    num_right: int
    num_found: int
    num_gold: int

    @property
    def precision(self) -> float:
        """Share of the words found that are right."""
        return self.num_right / self.num_found

    @property
    def recall(self) -> float:
        """Share of the treebank's words that were found."""
        return self.num_right / self.num_gold

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.precision * self.recall / (self.precision + self.recall)


def measure(path: Path) -> Agreement:
    """Splits the raw text of every sentence of a treebank and compares the words by position."""
    splitter = make_word_splitter("ptb")
    num_right = 0
    num_found = 0
    num_gold = 0
    for text, gold_words in sentences(path):
        assert "".join(gold_words).replace(" ", "") == "".join(text.split())
        gold = spans(gold_words)
        found = spans([word for word, _ in splitter.pre_tokenize_str(text)])
        num_right += len(gold & found)
        num_found += len(found)
        num_gold += len(gold)
    return Agreement(num_right, num_found, num_gold)


def main(
    treebanks: Annotated[list[Path], typer.Argument(help="CoNLL-U files, gzipped, with `# text = ` lines.")],
) -> None:
    """Measure and print a table."""
    print("| | gold words | precision | recall | F1 |\n|---|---|---|---|---|")
    for path in treebanks:
        agreement = measure(path)
        scores = f"{agreement.precision:.4f} | {agreement.recall:.4f} | {agreement.f1:.4f}"
        print(f"| {path.name} | {agreement.num_gold:,} | {scores} |")


if __name__ == "__main__":
    typer.run(main)
