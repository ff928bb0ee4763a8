"""Prints how each input is read, for `elmo-hf embed --dry-run`, which writes nothing."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ..text.first_look import LOOKED_AT, Counted
from ..text.formats import SHOWN
from ..text.sentences import Protein, Sentence, reading
from .errors import counted, counted_sentences, say, say_table
from .protein_notes import naming_header_options, note_names
from .split_notes import are_unknown, is_cut, look_at

if TYPE_CHECKING:
    from ..embedding.input_documents import Documents
    from ..public import ElmoTokenizer

# What notes call the input.
TEXT = "the text"
# How many sentences are shown, and how many characters of each.
NUM_SHOWN, WIDTH = 3, 300
# How many unknown or cut words are shown.
NUM_WORDS = 5


@naming_header_options()
def show(documents: "Documents", tokenizer: "ElmoTokenizer", model: str) -> None:
    """Reads all documents, and prints of each its format, its encoding, what is in it, and its first sentences.

    The notes on how the text is split are those of `elmo-hf embed` without `--dry-run`.
    """
    protein_names = documents.names_of_proteins()
    looked_at: list[Sentence] = []
    for name in documents.names:
        with _opened(documents, name) as (facts, sentences):
            beginning = list(islice(sentences, LOOKED_AT - len(looked_at)))
            looked_at += beginning
            all_sentences = Counted(protein_names.give(name, chain(beginning, sentences)))
            first, words = _read(all_sentences, documents.split_into_words, tokenizer)
        rows = [("input", name), *facts, ("holds", counted_sentences(all_sentences.count))]
        rows.append(("words", f"{words.total():,}, {len(words):,} of them different"))
        rows += _of_words(words, tokenizer)
        say_table(rows)
        for number, (protein, shown) in enumerate(first):
            label = f"{number}, {protein}" if protein else str(number)
            say(f"  {label}: {' | '.join(shown)[:WIDTH]}".rstrip())
    look = look_at(TEXT, tokenizer, model, documents.split_into_words)
    look(documents.texts_of(looked_at))
    note_names(protein_names)


@contextmanager
def _opened(documents: "Documents", name: str) -> Iterator[tuple[list[tuple[str, str]], Iterator[Sentence]]]:
    """What is known of a document before it is read, as rows of two cells, and its sentences."""
    from ..embedding.stores import InputFile

    if name in documents.datasets:
        yield [("format", "a dataset"), ("columns", str(documents.column))], documents.sentences(name)
        return
    source: Any = InputFile(name, documents.stream)
    with reading(source, documents.encoding, documents.column, documents.input_format) as file:
        facts = [("format", SHOWN[file.input_format]), ("encoding", file.encoding), ("columns", file.columns)]
        known = [(fact, value) for fact, value in facts if value]
        yield known, file.sentences


def _read(
    sentences: Iterable[Sentence], is_split: bool, tokenizer: "ElmoTokenizer"
) -> tuple[list[tuple[str, list[str]]], Counter[str]]:
    """The first sentences, each with its protein's name or "" and its words; and how often each word occurs in all."""
    first: list[tuple[str, list[str]]] = []
    counts: Counter[str] = Counter()
    for sentence in sentences:
        if isinstance(sentence, str):
            words = sentence.split() if is_split else tokenizer.tokenize(sentence)
        else:
            words = list(sentence)
        counts.update(words)
        if len(first) < NUM_SHOWN:
            name = sentence.name if isinstance(sentence, Protein) else ""
            first.append((name, words))
    return first, counts


def _of_words(counts: Counter[str], tokenizer: "ElmoTokenizer") -> Iterator[tuple[str, str]]:
    """Rows on the words that the model does not know, and on those of which it reads only the beginning."""
    words = list(counts)
    if tokenizer.num_word_classes is not None and words:
        pairs = zip(words, are_unknown(words, tokenizer), strict=True)
        yield "unknown", _shown(counts, [word for word, is_unknown in pairs if is_unknown])
    if tokenizer.token_encoder == "char_cnn":
        yield "cut", _shown(counts, [word for word in words if is_cut(word, tokenizer)])


def _shown(counts: Counter[str], words: list[str]) -> str:
    """How often some words occur, and the most frequent ones."""
    total = sum(counts[word] for word in words)
    frequent = sorted(words, key=counts.__getitem__, reverse=True)[:NUM_WORDS]
    if total == 0:
        return "0"
    return f"{counted(total, 'word')}, such as {', '.join(word[:60] for word in frequent)}"
