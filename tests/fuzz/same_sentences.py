"""The same sentences written in every format, under every suffix and encoding: what is read is equal, or refused.

    python -m tests.fuzz.same_sentences --count 20000

Every input is written as a program would write it, so nothing in it is damaged: a reading that differs is wrong. A
format that cannot hold some sentences, such as lines of text a line feed, is not written. A suffix may say another
format than the content's; then the content must be read as what it is, or refused, unless the reader is told nothing
and cannot know better, which `allowed` lists.
"""

import argparse
import csv
import gzip
import io
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from elmo_hf.text.formats import SUFFIXES_OF
from elmo_hf.text.notes import logger
from elmo_hf.text.sentences import read_sentences

Sentences = list[Any]

# Words with what readers may take for something else, in letters of several scripts.
WORDS = (
    *(
        "The",
        "old",
        "sailor",
        "slept",
        "a",
        "I",
        "O",
        "naïve",
        "Größe",
        "don't",
        "Mr.",
        "U.S.",
        "3",
        "007",
        "1,000",
        "NA",
    ),
    *(
        '"',
        "''",
        "``",
        "(",
        "[",
        "]",
        "{",
        "}",
        "#",
        ">",
        "-",
        "--",
        "*",
        ";",
        ":",
        "|",
        "@-@",
        "<unk>",
        "null",
        "true",
    ),
    *("“no”", "doesn’t", "–", "…", "日本", "привет", "été", "text", "O'Neil", '"No!"', "B-PER", "[1]"),
)
MARKS = (".", ".", "!", "?", " .", "")
LETTERS = "ACDEFGHIKLMNPQRSTVWY"
ENCODINGS = ("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1", "cp1251")
ENDS = ("\n", "\n", "\n", "\r\n", "\r")
LABELS = ("O", "B-PER", "I-PER")
TAGS = ("NN", "VB", "DT", "JJ")
# Words that a file of tags begins with; fewer tags may be words of a text.
TAGGED = (("and", "CC"), (".", "."), ("so", "RB"), ("it", "PRP"))
OTHER_SUFFIXES = (".txt", ".text", ".train", ".dat", ".corpus", "")


class Written(NamedTuple):
    """A file as a program writes it: its format, its content as text or bytes, and the sentences in it."""

    input_format: str
    content: str | bytes
    sentences: Sentences


def words_of(dice: random.Random) -> list[str]:
    return [dice.choice(WORDS) for _ in range(dice.randrange(1, 9))]


def texts_of(dice: random.Random) -> list[str]:
    return [" ".join(words_of(dice)) + dice.choice(MARKS) for _ in range(dice.randrange(1, 7))]


def as_text(dice: random.Random) -> Written:
    texts = texts_of(dice)
    if dice.random() < 0.2:
        texts.insert(dice.randrange(len(texts)), "")
    return Written("text", "".join(f"{text}\n" for text in texts), texts)


def as_json(dice: random.Random) -> Written:
    values: Sentences = texts_of(dice) if dice.random() < 0.5 else [words_of(dice) for _ in range(3)]
    key = dice.choice(["words", "tokens", "text", "sentence"])
    objects = [{"id": number, key: value} for number, value in enumerate(values)]
    is_ascii = dice.random() < 0.5
    kind = dice.randrange(3)
    if kind == 0:
        lines = [json.dumps(row, ensure_ascii=is_ascii) for row in objects]
        return Written("jsonl", "".join(f"{line}\n" for line in lines), values)
    return Written("jsonl", json.dumps(objects, indent=dice.choice([None, 1, 2]), ensure_ascii=is_ascii), values)


def as_table(dice: random.Random) -> Written:
    texts = texts_of(dice)
    if dice.random() < 0.3:
        texts = [text.replace(" ", dice.choice(["\n", "\t", ", ", "; ", " "]), 1) for text in texts]
    stream = io.StringIO()
    separator = dice.choice([",", ",", "\t", ";"])
    quoting = dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(stream, delimiter=separator, quoting=quoting, lineterminator="\n")
    writer.writerow(["id", "text", "label"])
    writer.writerows([number, text, dice.choice(["good", "bad"])] for number, text in enumerate(texts, 1))
    return Written("table", stream.getvalue(), texts)


