"""The pipelines of ELMo models, which a saved folder names in its config.

Deliberate difference from the stock pipelines: token classification takes a word's text from its offsets; the stock one
decodes each entry of `input_ids` as one id, where ours is a row of character ids, and guesses from blanks whether it
continues a word, where ours is a whole word.
"""

from typing import Any

import numpy as np
from transformers import FeatureExtractionPipeline, TextClassificationPipeline, TokenClassificationPipeline


class ElmoFeatureExtractionPipeline(FeatureExtractionPipeline):
    """The stock pipeline, under a name that a saved config can hold: a folder that names one pipeline needs no task."""


class ElmoTextClassificationPipeline(TextClassificationPipeline):
    """The stock pipeline, named like the one before."""


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """Labels words."""

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: Any,
        scores: np.ndarray,
        offset_mapping: Any,
        special_tokens_mask: np.ndarray,
        aggregation_strategy: Any,
        word_ids: list[int | None] | None = None,
        word_to_chars_map: list[tuple[int, int]] | None = None,
    ) -> list[dict[str, Any]]:
        """Gives one entry per word: its text, its `(num_labels,)` scores and its place in `sentence`.

        `scores` are `(T, num_labels)`; `special_tokens_mask` `(T,)` is 1 on boundaries; `offset_mapping` `(T, 2)` is in
        characters of the text, or of each word if the words came split. Only then are there `word_ids`, the word at
        each position, and `word_to_chars_map`, each word's start and end in `sentence`, the joined words.
        """
        entries = []
        for index in np.flatnonzero(special_tokens_mask == 0).tolist():
            start, end = (int(place) for place in offset_mapping[index])
            if word_ids is not None and word_to_chars_map is not None:
                shift = word_to_chars_map[word_ids[index]][0]  # type: ignore[index]
                start, end = start + shift, end + shift
            entry = {"word": sentence[start:end], "scores": scores[index], "start": start, "end": end}
            entries.append(entry | {"index": index, "is_subword": False})
        return entries
