"""The notes of commands that may have split a text into the wrong words, and that cut words.

Both mistakes are noted: a text that is split already was split by rules, and raw text was split at blanks, so that
marks are part of its words. No note recommends a split that was not tried: where a model predicts words, both splits of
the text's beginning are compared by their unknown words. If the vocabulary itself was split at blanks, this comparison
says nothing about the text, so then the note is on the vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.first_look import (
    Marks,
    are_single_words,
    are_unsplit,
    are_wrapped,
    have_headers,
    looks_split,
    num_ends,
)
from .errors import counted, say

if TYPE_CHECKING:
    import numpy as np

    from ..public import ElmoTokenizer

# How a text with one word a row is read as sentences, in commands that cannot join rows.
JOIN_ROWS = "Join the words of a sentence in one line or row."
# What to do with proteins that are written without blanks.
SPLIT_RESIDUES = "Write residues with blanks between them (`S E Q`)"
# The effect of each word splitter.
SPLITS = {"whitespace": "at blanks", "ptb": "by Penn Treebank rules"}
# A larger share of unknown words is worth a note; above the second one, with either split, the text seems to be in
# another language than the vocabulary: of German news, 71% of the words are unknown to an English model.
MOST_UNKNOWN = 0.1
MOST_UNKNOWN_OF_LANGUAGE = 1 / 3


def note_lines(name: str, texts: Sequence[str], join: str = JOIN_ROWS) -> None:
    """Prints a note to standard error if most lines of a text are words, parts of a sentence, or several sentences.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text.
        join: a sentence that says how a text with one word a line or row is read.
    """
    if are_single_words(texts):
        say(
            f"Note: most lines or rows of {name} have one word, and each was read as a sentence of its own. {join}",
            is_error=True,
        )
    elif are_wrapped(texts):
        say(
            f"Note: most lines of {name} end within a sentence; each line was read as one. Write one sentence a line, "
            "for example with spaCy's sentencizer, to read whole sentences.",
            is_error=True,
        )
    elif _have_several(texts):
        say(
            f"Note: most lines of {name} have several sentences; each line was read as one. Write one sentence a line, "
            "for example with spaCy's sentencizer, to read them apart.",
            is_error=True,
        )


def note_texts_of_rows(name: str, texts: Sequence[str]) -> None:
    """Prints a note to standard error if most texts that were joined from rows have several sentences."""
    if _have_several(texts):
        say(
            f"Note: most texts of {name} have several sentences; each text was read as one. If a column numbers "
            "sentences, give it as the last --by, to read them apart.",
            is_error=True,
        )


def _have_several(texts: Sequence[str]) -> bool:
    """Whether most texts have an end of a sentence within them."""
    num_with_ends = sum(num_ends(text) > 0 for text in texts)
    return num_with_ends > len(texts) / 2


def note_split_text(name: str, texts: Sequence[str], splitter: str, option: str) -> None:
    """Prints a note to standard error if a text looks split already, but was split by rules.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text.
        splitter: the word splitter that was used.
        option: the command's option to split at blanks.
    """
    if splitter == "ptb" and looks_split(texts):
        say(
            f"Note: {name} looks split into words already; it was split {SPLITS['ptb']}. {option} splits it "
            f"{SPLITS['whitespace']}.",
            is_error=True,
        )


def note_attached_marks(name: str, texts: Sequence[str], splitter: str, advice: str) -> None:
    """Prints a note to standard error if a text was split at blanks, and marks are part of its words.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text.
        splitter: the word splitter that was used.
        advice: sentences that say what to do.
    """
    marks = Marks.of_texts(texts)
    if splitter == "whitespace" and marks.are_attached:
        say(
            f"Note: {marks.share_attached:.0%} of the words at the beginning of {name} end in a mark, such as "
            f"`{marks.example}`, because it was split {SPLITS[splitter]}. {advice}",
            is_error=True,
        )


def note_words_with_marks(name: str, words: Sequence[str], tokenizer: "ElmoTokenizer") -> None:
    """Prints a note to standard error if many words of a list end in a mark, unless those of the model's softmax do."""
    marks = Marks.of(words)
    if marks.are_attached and not predicts_marks(tokenizer):
        say(
            f"Note: {marks.share_attached:.0%} of the words of {name} end in a mark, such as `{marks.example}`. "
            "`elmo-hf vocab TEXT -o WORDS --words ptb` writes the words of a text without such marks.",
            is_error=True,
        )