def as_letters(dice: random.Random) -> Written:
    """A table with tabs in which nothing is quoted, as many programs write it."""
    texts = texts_of(dice)
    rows = [f"{number}\t{text}\tgood\n" for number, text in enumerate(texts, 1)]
    return Written("letters", "id\ttext\tlabel\n" + "".join(rows), texts)


def as_lists(dice: random.Random) -> Written:
    """A table with lists as text, as pandas writes them."""
    lists = [words_of(dice) for _ in range(dice.randrange(1, 5))]
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([["id", "tokens"], *enumerate(lists)])
    return Written("table", stream.getvalue(), lists)


def as_conllu(dice: random.Random) -> Written:
    sentences = [words_of(dice) for _ in range(dice.randrange(1, 5))]
    blocks = []
    for words in sentences:
        lines = [f"# text = {' '.join(words)}"]
        if len(words) > 1:
            lines.append(f"1-2\t{words[0]}{words[1]}" + "\t_" * 8)
        lines += [f"{number}\t{word}" + "\t_" * 8 for number, word in enumerate(words, 1)]
        blocks.append("".join(f"{line}\n" for line in lines))
    return Written("conllu", dice.choice(["\n", " \n"]).join(blocks) + "\n", sentences)


def as_columns(dice: random.Random) -> Written:
    sentences = [words_of(dice) for _ in range(dice.randrange(1, 5))]
    sentences[0] += ["and", "."]  # one line alone is a text of some words
    separator = dice.choice([" ", "\t"])
    middle = dice.choice([(), ("NN",), ("NN", "I-NP")])
    blocks = []
    for words in sentences:
        labels = ["O" if word in ("and", ".") else dice.choice(LABELS) for word in words]
        rows = (separator.join((word, *middle, label)) for word, label in zip(words, labels, strict=True))
        blocks.append("".join(f"{row}\n" for row in rows))
    start = f"-DOCSTART-{separator}" + separator.join((*middle, "O")) + "\n\n" if dice.random() < 0.5 else ""
    return Written("conll", start + "\n".join(blocks), sentences)


def as_tags(dice: random.Random) -> Written:
    """Words with parts of speech, which have no label `O`."""
    sentences = [words_of(dice) for _ in range(dice.randrange(0, 4))]
    separator = dice.choice([" ", "\t"])
    blocks = [[separator.join(pair) for pair in TAGGED]]
    blocks += [[f"{word}{separator}{dice.choice(TAGS)}" for word in words] for words in sentences]
    lines = "\n\n".join("\n".join(block) for block in blocks)
    return Written("conll", f"{lines}\n", [[word for word, _ in TAGGED], *sentences])


def as_couples(dice: random.Random) -> Written:
    """A text with two words in each line, such as a poem, with blank lines between verses."""
    words = [word for word in WORDS if word not in LABELS]
    texts = [" ".join(dice.sample(words, 2)) for _ in range(dice.randrange(2, 9))]
    if dice.random() < 0.5:
        texts.insert(dice.randrange(1, len(texts)), "")
    return Written("text", "".join(f"{text}\n" for text in texts), texts)


def as_fasta(dice: random.Random) -> Written:
    proteins = [[dice.choice(LETTERS) for _ in range(dice.randrange(1, 90))] for _ in range(dice.randrange(1, 5))]
    records = []
    for number, protein in enumerate(proteins):
        residues = "".join(protein)
        lines = [residues[place : place + 60] for place in range(0, len(residues), 60)]
        records.append(f">sp|P{number}|NAME a protein\n" + "".join(f"{line}\n" for line in lines))
    return Written("fasta", "".join(records), proteins)


