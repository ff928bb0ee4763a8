"""The pipelines of ELMo models, which a saved folder names in its config.

Deliberate differences from the stock pipelines of transformers: feature extraction takes a batch apart by indexing
every output with a row's number, which has no meaning for a tuple of representations or a state, so only the top layer
is handed on. Token classification reads each entry of `input_ids` as one number, to name the piece of text it stands
for, where an entry of ours is a row of characters; and it guesses from the blanks around a piece whether it continues a
word, where each of ours is a whole word. Here a word is the text between its offsets and never continues another.
"""

from typing import Any

import numpy as np
from transformers import FeatureExtractionPipeline, TextClassificationPipeline, TokenClassificationPipeline
from transformers.modeling_outputs import BaseModelOutput


class ElmoFeatureExtractionPipeline(FeatureExtractionPipeline):
    """Gives the top layer `(1, T, 2P)` of each text; needed for `batch_size` above 1."""

    def _forward(self, model_inputs: dict[str, Any]) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.model(**model_inputs).last_hidden_state)


class ElmoTextClassificationPipeline(TextClassificationPipeline):
    """Labels texts, and pairs of them; the stock pipeline, under a name that a saved config can hold."""


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