def predicts_marks(tokenizer: "ElmoTokenizer") -> bool:
    """Whether the words of the softmax look like raw text that was split at blanks; False without a softmax."""
    return Marks.of(tokenizer.predicted_words or []).are_attached


def note_vocabulary(splitter: str, tokenizer: "ElmoTokenizer", command: str) -> None:
    """Prints a note to standard error if a text is split by rules, but the words of the softmax were split at blanks.

    Args:
        splitter: the word splitter of the text.
        tokenizer: the one that knows the words of the softmax.
        command: the command that makes a vocabulary by the rules.
    """
    if _is_vocabulary_at_fault(splitter, tokenizer):
        marks = Marks.of(tokenizer.predicted_words or [])
        say(
            f"Note: the vocabulary looks split {SPLITS['whitespace']}: {marks.share_attached:.0%} of its words end in "
            f"a mark, such as `{marks.example}`. The model's text is split {SPLITS['ptb']}, and so are the words that "
            f"`{command}` writes.",
            is_error=True,
        )


def _is_vocabulary_at_fault(splitter: str, tokenizer: "ElmoTokenizer") -> bool:
    """Whether the model and this text are split by rules, but the words of the softmax were split at blanks."""
    if splitter != "ptb" or tokenizer.word_splitter != "ptb":
        return False
    return predicts_marks(tokenizer)


def note_unknown(name: str, texts: Sequence[str], splitter: str, tokenizer: "ElmoTokenizer") -> None:
    """Prints a note to standard error if many words of a text are unknown: which split of it has fewer.

    If the other split has fewer, the note gives the option for it. A text that looks split already, but was split by
    rules, gets this note too, unless more of its words are unknown at blanks; so does raw text that was split at
    blanks, if fewer are unknown by rules. Where `note_vocabulary` finds fault with the vocabulary, nothing is printed.

    Args:
        name: the text's name.
        texts: its first sentences that are raw text; lists of words have no other split.
        splitter: the word splitter that was used.
        tokenizer: the one that knows the words of the softmax.
    """
    from elmo_hf.language_model.surprisal_table import place_sentences

    if _is_vocabulary_at_fault(splitter, tokenizer):
        return
    words, unknown = {}, {}
    for split in SPLITS:
        words[split] = [word for sentence in place_sentences(texts, split) for word in sentence.words]
        unknown[split] = _share_unknown(words[split], tokenizer)
    (other,) = SPLITS.keys() - {splitter}
    is_better = unknown[other] < unknown[splitter]
    looks_resplit = splitter == "ptb" and looks_split(texts) and words[splitter] != words[other]
    is_resplit = looks_resplit and unknown[other] <= unknown[splitter]
    looks_raw = splitter == "whitespace" and Marks.of_texts(texts).are_attached
    is_raw = looks_raw and is_better
    is_sound = unknown[splitter] <= MOST_UNKNOWN
    if is_sound and not (is_resplit or is_raw):
        return
    looks = f"{name} looks split into words already. " if is_resplit else ""
    note = (
        f"Note: {looks}{unknown[splitter]:.0%} of the words at the beginning of {name} are unknown, split "
        f"{SPLITS[splitter]}, and {unknown[other]:.0%} if split {SPLITS[other]}."
    )
    if is_better or is_resplit:
        note += f" --words {other} splits it {SPLITS[other]}."
    if min(unknown.values()) > MOST_UNKNOWN_OF_LANGUAGE:
        note += (
            " The text may be in another language than the model's vocabulary, or spelled differently, or, in a table, "
            "be another column than that of the sentences (--column NAME)."
        )
    say(note, is_error=True)


