"""Scores of documents: each sentence after all that its document has on the side that was read.

    forward     p(w_t | the sentences before it in the document, and the words before it)
    backward    p(w_t | the sentences behind it in the document, and the words behind it)

The state is zero at the start of each document and carried from sentence to sentence. Every prediction is scored.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from .corpus import Corpus
from .pretraining import ElmoForPreTraining
from .scoring import Progress, Scores, score_carried


def score_documents(
    model: ElmoForPreTraining, corpus: Corpus, documents: Sequence[int], progress: Progress = lambda count: None
) -> Scores:
    """Scores a corpus document by document in evaluation mode.

    Args:
        model: the language models.
        corpus: the sentences of all documents, in order.
        documents: for each sentence, the number of its document; those of one document follow each other.
        progress: gets the number of forward predictions after each window.
    """
    found, first = [], 0
    for _, group in groupby(documents):
        last = first + len(list(group))
        starts = corpus.starts[first : last + 1]
        part = replace(corpus, words=corpus.words[starts[0] : starts[-1]], starts=starts - starts[0])
        found.append(score_carried(model, part, 1, progress))
        first = last
    nothing = np.zeros(0, dtype=np.float32)
    forward = np.concatenate([nothing, *(scores.forward for scores in found)])
    backward = np.concatenate([nothing, *(scores.backward for scores in found)])
    return Scores(forward, backward, corpus.starts + np.arange(len(corpus) + 1))
