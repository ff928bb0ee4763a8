"""A tokenizer with one id a word, for programs that score causal language models, such as minicons.

These programs look up a model's logits at `input_ids`, which for most ELMos are rows of characters. Here a text has

    input_ids (B, T)                           `<S>` w_1 .. w_n by their numbers in `ElmoForCausalLM`'s logits
    token_encoder_ids (B, T, C) or (B, T)      the same words as the model reads them, unknown ones too

so a program that passes both to the model gets the numbers of `ElmoForPreTraining.score`. As in Llama, there is no
`</S>`: the ids of a text's beginning are the beginning of its ids.

Glossary: B batch, T words of the longest text, n words of a text, C characters per word.
"""

from typing import Any

from transformers import BatchEncoding

from ..model.configuration_elmo import require
from ..tokenizer.encoded_texts import is_batch
from ..tokenizer.tokenization_elmo import ElmoTokenizer


class WordIdTokenizer(ElmoTokenizer):
    """Makes the inputs of `ElmoForCausalLM` for programs that need one id a word."""

    def __init__(self, tokenizer: ElmoTokenizer, word_splitter: str | None = None) -> None:
        """Takes the model's tokenizer, and how raw text becomes words; None: as that tokenizer splits it.

        Raises:
            ValueError: if the tokenizer lacks the words of the softmax, or there is no such word splitter.
        """
        words = tokenizer._words_codec.symbols
        super().__init__("word_embedding", word_splitter=word_splitter or tokenizer.word_splitter, vocab=words)
        self.of_model = tokenizer

    def _encode_plus(  # type: ignore[override]
        self,
        text: Any,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        is_split_into_words: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Encodes one text or a batch; `add_special_tokens` adds `<S>`."""
        require(text_pair is None, "text_pair", "None, because a language model reads single texts", text_pair)
        is_batched = is_batch(text, is_split_into_words)
        texts = text if is_batched else [text]
        if not is_split_into_words:
            texts = [[word for word, _ in self.split_text(each)] for each in texts]
        kwargs["padding_side"] = kwargs.get("padding_side") or self.padding_side

        def encode(function: Any, begin: str) -> BatchEncoding:
            words = [[begin] * add_special_tokens + [*each] for each in texts]
            given = words if is_batched else words[0]
            return function(text=given, add_special_tokens=False, is_split_into_words=True, **kwargs)

        encoded = encode(super()._encode_plus, self.boundaries[0])
        read = encode(self.of_model._encode_plus, self.of_model.boundaries[0])
        encoded["token_encoder_ids"] = read["input_ids"]
        return encoded
