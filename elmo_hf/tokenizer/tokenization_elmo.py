"""The ELMo tokenizer: text to words, words to ids (Peters et al. 2018, §3.4; AllenNLP's `batch_to_ids`).

A text is split into words, or comes as a list of words. `<S>` and `</S>` go around it, each word becomes ids, and a
batch becomes one array with a mask:

    input_ids (B, T, C)    attention_mask (B, T), 1 on words and boundaries
    word_vector_ids (B, T), by `vector_codec`, if a task has word vectors of its own

Glossary: B batch, T words of the longest text, C characters per word. For a word-embedding ELMo, ids are (B, T).

Deliberate differences from other tokenizers of transformers: one position is one word with several ids, so this class
overrides every method that handles ids, and the Rust tokenizer inside only splits text and names single ids. In raw
text, `<S>` is ordinary text; a *word* `<S>` is the boundary, as in AllenNLP. A pair of texts is two sentences side by
side, each with its own boundaries. ELMo reads texts of any length, so nothing is cut unless a call asks for it. Where
characters are bytes, `add_tokens` reserves a word (AllenNLP's `tokens_to_add`): one id from 262 on replaces its
characters, in raw text too. `model.resize_token_embeddings(len(tokenizer))` makes room for it. It counts as a word,
also as `mask_token`. Words of a vocabulary are fixed.
"""

import json
import os
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy
from transformers.utils import TensorType, logging

from ..model.configuration_elmo import require, save_code
from .code_point_codec import CodePointCodec
from .encoded_texts import WordEncoding, as_batch, is_batch, to_words, truncate
from .padding import PADDING_VALUES, as_integers, convert, lengths_with_padding, nesting, pad_each, tensor_type_of
from .word_codec import PADDING, UNKNOWN_WORD, CharacterCodec, VocabularyCodec, is_list
from .word_splitter import WORD_SPLITTERS, make_word_splitter, split_by

logger = logging.get_logger(__name__)

Codec = CharacterCodec | VocabularyCodec | CodePointCodec


