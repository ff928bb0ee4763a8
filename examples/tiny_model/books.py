"""Turns plain-text books into the training text of the shipped model: one sentence per line, words between blanks.

Lines are joined into paragraphs. Paragraphs are cut into sentences after `.`, `!` or `?` before a capital, sentences
into words as in the Penn Treebank, by the package's own splitter. Underscores, which mark italics, are removed.
"""

import csv
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

from elmo_hf.tokenizer.word_splitter import make_word_splitter

BOOKS = Path(__file__).with_name("books.tsv")
# Words before which a full stop does not end a sentence.
ABBREVIATIONS = "Mr|Mrs|Messrs|Dr|St|Esq|Rev|Capt|Col|Gen|Lieut|Hon|Mme|Mlle|No|Vol|vol|Chap|viz|i\\.e|e\\.g|[A-Z]"
SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z])")
ENDS_IN_ABBREVIATION = re.compile(rf"\b(?:{ABBREVIATIONS})\.$")


def list_books(part: str) -> list[str]:
    """Paths, relative to the data folder, of the books in a part: `train`, `dev` or `test`."""
    with BOOKS.open(encoding="utf-8") as file:
        return [row["file"] for row in csv.DictReader(file, delimiter="\t") if row["part"] == part]


def write_sentences(paths: list[Path], output: Path) -> int:
    """Writes the sentences of all books and returns their count."""
    lines = [" ".join(words) + "\n" for path in paths for words in read_book(path)]
    output.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def read_book(path: Path) -> Iterator[list[str]]:
    """Reads a book, plain or gzipped, sentence by sentence."""
    splitter = make_word_splitter("ptb")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:  # the older files of the Gutenberg selection
        text = content.decode("cp1252")
    for paragraph in re.split(r"\n\s*\n", text.replace("_", "")):
        for sentence in split_sentences(" ".join(paragraph.split())):
            words = [word for word, _ in splitter.pre_tokenize_str(sentence)]
            if words:
                yield words


def split_sentences(paragraph: str, abbreviation: re.Pattern[str] = ENDS_IN_ABBREVIATION) -> list[str]:
    """Cuts a paragraph after full stops, exclamation and question marks, but not after abbreviations or initials."""
    sentences, begin = [], 0
    for match in SENTENCE_END.finditer(paragraph):
        if not abbreviation.search(paragraph[begin : match.start()]):
            sentences.append(paragraph[begin : match.end()].strip())
            begin = match.end()
    return [*sentences, paragraph[begin:].strip()]
