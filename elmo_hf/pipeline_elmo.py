"""The token-classification pipeline of ELMo models.

Deliberate differences from the stock pipeline of transformers: the stock one reads each entry of `input_ids` as one
number, to name the piece of text it stands for, where an entry of ours is a row of characters; and it guesses from the
blanks around a piece whether it continues a word, where each of ours is a whole word. Here a word is the text between
its offsets and never continues another.
"""

from typing import Any

import numpy as np
from transformers import TokenClassificationPipeline


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """Labels words; pass it as `pipeline("token-classification", ..., pipeline_class=...)`."""

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
        """Gives one entry for each word: its text, its `(num_labels,)` scores and its place in `sentence`.

        Args:
            sentence: the text, or the words joined where they came split.
            input_ids: not looked at.
            scores: `(T, num_labels)`.
            offset_mapping: `(T, 2)`, in characters of the text, or of each word where they came split.
            special_tokens_mask: `(T,)`, 1 on boundaries.
            aggregation_strategy: not looked at; words are whole.
            word_ids: number of the word at each position, given where words came split.
            word_to_chars_map: start and end of each word in `sentence`, likewise.
        """
        entries = []
        for index in np.flatnonzero(special_tokens_mask == 0).tolist():
            start, end = (int(place) for place in offset_mapping[index])
            if word_ids is not None and word_to_chars_map is not None:
                shift = word_to_chars_map[word_ids[index]][0]  # type: ignore[index]
                start, end = start + shift, end + shift
            entries.append(
                {
                    "word": sentence[start:end],
                    "scores": scores[index],
                    "start": start,
                    "end": end,
                    "index": index,
                    "is_subword": False,
                }
            )
        return entries