class ElmoTokenizer(PreTrainedTokenizerFast):
    """Makes the inputs of every ELMo model.

    Args:
        token_encoder: `"char_cnn"` for character ids, `"word_embedding"` for word ids.
        max_word_length: C; a word is cut after C - 2 bytes, or code points.
        word_splitter: how raw text becomes words, `"ptb"`, `"whitespace"`, or a function from a text to its words. A
            function is not saved (the folder has `"whitespace"`), so pass it again when loading.
        vocab_file: for `"word_embedding"`, a text file with one word per line, including `<S>`, `</S>` and `<UNK>`.
        words_file: such a file with the words that the model's softmax predicts, if it has one; with word input, None
            means the words of `vocab_file`.
        vector_words_file: such a file with the words that have word vectors of the task's own, if there are any.
        alphabet: `"bytes"`, or, with any token encoder, `"code_points"` for the ids of a vocabulary `vocab`, which is
            saved with the tokenizer (`code_point_codec.py`).
        add_boundaries: whether texts get `<S>` and `</S>`, unless a call has `add_special_tokens=False`; False for a
            biLM that was trained without boundaries (google/elmo).
        **kwargs: the arguments of every transformers tokenizer, such as `padding_side`.

    Raises:
        ValueError: if an argument is illegal, or if the vocabulary is missing or incomplete.
    """

    vocab_files_names = {"words_file": "words.txt", "vector_words_file": "vector_words.txt"}
    vocab_files_names |= {"tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]
    # For the config of a saved folder.
    _auto_map = {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}

    def __init__(
        self,
        token_encoder: str = "char_cnn",
        max_word_length: int = 50,
        word_splitter: Any = "ptb",
        vocab_file: str | None = None,
        words_file: str | None = None,
        alphabet: str = "bytes",
        add_boundaries: bool = True,
        vector_words_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Builds the Rust tokenizer from these arguments; of a `tokenizer.json` only the vocabulary is used."""
        tokenizer_file, vocabulary = kwargs.pop("tokenizer_file", None), kwargs.pop("vocab", None)
        self._split_by = partial(split_by, word_splitter) if callable(word_splitter) else None
        self.word_splitter = word_splitter = "whitespace" if callable(word_splitter) else word_splitter
        for name, value, legal in (
            ("token_encoder", token_encoder, ("char_cnn", "word_embedding")),
            ("alphabet", alphabet, ("bytes", "code_points")),
            ("word_splitter", word_splitter, (*WORD_SPLITTERS,)),
        ):
            require(value in legal, name, f"one of {legal}", value)
        is_characters, is_code_points = token_encoder == "char_cnn", alphabet == "code_points"
        if tokenizer_file is not None and (is_code_points or not is_characters):
            with open(tokenizer_file, encoding="utf-8") as file:
                vocabulary = json.load(file)["model"]["vocab"]
        self._codec: Codec
        if is_code_points:
            self._codec = CodePointCodec(vocabulary or {}, max_word_length, is_characters)
        elif is_characters:
            self._codec = CharacterCodec(max_word_length)
        else:
            self._codec = VocabularyCodec.of_file(vocab_file) or VocabularyCodec(vocabulary or {})
        self.vector_codec = VocabularyCodec.of_file(vector_words_file)
        self._output_codec = VocabularyCodec.of_file(words_file)
        if self._output_codec is None and isinstance(self._codec, VocabularyCodec):
            self._output_codec = self._codec
        self.token_encoder = token_encoder
        self.alphabet = alphabet
        self.max_word_length = max_word_length
        self.add_boundaries = add_boundaries
        begin, end = self._codec.boundaries
        special_tokens = {"pad_token": PADDING, "bos_token": begin, "eos_token": end}
        if isinstance(self._codec, VocabularyCodec):
            special_tokens["unk_token"] = UNKNOWN_WORD
        # As an argument, transformers would copy it, which doubles the time.
        unknown = special_tokens.get("unk_token", PADDING)
        self._tokenizer = Tokenizer(models.WordLevel(self._codec.symbols, unk_token=unknown))
        kwargs |= {"token_encoder": token_encoder, "alphabet": alphabet}
        kwargs |= {"max_word_length": max_word_length, "word_splitter": word_splitter, "words_file": words_file}
        if not add_boundaries:
            kwargs["add_boundaries"] = False
        super().__init__(**(special_tokens | kwargs))
        # Last, because for a large vocabulary transformers replaces the pattern by its own.
        self._tokenizer.pre_tokenizer = make_word_splitter(word_splitter)

    @classmethod
    def _from_pretrained(cls, resolved_vocab_files: dict[str, Any], name: str, *args: Any, **kwargs: Any) -> Any:
        """Refuses a folder or repository that has none of a tokenizer's files, because its name may be wrong."""
        if not any(resolved_vocab_files.values()):
            raise OSError(f"there is no tokenizer in {name}; `tokenizer.save_pretrained` writes one.")
        return super()._from_pretrained(resolved_vocab_files, name, *args, **kwargs)

    @classmethod
    def convert_to_native_format(cls, **kwargs: Any) -> dict[str, Any]:
        """Passes `tokenizer.json` to the constructor, which reads only its vocabulary."""
        return kwargs

    def split_text(self, text: str) -> list[tuple[str, tuple[int, int]]]:
        """Splits a text into words with their offsets; reserved words are kept whole."""
        split = self._split_by or self._tokenizer.pre_tokenizer.pre_tokenize_str
        reserved = getattr(self._codec, "reserved", {})
        if not reserved:
            return split(text)
        longest_first = sorted(reserved, key=len, reverse=True)
        words, start = [], 0
        for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text):
            found = [(part, (0, len(part)))] if part in reserved else split(part)
            words += [(word, (start + begin, start + end)) for word, (begin, end) in found]
            start += len(part)
        return words

    def _encode_plus(
        self,
        text: str | Sequence[Any],
        text_pair: str | Sequence[Any] | None = None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | TensorType | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Encodes one text or a batch; arguments and result are as in every transformers tokenizer."""
        is_batched = is_batch(text, is_split_into_words)
        boundaries = self.boundaries if add_special_tokens and self.add_boundaries else None
        encodings, samples = [], []
        for sample, parts in enumerate(as_batch(text, text_pair, is_batched, is_split_into_words)):
            texts = tuple(to_words(part, is_split_into_words, self.split_text) for part in parts)
            windows = [texts]
            if truncation_strategy != TruncationStrategy.DO_NOT_TRUNCATE and max_length is not None:
                room = max_length - (2 * len(texts) if boundaries else 0)
                overlap = stride if return_overflowing_tokens else None
                windows = truncate(texts, room, truncation_strategy, self.truncation_side, overlap)
            encodings += [WordEncoding(window, boundaries) for window in windows]
            samples += [sample] * len(windows)
            self._eventual_warn_about_too_long_sequence(encodings[-1], max_length, verbose)
        side = padding_side or self.padding_side
        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        padded_lengths = lengths_with_padding(lengths, padding_strategy, max_length, pad_to_multiple_of)
        for encoding, padding in zip(encodings, (padded_lengths - lengths).tolist(), strict=True):
            encoding.padding, encoding.padding_side = padding, side

        def pad(flat: np.ndarray) -> list[np.ndarray]:
            parts = [flat[end - length : end] for length, end in zip(lengths, lengths.cumsum(), strict=True)]
            return pad_each(parts, padded_lengths, side, 0)

        words = [word for encoding in encodings for word in encoding.flat_words]
        data: dict[str, Any] = {"input_ids": pad(self._codec.encode(words))}
        if self.vector_codec is not None:
            if self.vector_codec.is_lower_case:
                words = [word if word in self.boundaries else word.lower() for word in words]
            data["word_vector_ids"] = pad(self.vector_codec.encode(words))
        if return_attention_mask is not False:
            data["attention_mask"] = pad(np.ones(len(words), dtype=np.int64))
        if return_token_type_ids:
            data["token_type_ids"] = [each.type_ids for each in encodings]
        if return_special_tokens_mask:
            data["special_tokens_mask"] = [each.special_tokens_mask for each in encodings]
        if return_offsets_mapping:
            data["offset_mapping"] = [each.offsets for each in encodings]
        if return_length:
            data["length"] = padded_lengths
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = np.array(samples, dtype=np.int64)
        is_alone = not is_batched and return_tensors is None and not return_overflowing_tokens
        return BatchEncoding(convert(data, return_tensors, is_alone), encodings)

    def pad(
        self,
        encoded_inputs: Any,
        padding: bool | str | PaddingStrategy = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | TensorType | None = None,
        verbose: bool = True,
    ) -> BatchEncoding:
        """Pads encoded texts to one length, in words; arguments are as in every transformers tokenizer.

        Only keys of `PADDING_VALUES` are padded. Without `return_tensors`, the result is of the kind of `input_ids`.
        """
        is_list_of_texts = isinstance(encoded_inputs, (list, tuple))
        if is_list_of_texts:
            encoded_inputs = {key: [example[key] for example in encoded_inputs] for key in encoded_inputs[0]}
        is_batched = is_list_of_texts or self._is_batch_of_ids(encoded_inputs["input_ids"])
        data = {key: value if is_batched else [value] for key, value in encoded_inputs.items()}
        if return_tensors is None:
            return_tensors = tensor_type_of(data["input_ids"])
        strategy, _, max_length, _ = self._get_padding_truncation_strategies(
            padding=padding, max_length=max_length, verbose=verbose
        )
        data["input_ids"] = [self._as_ids(ids) for ids in data["input_ids"]]
        lengths = np.array([len(ids) for ids in data["input_ids"]], dtype=np.int64)
        if return_attention_mask is not False:
            data.setdefault("attention_mask", [np.ones(length, dtype=np.int64) for length in lengths])
        padded_lengths = lengths_with_padding(lengths, strategy, max_length, pad_to_multiple_of)
        side = padding_side or self.padding_side
        for key, value in PADDING_VALUES.items():
            if key in data:
                texts = [as_integers(text) for text in data[key]]
                data[key] = pad_each(texts, padded_lengths, side, value)
        return BatchEncoding(convert(data, return_tensors, drop_batch=not is_batched))

    def _as_ids(self, ids: Any) -> np.ndarray:
        """One text's ids as an array `(T, *id_shape)`, even if T is 0."""
        return as_integers(ids).reshape(-1, *self._codec.id_shape)

    def _is_batch_of_ids(self, ids: Any) -> bool:
        """Whether ids belong to several texts; a word's ids are never empty, so an empty list in a list is a text."""
        holds_only_empty_texts = is_list(ids) and len(ids) > 0 and all(is_list(i) and not i for i in ids)
        return holds_only_empty_texts or nesting(ids) > 1 + len(self._codec.id_shape)

    @property
    def boundaries(self) -> tuple[str, str]:
        """The words before and after a text: `<S>` and `</S>`, or those of the model's own alphabet."""
        return self._codec.boundaries

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """2 boundaries, or 4 for a pair of texts; 0 without `add_boundaries`."""
        return (4 if pair else 2) * self.add_boundaries

    @property
    def all_special_ids(self) -> list[int]:
        """The single ids of boundaries and padding."""
        ids = [self._tokenizer.token_to_id(token) for token in self.all_special_tokens]
        return [token_id for token_id in ids if token_id is not None]

    def get_special_tokens_mask(
        self, token_ids_0: Any, token_ids_1: Any = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 on boundaries and padding, for ids with boundaries."""
        if not already_has_special_tokens:
            return super().get_special_tokens_mask(token_ids_0, token_ids_1)
        return self._codec.is_special(self._as_ids(token_ids_0)).astype(int).tolist()

    def _add_tokens(self, new_tokens: Sequence[Any], special_tokens: bool = False) -> int:
        """Reserves words; raises ValueError for new padding or boundaries, and if ids come from a fixed vocabulary."""
        new = [str(token) for token in new_tokens if str(token) not in self._codec.symbols]
        fixed = {self.special_tokens_map.get(name) for name in ("pad_token", "bos_token", "eos_token")}
        if isinstance(self._codec, CharacterCodec):
            wrong, legal = [word for word in new if word in fixed], "other words than padding and boundaries"
        else:
            wrong, legal = new, "in the model's vocabulary, which is fixed"
        require(not wrong, "new_tokens", legal, wrong)
        num_added = super()._add_tokens(new_tokens, special_tokens)
        if isinstance(self._codec, CharacterCodec):
            ids = self._tokenizer.get_vocab()
            self._codec.reserved |= {word: ids[word] for word in new}
        return num_added

    def word_classes(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 classes of the softmax; unknown words become `<UNK>`.

        Class k is line k of the softmax's vocabulary, counted from 0. The tokenizer's own boundaries get the classes of
        `<S>` and `</S>`.

        Raises:
            ValueError: if the tokenizer has no such vocabulary.
        """
        names = dict(zip(self.boundaries, VocabularyCodec.boundaries, strict=True))
        return self._words_codec.encode([names.get(word, word) for word in words]) - 1

    def class_words(self, classes: Sequence[int]) -> list[str]:
        """The inverse of `word_classes`."""
        return [self._words_codec.decode(np.asarray(k + 1)) for k in classes]

    @property
    def num_word_classes(self) -> int | None:
        """Size of the softmax's vocabulary, or None without one."""
        return None if self._output_codec is None else max(self._output_codec.symbols.values())

    @property
    def predicted_words(self) -> list[str] | None:
        """The softmax's vocabulary in class order, or None without one."""
        return None if self._output_codec is None else self._output_codec.lines

    @property
    def _words_codec(self) -> VocabularyCodec:
        if self._output_codec is None:
            raise ValueError(
                "this tokenizer has no vocabulary of predicted words: its folder lacks `words.txt`, one word a line. "
                "Load it with `words_file=...`."
            )
        return self._output_codec

    def _save_pretrained(
        self, save_directory: str, *args: Any, filename_prefix: str | None = None, **kwargs: Any
    ) -> tuple[str, ...]:
        """Also saves the words of softmax and word vectors, and the code that loads the folder without this package."""
        if self._split_by is not None:
            logger.warning("`word_splitter` is a function, which is not saved; loaded, this splits at white space.")
        save_code(self, save_directory)
        names = super()._save_pretrained(save_directory, *args, filename_prefix=filename_prefix, **kwargs)
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        for name, codec in (("words_file", self._output_codec), ("vector_words_file", self.vector_codec)):
            if codec is not None and codec is not self._codec:
                path = os.path.join(save_directory, prefix + self.vocab_files_names[name])
                with open(path, "w", encoding="utf-8") as file:
                    file.writelines(f"{word}\n" for word in codec.lines)
                names = (*names, path)
        return names

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Maps one word or a list of words to their ids.

        The name of a special token becomes its single id, because transformers looks up `pad_token_id` here.
        """
        if tokens is None:
            return None
        if isinstance(tokens, str):
            if tokens in self.all_special_tokens:
                return self._tokenizer.token_to_id(tokens)
            return self._codec.encode([tokens])[0].tolist()
        if not self._codec.id_shape:
            return [self.convert_tokens_to_ids(word) for word in tokens]
        return self._codec.encode(list(tokens)).tolist()

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Maps one word's ids to the word, one text's ids to a list of words, and single ids to their names."""
        array = as_integers(ids)
        if array.ndim < len(self._codec.id_shape):
            return self._tokenizer.id_to_token(int(array))
        if array.shape == self._codec.id_shape:
            return self._codec.decode(array)
        if array.ndim == len(self._codec.id_shape) and array.size > 0:
            return [self._tokenizer.id_to_token(single_id) for single_id in array.tolist()]
        words = self._as_ids(array)
        skipped = self._codec.is_special(words) if skip_special_tokens else np.zeros(len(words), dtype=bool)
        return [self._codec.decode(word) for word in words[~skipped]]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """Maps one text's ids to its words, joined by blanks, or a batch of ids to a list of such texts."""
        if self._is_batch_of_ids(token_ids):
            return [self.decode(ids, skip_special_tokens) for ids in token_ids]
        words = self.convert_ids_to_tokens(token_ids, skip_special_tokens)
        return words if isinstance(words, str) else " ".join(words)