def as_parquet(dice: random.Random) -> Written:
    values: Sentences = texts_of(dice) if dice.random() < 0.5 else [words_of(dice) for _ in range(3)]
    stream = io.BytesIO()
    pq.write_table(pa.table({"id": range(len(values)), "text": values}), stream)
    return Written("parquet", stream.getvalue(), values)


WRITERS: tuple[Callable[[random.Random], Written], ...] = (
    *(
        as_text,
        as_json,
        as_table,
        as_letters,
        as_lists,
        as_conllu,
        as_columns,
        as_tags,
        as_couples,
        as_fasta,
        as_parquet,
    ),
)
# The suffixes under which a writer's format is not recognised for sure, so that another reading is no fault.
SUFFIXES: dict[str, tuple[str, ...]] = {
    **SUFFIXES_OF,
    "text": (".txt", ".text", ".tok", ""),
    "letters": (".tsv", ".tab"),
}


def encoded(content: str, encoding: str, end: str) -> bytes | None:
    """The bytes of a text with other line ends, or None if the encoding lacks a character."""
    try:
        return content.replace("\n", end).encode(encoding)
    except UnicodeEncodeError:
        return None


def fault_of(seed: str, folder: Path) -> tuple[str, str]:
    """What came of one input: `equal`, `refused`, `not written`, or `wrong`; and where it was.

    The file has a suffix of its format, any other suffix, or another format's; the reader is told the encoding if it is
    not Unicode with a mark or UTF-8, and the format in a fifth of the cases.
    """
    dice = random.Random(seed)
    written = dice.choice(WRITERS)(dice)
    encoding = dice.choice(ENCODINGS)
    end = dice.choice(ENDS)
    suffix = dice.choice(SUFFIXES[written.input_format] if dice.random() < 0.6 else OTHER_SUFFIXES)
    content = written.content
    if isinstance(content, str):
        if end == "\r" and (content.count("\n") < 2 or any("\n" in text for text in written.sentences)):
            end = "\n"
        if end != "\n" and any("\n" in text for text in written.sentences):
            end = "\n"
        bytes_ = encoded(content, encoding, end)
        if bytes_ is None:
            return "not written", encoding
    else:
        bytes_ = content
        encoding = "utf-8"
    if dice.random() < 0.2:
        bytes_ = gzip.compress(bytes_)
        suffix += dice.choice(["", ".gz"])
    path = folder / f"x{suffix}"
    path.write_bytes(bytes_)
    options: dict[str, Any] = {}
    if encoding not in ("utf-8", "utf-8-sig", "utf-16", "utf-32") or dice.random() < 0.3:
        options["encoding"] = encoding
    if dice.random() < 0.2:
        options["input_format"] = "table" if written.input_format == "letters" else written.input_format
    place = f"{written.input_format} in {path.name}, {encoding}, {end!r}, {options}"
    try:
        sentences = [
            sentence if isinstance(sentence, str) else list(sentence) for sentence in read_sentences(path, **options)
        ]
    except ValueError as error:
        return "refused", f"{place}: {error}"
    finally:
        path.unlink()
    if sentences == written.sentences:
        return "equal", place
    return "wrong", f"{place}\n    written {written.sentences!r:.300}\n    read    {sentences!r:.300}"


def run(count: int, seed: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """The number, the kind and the place of what came of each input."""
    for number in range(count):
        yield f"{seed}:{number}", *fault_of(f"{seed}:{number}", folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs inputs and prints how many were read equal, refused and read wrong; 1 if there was a wrong one."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.same_sentences")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--show", type=int, default=5, help="how many refusals to show")
    parsed = parser.parse_args(arguments)
    logger.setLevel("ERROR")
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, kind, place in run(parsed.count, parsed.seed, Path(folder)):
            kinds[kind] += 1
            if kind == "wrong" or (kind == "refused" and kinds[kind] <= parsed.show):
                print(f"{kind} {name}: {place}")  # noqa: T201
    print(dict(kinds))  # noqa: T201
    return int(kinds["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
