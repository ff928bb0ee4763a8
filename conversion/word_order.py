"""Whether a language model finds English sentences likelier than their words in another order.

The comparison of `check.py` takes the options and the arrays of a source as they are, so it cannot see that they are
not those of the training. A trained language model shows it, because a wrong reading of its biLM loses the order of
words:

    R = perplexity of the words of each sentence in alphabetical order / perplexity of the sentences

The table of docs/convert.md has R of two trained models, which are read as they were trained and in wrong ways. With
random weights R is 1. A perplexity above the number of words in the softmax is worse than a guess, whatever R is.

The sentences are English, so a model is asked only if its vocabulary is that of English text: words in the order of
their frequency, or of their first occurrence, begin with such as `the`, and hardly a word of the sentences is missing.
A vocabulary in another order says nothing, and its model is not asked. Neither is a model without a softmax: no measure
of its vectors alone (norms, share of clipped values, cosine of neighbours) told right readings from wrong ones.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from elmo_hf.folder.loading import load_complete, load_tokenizer
from elmo_hf.language_model.scoring import score
from elmo_hf.public import ElmoForPreTraining, ElmoTokenizer

# Frequent words in lower case, which models of all kinds of English text have seen.
ENGLISH_SENTENCES = tuple(
    sentence.split()
    for sentence in (
        "he said that he did not want to go back to the house .",
        "the old man sat in front of the fire and read a book .",
        "it was one of the most important questions of the day .",
        "there is no reason why we should wait for them any longer .",
        "she had been in the city for a few weeks when the war began .",
        "they came to the end of the road before the sun went down .",
        "if you look at the other side of the hill you will see the river .",
        "the children were too young to know what had happened to their father .",
        "most of the people in the town had never seen him before .",
        "at first he could not find the right words to say .",
    )
)
FIRST_ENGLISH_WORDS = frozenset({"the", "of", "and"})
NUM_FIRST_WORDS = 50  # of a vocabulary of English text, among which those are
MOST_MISSING_WORDS = 0.1  # share of the sentences' words
LEAST_RATIO = 6.0  # R of a model that is read as it was trained


def note_on_word_order(folder: Path) -> str | None:
    """A note on an English language model that does not know the order of words, or None.

    Args:
        folder: a folder of ours with a softmax.

    Returns:
        a sentence for the user; None if the model knows the order of words, or cannot be asked.

    Raises:
        ValueError: if the folder cannot be loaded, or the softmax gives NaN.
    """
    tokenizer = load_tokenizer(folder)
    if not is_of_english(tokenizer.predicted_words or []):
        return None
    model = load_complete(folder, ElmoForPreTraining, dtype=torch.float32)
    return compare_word_orders(model, tokenizer)


def is_of_english(vocabulary: Sequence[str]) -> bool:
    """Whether a vocabulary begins with frequent words of English, and has the words of the sentences."""
    if not FIRST_ENGLISH_WORDS.issubset(vocabulary[:NUM_FIRST_WORDS]):
        return False
    words = [word for sentence in ENGLISH_SENTENCES for word in sentence]
    unknown = set(words) - set(vocabulary)
    return sum(word in unknown for word in words) <= MOST_MISSING_WORDS * len(words)


def compare_word_orders(model: ElmoForPreTraining, tokenizer: ElmoTokenizer) -> str | None:
    """A note if the perplexities of the sentences and of their sorted words are not those of a trained model."""
    perplexity = score(model, ENGLISH_SENTENCES, tokenizer).perplexity
    sorted_perplexity = score(model, [sorted(sentence) for sentence in ENGLISH_SENTENCES], tokenizer).perplexity
    num_words = model.config.num_softmax_words
    ratio = sorted_perplexity / perplexity
    if perplexity > num_words:
        finding = f"more than that of a guess among the {num_words:,} words of the softmax"
    elif ratio < LEAST_RATIO:
        finding = (
            f"and their words in alphabetical order one of {sorted_perplexity:,.1f}, {ratio:.1f} times as large, which "
            f"is less than the {LEAST_RATIO:.0f} times that a model of English reaches"
        )
    else:
        return None
    return (
        f"{len(ENGLISH_SENTENCES)} English sentences have a perplexity of {perplexity:,.1f}, {finding}. Either the "
        "model learned little, or its files are not as in its training: compare the options (`activation`, "
        "`cell_clip`, `proj_clip`, `use_skip_connections`), and the vectors of a few sentences, with the program that "
        "trained it."
    )
