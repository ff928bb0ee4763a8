"""Compares an ELMo's language models with a word bigram model with interpolated Kneser-Ney smoothing.

    p(w | v) = max(c(v w) - D, 0) / c(v) + D n(v) / c(v) . q(w),    q(w) = (m(w) + 1 / V) / (M + 1)

c(v w) counts pairs, n(v) the distinct words after v, m(w) the distinct words before w, M the distinct pairs, V the
vocabulary's words; D is Kneser and Ney's n_1 / (n_1 + 2 n_2), from pairs seen once and twice. For both models, words
outside the vocabulary are `<UNK>` and boundaries are predicted. The backward bigram reads sentences from their ends.

    python benchmarks/bigram.py MODEL TRAIN.txt TEST.txt
"""

import argparse
import math
from pathlib import Path

import numpy as np

from elmo_hf.language_model.corpus import Corpus
from elmo_hf.language_model.pretraining import ElmoForPreTraining
from elmo_hf.language_model.scoring import score_carried, score_from_zero
from elmo_hf.language_model.streams import Stream
from elmo_hf.loading import load_complete, model_folder
from elmo_hf.tokenizer.tokenization_elmo import ElmoTokenizer
from elmo_hf.training.corpora import read_corpora


def pairs(corpus: Corpus, is_backward: bool) -> np.ndarray:
    """`(predictions, 2)`, in reading order: the class of the previous word and of the predicted word."""
    window = Stream(corpus, 1, is_backward=is_backward).take(corpus.num_predictions)
    found = np.stack([corpus.classes[window.inputs[0]], corpus.classes[window.targets[0]]], axis=1)
    return found[::-1] if is_backward else found


def bigram_perplexity(train: np.ndarray, test: np.ndarray, num_words: int) -> float:
    """Perplexity of the test pairs under the bigram model of the training pairs."""
    distinct, counts = np.unique(train, axis=0, return_counts=True)
    count_of = dict(zip(map(tuple, distinct.tolist()), counts.tolist(), strict=True))
    before = np.bincount(train[:, 0], minlength=num_words)
    words_after = np.bincount(distinct[:, 0], minlength=num_words)
    words_before = np.bincount(distinct[:, 1], minlength=num_words)
    once, twice = (counts == 1).sum(), (counts == 2).sum()
    discount = once / (once + 2 * twice)
    continuation = (words_before + 1 / num_words) / (len(distinct) + 1)
    total = 0.0
    for v, w in test.tolist():
        if before[v] == 0:
            probability = continuation[w]
        else:
            seen = max(count_of.get((v, w), 0) - discount, 0)
            probability = (seen + discount * words_after[v] * continuation[w]) / before[v]
        total -= math.log(probability)
    return math.exp(total / len(test))


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, or tiny")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    arguments = parser.parse_args()
    folder = model_folder(arguments.model)
    model, tokenizer = load_complete(folder, ElmoForPreTraining), ElmoTokenizer.from_pretrained(folder)
    train, test = (
        Corpus.from_sentences(read_corpora([str(path)]), tokenizer) for path in (arguments.train, arguments.test)
    )
    assert tokenizer.num_word_classes is not None
    bigrams = [
        bigram_perplexity(pairs(train, backward), pairs(test, backward), tokenizer.num_word_classes)
        for backward in (False, True)
    ]
    unknown = test.share_of_class(int(tokenizer.word_classes(["<UNK>"])[0]))
    print(f"{test.num_words:,} held-out words, {unknown:.2%} unknown, {tokenizer.num_word_classes:,} in the vocabulary")
    print(f"{'perplexity':24}{'forward':>10}{'backward':>10}")
    print(f"{'bigram, Kneser-Ney':24}{bigrams[0]:10.2f}{bigrams[1]:10.2f}")
    for name, scores in (("from zero state", score_from_zero(model, test)), ("carried", score_carried(model, test))):
        ours = scores.forward_perplexity, scores.backward_perplexity
        below = (1 - score / bigram for score, bigram in zip(ours, bigrams, strict=True))
        print(f"{'ELMo, ' + name:24}{ours[0]:10.2f}{ours[1]:10.2f}   below it by", *(f"{share:.1%}" for share in below))


if __name__ == "__main__":
    main()
