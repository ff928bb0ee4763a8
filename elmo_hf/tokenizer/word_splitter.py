"""Splits raw text into words, as the training text of ELMo models was split.

The official models read the One Billion Word corpus, tokenised like the Penn Treebank: it splits off punctuation and
English clitics (`do n't`, `Smith 's`, `can not`) and keeps hyphenated words whole. `PTB` is an ordered list of word
patterns: at each place in the text, the first pattern that matches is the next word, and only white space separates
words. TF-Hub's default signature splits on white space alone.

Deliberate differences from the Treebank's `tokenizer.sed`: the text never changes (quotes stay as they are), so every
word has its character offsets; a full stop before any white space is split off, not only at the end of the text;
web and mail addresses, file names, emoticons and numbers such as `7:45` stay whole.
"""

from collections.abc import Callable, Iterable
from functools import cache

from tokenizers import Regex, pre_tokenizers

from ..model.configuration_elmo import require

_LETTER = r"[\p{L}\p{M}\p{N}_]"
_END = rf"(?!{_LETTER})"
_APOSTROPHE = "['’]"
_ABBREVIATIONS = (
    "Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|Ft|Mt|Sen|Rep|Gov|Gen|Col|Capt|Lt|Sgt|Maj|Rev|Hon|Inc|Corp|Ltd|Co|Bros|No|Nos|vs|etc"
    "|al|fig|vol|pp|Ave|Blvd|Rd|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec"
)
_FILE_SUFFIXES = "html?|pdf|docx?|xlsx?|txt|jpe?g|gif|png|zip"

# Tried in this order. The second pattern matches most words, which saves a third of the running time. The parts of
# addresses have the length limits of real ones, because without a limit long text without blanks takes quadratic time.
PTB = (
    rf"(?i:can(?=not{_END})|(?:gon|wan)(?=na{_END})|got(?=ta{_END}))",  # can not, gon na, wan na, got ta
    r"\p{L}+(?=[\s,;?!)]|\z)",  # a plain word
    rf"(?i:n{_APOSTROPHE}t){_END}",  # n't
    rf"\p{{L}}+?(?=(?i:n{_APOSTROPHE}t){_END})",  # do, before n't
    rf"{_APOSTROPHE}(?i:s|m|d|re|ve|ll){_END}",  # 's, 're
    r"(?i:https?://|ftp://|www\.)[^\s<>\"]*[\p{L}\p{N}/=_-]",  # web addresses
    r"[\p{L}\p{N}._+-]{1,64}@[\p{L}\p{N}-]+(?:\.[\p{L}\p{N}-]+)+",  # mail addresses
    rf"(?:[\p{{L}}\p{{N}}-]{{1,63}}\.){{1,8}}(?i:com|org|net|edu|gov|{_FILE_SUFFIXES})(?![\p{{L}}\p{{N}}])(?:/\S*[\p{{L}}\p{{N}}/])?",
    r"(?:\p{L}\.){2,}(?!\p{L})",  # U.S., i.e.
    rf"(?:{_ABBREVIATIONS}|\p{{Lu}})\.(?=\s+\S)",  # Mr., J.
    r"(?<!\S)[:;=8][-'^]?[()DPpO/\\|\]\[](?!\S)",  # emoticons
    r"\p{N}+(?:[.,:/]\p{N}+)+",  # 3,500.50 and 7:45
    rf"(?:\p{{Lu}}{_APOSTROPHE}(?=\p{{Lu}}))?{_LETTER}+(?:-{_LETTER}+)*",  # well-known, O'Brien
    r"\.{2,}|-{2,}|[!?]{2,}|\*{2,}|={2,}|_{2,}|~{2,}|#{2,}|\+{2,}|<{2,}|>{2,}",  # ... -- ?!
    r"\S\p{M}*",  # any other character
)
# Compiled once. Tokenizers may share a `Regex`, which cannot change, but not a `Split`, which can.
_ptb_regex = cache(lambda: Regex("|".join(PTB)))

WORD_SPLITTERS = {
    "ptb": lambda: pre_tokenizers.Split(_ptb_regex(), behavior="removed", invert=True),
    "whitespace": pre_tokenizers.WhitespaceSplit,
}


def make_word_splitter(name: str) -> pre_tokenizers.PreTokenizer:
    """Builds the Rust pre-tokenizer with a name of `WORD_SPLITTERS`."""
    return WORD_SPLITTERS[name]()


def split_by(split: Callable[[str], Iterable[str]], text: str) -> list[tuple[str, tuple[int, int]]]:
    """Words from a user's function, with their offsets; raises ValueError if they are not the text's words in order."""
    pieces: list[tuple[str, tuple[int, int]]] = []
    for word in split(text):
        end = pieces[-1][1][1] if pieces else 0
        start = text.find(word, end)
        require(start >= 0, "word_splitter", "a function that returns a text's words, unchanged and in order", word)
        if word.strip():  # some functions return blanks too
            pieces.append((word, (start, start + len(word))))
    return pieces
