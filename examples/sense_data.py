"""Reads words with senses from public data in a folder: SemCor 3.0, CoarseWSD-20, and the pairs of WiC.

SemCor       brown1/tagfiles/*, brown2/tagfiles/*: documents of the Brown corpus with WordNet 3.0's senses
             (web.eecs.umich.edu/~mihalcea/downloads.html, Princeton's WordNet licence); all but names is read
CoarseWSD-20 WORD/train.data.txt, ...: 20 nouns in Wikipedia's sentences with two to five senses each
             (github.com/danlou/bert-disambiguation, CC BY-NC 4.0); a line is a position, a tab, and words
WiC          train/train.data.txt, dev/dev.data.txt: a word in two sentences, of one sense or not
             (pilehvar.github.io/wic, CC BY-NC 4.0); a line is: word, part of speech, positions `2-1`, two sentences

The last two have their answers, a line for each, in `*.gold.txt`. Positions count words from 0.
"""

import collections
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer

SEMCOR_WORD = re.compile(r"<(?:wf|punc)([^>]*)>(.*)</(?:wf|punc)>")
KINDS = {"1": "noun", "2": "verb", "3": "adjective", "4": "adverb", "5": "adjective"}
TRAINING, HELD_OUT = 0, 1


class Sense(NamedTuple):
    """A word with its sense: words `[start, end)` of a sentence."""

    document: int  # in CoarseWSD-20 and WiC `TRAINING` or `HELD_OUT`
    sentence: int
    start: int
    end: int
    lemma: str  # with its part of speech, if the data has it
    sense: int  # from 1, the commonest; in WiC 1 for both words of a pair of one sense, else 2


Senses = tuple[list[list[str]], list[Sense]]


def read_semcor(folder: Path, documents: int | None) -> Senses:
    """The sentences of SemCor's files, or of some drawn with a fixed seed, and the words with WordNet's senses."""
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


def read_coarsewsd(folder: Path, rows: int | None) -> Senses:
    """The sentences of CoarseWSD-20, at most `rows` of each word in each part, and their one word with a sense."""
    folders = sorted(path.parent for path in folder.glob("*/train.data.txt"))
    if not folders:
        raise typer.BadParameter(f"expected CoarseWSD-20's files WORD/train.data.txt in {folder}, found none.")
    sentences: list[list[str]] = []
    senses = []
    for word in folders:
        parts = [list(_lines(word / part, 2, rows)) for part in ("train", "test")]
        counts = collections.Counter(answer for _, answer, _ in parts[TRAINING])
        frequent = [answer for answer, _ in counts.most_common()]
        for part, lines in enumerate(parts):
            for where, answer, (place, text) in lines:
                sense = 1 + frequent.index(answer) if answer in frequent else 1 + len(frequent)
                words = text.split()
                start = _position(words, place, where)
                senses.append(Sense(part, len(sentences), start, start + 1, word.name, sense))
                sentences.append(words)
    return sentences, senses


def read_wic(folder: Path, rows: int | None) -> Senses:
    """The sentences of WiC's training and development sets, at most `rows` pairs of each; pair i is 2i and 2i + 1."""
    sentences: list[list[str]] = []
    senses = []
    for part, name in enumerate(("train", "dev")):
        for where, answer, (word, kind, places, *texts) in _lines(folder / name / name, 5, rows):
            if answer not in ("T", "F"):
                raise typer.BadParameter(f"expected the answer T or F for {where}, found {answer!r}.")
            for text, place in zip(texts, places.partition("-")[::2], strict=True):
                words = text.split()
                start = _position(words, place, where)
                sense = 1 if answer == "T" else 2
                senses.append(Sense(part, len(sentences), start, start + 1, f"{word} {kind}", sense))
                sentences.append(words)
    return sentences, senses


def _lines(path: Path, columns: int, rows: int | None) -> Iterator[tuple[str, str, list[str]]]:
    """Place, answer and columns of each line of `PATH.data.txt`, or of some drawn with a fixed seed."""
    data, gold = path.with_name(f"{path.name}.data.txt"), path.with_name(f"{path.name}.gold.txt")
    for file in (data, gold):
        if not file.is_file():
            raise typer.BadParameter(f"expected the file {file}, found none.")
    lines, answers = (file.read_text(encoding="utf-8").rstrip("\n").split("\n") for file in (data, gold))
    if len(lines) != len(answers):
        raise typer.BadParameter(f"expected as many lines in {gold} as in {data}, {len(lines)}, found {len(answers)}.")
    for number in sorted(np.random.default_rng(0).permutation(len(lines))[:rows].tolist()):
        where = f"{data}:{number + 1}"
        cells = lines[number].split("\t")
        if len(cells) != columns:
            raise typer.BadParameter(f"expected {columns} columns with tabs between in {where}, found {len(cells)}.")
        yield where, answers[number].strip(), cells


def _position(words: list[str], place: str, where: str) -> int:
    """The position that a line gives, as a number of one of its words."""
    if not place.isdecimal() or int(place) >= len(words):
        raise typer.BadParameter(
            f"expected the position of a word, 0 to {len(words) - 1}, in {where}, found {place!r}."
        )
    return int(place)