def are_unknown(words: Sequence[str], tokenizer: "ElmoTokenizer") -> "np.ndarray":
    """Whether the softmax does not know a word, for each of N words, `(N,)`."""
    from elmo_hf.model.tokenization_elmo import UNKNOWN_WORD

    (unknown_class,) = tokenizer.word_classes([UNKNOWN_WORD])
    return tokenizer.word_classes(words) == unknown_class


def _share_unknown(words: Sequence[str], tokenizer: "ElmoTokenizer") -> float:
    """The share of words that the softmax does not know; 0 for no words."""
    if not words:
        return 0.0
    return float(are_unknown(words, tokenizer).mean())


def look_at(name: str, tokenizer: "ElmoTokenizer", model: str, split_into_words: bool) -> Callable[[list[str]], None]:
    """A function of the first raw texts of an input that prints the notes on how they are read.

    Args:
        name: the input's name.
        tokenizer: the model's.
        model: the model's folder or name.
        split_into_words: whether the command splits the texts at blanks, whatever the tokenizer does.
    """
    from elmo_hf.share.saved_card import reads_residues

    def look(texts: list[str]) -> None:
        if have_headers(texts) and reads_residues(model):
            say(
                f"Note: lines of {name} begin with `>`, as headers of FASTA do, but each line was read as a sentence, "
                f"and the words of {model} are residues of proteins. If it is FASTA, give --input-format fasta.",
                is_error=True,
            )
            return
        if split_into_words:
            note_marks_of_input(name, texts, tokenizer, model, "--split-into-words")
            return
        if are_unsplit(texts) and reads_residues(model):
            say(
                f"Note: most lines or rows of {name} are one word, but the words of {model} are residues of proteins. "
                f"{SPLIT_RESIDUES}, or give FASTA.",
                is_error=True,
            )
            return
        note_lines(name, texts)
        note_split_text(name, texts, tokenizer.word_splitter, "--split-into-words")
        note_marks_of_input(name, texts, tokenizer, model)
        words = [tokenizer.tokenize(text) for text in texts]
        for _ in note_cut(words, tokenizer, " at the beginning"):  # after the last one it prints its note
            pass

    return look


def note_marks_of_input(
    name: str, texts: Sequence[str], tokenizer: "ElmoTokenizer", model: str | Path, option: str | None = None
) -> None:
    """Prints the note of `note_attached_marks` on a model's input, unless the model predicts words with such marks.

    Args:
        name: the input's name.
        texts: its first sentences that are raw text.
        tokenizer: the model's.
        model: the model's folder or name.
        option: the option that splits at blanks; None if the tokenizer splits.
    """
    if predicts_marks(tokenizer):
        return
    splitter = tokenizer.word_splitter if option is None else "whitespace"
    advice = f"Put blanks around marks, as in `late .`, unless {model} was trained on text like this."
    if option is not None and tokenizer.word_splitter == "ptb":
        advice = f"Leave out {option}, and {model} splits it {SPLITS['ptb']}."
    note_attached_marks(name, texts, splitter, advice)


def is_cut(word: str, tokenizer: "ElmoTokenizer") -> bool:
    """Whether a word is longer than the model reads."""
    most = tokenizer.max_word_length - 2
    if 4 * len(word) <= most:  # at most 4 bytes a character
        return False
    letters = word if tokenizer.alphabet == "code_points" else word.encode("utf-8", "ignore")
    return len(letters) > most


def note_cut(texts: Iterable[Sequence[str]], tokenizer: "ElmoTokenizer", where: str = "") -> Iterator[Sequence[str]]:
    """Gives lists of words; after the last list, prints to standard error how many words were cut."""
    total = 0
    cut = 0
    for words in texts:
        total += len(words)
        cut += sum(is_cut(word, tokenizer) for word in words)
        yield words
    if cut and tokenizer.token_encoder == "char_cnn":
        most = tokenizer.max_word_length - 2
        unit = "characters" if tokenizer.alphabet == "code_points" else "bytes"
        note = (
            f"Note: {cut:,} of {counted(total, 'word')}{where} have more than {most} {unit}, of which {most} are read."
        )
        say(
            f"{note} Put blanks between words that have none, such as Chinese words, or residues of proteins.",
            is_error=True,
        )
