"""Keeps the paragraphs that are running English text, cut into sentences and words.

Tables, lists of names, other languages and garbled text have few letters or few function words.
"""

import hashlib
import re
from functools import lru_cache

from english_sentences import split_sentences
from markup import read_paragraphs

from elmo_hf.model.tokenization_elmo import make_word_splitter

# Together these words are about 40 % of any English text, and more than 10 % of any long paragraph.
FUNCTION_WORDS = frozenset(
    [
        "the",
        "of",
        "to",
        "and",
        "in",
        "a",
        "that",
        "is",
        "for",
        "it",
        "on",
        "with",
        "as",
        "was",
        "be",
        "by",
        "this",
        "at",
        "are",
        "we",
        "i",
        "from",
        "have",
        "or",
        "not",
        "you",
        "he",
        "his",
        "they",
        "which",
        "an",
        "will",
        "has",
        "had",
        "but",
        "their",
        "our",
        "my",
        "your",
        "its",
        "were",
        "been",
        "all",
        "would",
        "there",
        "no",
        "who",
        "if",
        "her",
        "she",
        "what",
        "when",
        "so",
        "can",
        "do",
    ]
)
SHORT = 20  # words; shorter paragraphs may be headlines or answers
FEWEST_FUNCTION_WORDS = 0.1
FEWEST_LETTERS = 0.55  # of all characters; a table has more digits and points
LONGEST_WORD = 40
LONGEST_SENTENCE = 150
REPEATABLE = 6  # words; `Thank you very much.` may occur often
LETTERS = re.compile(r"[^\W\d_]+")
BULLET = re.compile(r"^(?:[-–—•*·▪●o]\s+)+")
END = re.compile(r"[.!?:;][\"'”’)\]]*$")
NOT_PRINTED = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f\u00ad\u200b-\u200f\u2028-\u202e\u2060\ud800-\udfff\ufeff\ufffd]"
)
QUOTES = re.compile(r"``|''|,,(?=\w)")
ADDRESS = re.compile(r"\(?\b(?:https?://|www\.)\S+")


def clean(content: bytes, form: str) -> list[tuple[str, list[str]]]:
    """The paragraphs of a file that are kept, in a form that `read_paragraphs` takes.

    Returns:
        for each paragraph a key and its sentences, words between blanks. Keys are equal if paragraphs differ in case,
        digits and punctuation only; the key of a short paragraph is empty.

    Raises:
        ValueError: if the contents are not of this form.
    """
    kept = []
    for paragraph in read_paragraphs(content, form):
        text = tidy(paragraph)
        letters = LETTERS.findall(text)
        if is_text(text, letters):
            sentences = [split_words(sentence) for sentence in split_sentences(text)]
            sensible = [
                " ".join(words)
                for words in sentences
                if words and len(words) <= LONGEST_SENTENCE and max(map(len, words)) <= LONGEST_WORD
            ]
            kept.append((_key(letters), sensible))
    return kept


def _key(letters: list[str]) -> str:
    if len(letters) < REPEATABLE:
        return ""
    return hashlib.blake2b(" ".join(letters).lower().encode("utf-8"), digest_size=8).hexdigest()


def split_words(sentence: str) -> list[str]:
    """Splits as the package's `ptb` splitter does, but faster, because it remembers pieces between blanks."""
    pieces = sentence.split()
    return [word for index, piece in enumerate(pieces, 1) for word in _split_piece(piece, index == len(pieces))]


@lru_cache(maxsize=2**20)
def _split_piece(piece: str, is_last: bool) -> tuple[str, ...]:
    """No word crosses a blank, but a full stop stays with an abbreviation only if something follows."""
    words = [word for word, _ in _splitter.pre_tokenize_str(piece if is_last else f"{piece} x")]
    return tuple(words if is_last else words[:-1])


_splitter = make_word_splitter("ptb")


def tidy(paragraph: str) -> str:
    """Removes characters that are not printed and web addresses; writes typed quotes as quotes."""
    text = QUOTES.sub('"', ADDRESS.sub("", NOT_PRINTED.sub("", paragraph.replace("\u00a0", " "))))
    return BULLET.sub("", " ".join(text.split()))


def is_text(text: str, words: list[str]) -> bool:
    """Whether a paragraph is running English text, or short and not a heading."""
    if len(words) < 2 or text.isupper() or sum(map(len, words)) < FEWEST_LETTERS * len(text):
        return False
    if len(words) < REPEATABLE and not END.search(text):
        return False
    known = sum(word.lower() in FUNCTION_WORDS for word in words)
    return len(words) < SHORT or known >= FEWEST_FUNCTION_WORDS * len(words)
