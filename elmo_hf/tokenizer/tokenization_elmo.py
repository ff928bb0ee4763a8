"""The ELMo tokenizer: texts to words, words to ids (Peters et al. 2018, §3.4; AllenNLP's `batch_to_ids`).

A text is split into words (`word_splitter.py`), or comes as words; `<S>` and `</S>` are put around it; each word
becomes its ids (`word_codec.py`). A batch is one array with one mask, filled at once:

    input_ids (B, T, C)    attention_mask (B, T), 1 on words and boundaries

Glossary: B batch, T words of the longest text, C characters per word. For a word-embedding ELMo, ids are (B, T).

Deliberate differences from other tokenizers of transformers: one position is one word with a row of ids, so every
method that handles ids is overridden here; the Rust tokenizer behind is only the vocabulary of single ids and the
splitter. In raw text `<S>` is no mark-up; a *word* `<S>` is the boundary, as in AllenNLP. A pair of texts is two
sentences side by side, each with its own boundaries. There is no overflow, because ELMo has no longest text.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy
from transformers.utils import TensorType, logging

from ..model.configuration_elmo import ALPHABETS, TOKEN_ENCODERS, save_code
from .code_point_codec import CodePointCodec
from .padding import (
    PADDING_VALUES,
    as_array,
    as_integers,
    as_lists,
    is_sequence,
    lengths_with_padding,
    nesting,
    pad_one,
    spread,
    tensor_type_of,
)
from .tokenizer_arguments import as_batch, check_special_tokens, is_batch, is_wanted
from .vocabulary_files import load_vocabulary, pop_saved_vocabulary, read_vocabulary_file, write_vocabulary_file
from .word_codec import PADDING, UNKNOWN_WORD, CharacterCodec, VocabularyCodec
from .word_encoding import WordEncoding, Words
from .word_splitter import make_word_splitter

logger = logging.get_logger(__name__)


class ElmoTokenizer(PreTrainedTokenizerFast):
    """Makes the inputs of every ELMo model.

    Args:
        token_encoder: `"char_cnn"` for rows of characters, `"word_embedding"` for word ids.
        max_word_length: C; a word is cut after C - 2 bytes, or code points.
        word_splitter: how raw text becomes words, `"ptb"` or `"whitespace"`.
        vocab_file: for `"word_embedding"`, a text file with one word a line, `<S>`, `</S>` and `<UNK>` among them.
        words_file: where there is no `vocab_file`, such a file with the words that the model's softmax predicts, if it
            has one.
        alphabet: `"bytes"`, or `"code_points"`: ids are then those of the vocabulary `vocab` (`code_point_codec.py`),
            which a saved tokenizer carries, whatever the token encoder.
        **kwargs: of every transformers tokenizer, such as `padding_side`.

    Raises:
        ValueError: if an argument is none of the legal values, or the vocabulary is missing or incomplete.
    """

    vocab_files_names = {"vocab_file": "vocab.txt", "words_file": "words.txt", "tokenizer_file": "tokenizer.json"}
    model_input_names = ["input_ids", "attention_mask"]
    # What a saved folder opens.
    _auto_map = {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}

    def __init__(
        self,
        token_encoder: str = "char_cnn",
        max_word_length: int = 50,
        word_splitter: str = "ptb",
        vocab_file: str | None = None,
        words_file: str | None = None,
        alphabet: str = "bytes",
        **kwargs: Any,
    ) -> None:
        """Builds the Rust tokenizer anew from plain arguments, whatever a saved `tokenizer.json` may say of it."""
        saved_vocabulary = pop_saved_vocabulary(kwargs)
        for name, value, legal in (("token_encoder", token_encoder, TOKEN_ENCODERS), ("alphabet", alphabet, ALPHABETS)):
            if value not in legal:
                raise ValueError(f"`{name}` must be one of {', '.join(map(repr, legal))}, found {value!r}.")
        if not isinstance(max_word_length, int) or max_word_length < 3:
            raise ValueError(f"`max_word_length` must be a whole number of at least 3, found {max_word_length!r}.")
        self._codec: CharacterCodec | VocabularyCodec | CodePointCodec
        if alphabet == "code_points":
            self._codec = CodePointCodec(saved_vocabulary or {}, max_word_length, token_encoder == "char_cnn")
        elif token_encoder == "char_cnn":
            self._codec = CharacterCodec(max_word_length)
        else:
            self._codec = VocabularyCodec(load_vocabulary(vocab_file, saved_vocabulary))
        self._output_codec = self._codec if isinstance(self._codec, VocabularyCodec) else None
        if words_file is not None:
            if self._output_codec is not None:
                raise ValueError(
                    "`words_file` is for character input; here the words predicted are those of `vocab_file`."
                )
            self._output_codec = VocabularyCodec(read_vocabulary_file(words_file))
        self.token_encoder = token_encoder
        self.alphabet = alphabet
        self.max_word_length = max_word_length
        self.word_splitter = word_splitter
        begin, end = self._codec.boundaries
        special_tokens = {"pad_token": PADDING, "bos_token": begin, "eos_token": end}
        check_special_tokens(kwargs, special_tokens)
        has_unknown_word = isinstance(self._codec, VocabularyCodec)
        unknown = UNKNOWN_WORD if has_unknown_word else PADDING
        backend = Tokenizer(models.WordLevel(self._codec.symbols, unk_token=unknown))
        backend.pre_tokenizer = make_word_splitter(word_splitter)
        kwargs = special_tokens | kwargs
        if has_unknown_word:
            kwargs.setdefault("unk_token", UNKNOWN_WORD)
        super().__init__(
            tokenizer_object=backend,
            token_encoder=token_encoder,
            max_word_length=max_word_length,
            word_splitter=word_splitter,
            alphabet=alphabet,
            **kwargs,
        )

    def _encode_plus(
        self,
        text: str | Sequence[Any],
        text_pair: str | Sequence[Any] | None = None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
        max_length: int | None = None,
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
        """Encodes one text or a batch; arguments and result are those of every transformers tokenizer."""
        if return_overflowing_tokens:
            raise ValueError("`return_overflowing_tokens` is not supported: ELMo reads texts of any length.")
        is_batched = is_batch(text, is_split_into_words)
        texts, pairs = as_batch(text, text_pair, is_batched, is_split_into_words)
        encodings = []
        for first, second in zip(texts, pairs, strict=True):
            sequences = tuple(self._words(part, is_split_into_words) for part in (first, second) if part is not None)
            if truncation_strategy != TruncationStrategy.DO_NOT_TRUNCATE and max_length is not None:
                sequences = self._truncate(sequences, max_length, truncation_strategy, add_special_tokens)
            encodings.append(WordEncoding(sequences, add_special_tokens, boundaries=self._codec.boundaries))
            self._eventual_warn_about_too_long_sequence(encodings[-1], max_length, verbose)

        side = padding_side or self.padding_side
        lengths = np.array([encoding.num_words for encoding in encodings], dtype=np.int64)
        padded_lengths = lengths_with_padding(lengths, padding_strategy, max_length, pad_to_multiple_of)
        for encoding, padding in zip(encodings, (padded_lengths - lengths).tolist(), strict=True):
            encoding.padding, encoding.padding_side = padding, side

        ids = self._codec.encode([word for encoding in encodings for word in encoding.flat_words])
        data: dict[str, Any] = {"input_ids": spread(ids, lengths, padded_lengths, side)}
        if is_wanted(return_attention_mask, "attention_mask", self.model_input_names):
            ones = np.ones(len(ids), dtype=np.int64)
            data["attention_mask"] = spread(ones, lengths, padded_lengths, side)
        if is_wanted(return_token_type_ids, "token_type_ids", self.model_input_names):
            data["token_type_ids"] = [np.array(encoding.type_ids, dtype=np.int64) for encoding in encodings]
        if return_special_tokens_mask:
            data["special_tokens_mask"] = [np.array(e.special_tokens_mask, dtype=np.int64) for e in encodings]
        if return_offsets_mapping:
            data["offset_mapping"] = [np.array(e.offsets, dtype=np.int64).reshape(-1, 2) for e in encodings]
        if return_length:
            data["length"] = padded_lengths
        if return_tensors is None:
            data = {key: as_lists(key, value) for key, value in data.items()}
            if not is_batched:
                data = {key: value[0] for key, value in data.items()}
        else:
            data = {key: as_array(key, value, TensorType(return_tensors)) for key, value in data.items()}
        return BatchEncoding(data, encodings)

    def _words(self, text: Any, is_split_into_words: bool) -> Words:
        """The words of one text with their offsets."""
        if is_split_into_words:
            if isinstance(text, str) or not all(isinstance(word, str) for word in text):
                raise ValueError(f"with `is_split_into_words=True` a text is a list of words, found {text!r}.")
            return Words(list(text), [(0, len(word)) for word in text], range(len(text)))
        if not isinstance(text, str):
            raise ValueError(
                f"a text must be a string, found {type(text).__name__}; for a list of words give "
                "`is_split_into_words=True`."
            )
        try:
            pieces = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        except UnicodeEncodeError:
            # Rust knows no lone surrogates. Each is one character, and vanishes when the word is encoded.
            places = self._tokenizer.pre_tokenizer.pre_tokenize_str(text.encode("utf-8", "replace").decode("utf-8"))
            pieces = [(text[start:end], (start, end)) for _, (start, end) in places]
        return Words([word for word, _ in pieces], [offset for _, offset in pieces], range(len(pieces)))

    def _truncate(
        self, sequences: tuple[Words, ...], max_length: int, strategy: TruncationStrategy, has_boundaries: bool
    ) -> tuple[Words, ...]:
        """Takes words off until the texts and their boundaries fit into `max_length` positions."""
        room = max_length - (self.num_special_tokens_to_add(len(sequences) == 2) if has_boundaries else 0)
        if room < 0:
            begin, end = self._codec.boundaries
            raise ValueError(f"`max_length` = {max_length} leaves no room for the boundaries `{begin}` and `{end}`.")
        lengths = [len(sequence.words) for sequence in sequences]
        excess = sum(lengths) - room
        if excess <= 0:
            return sequences
        if len(sequences) == 1:
            kept = [room]
        elif strategy == TruncationStrategy.LONGEST_FIRST:
            # Words go off the longer text, one by one, and then off both in turn.
            shorter = int(lengths[1] < lengths[0])
            kept = [room, room]
            kept[shorter] = min(lengths[shorter], room // 2)
            kept[1 - shorter] -= kept[shorter]
        else:
            cut = 0 if strategy == TruncationStrategy.ONLY_FIRST else 1
            if lengths[cut] < excess:
                raise ValueError(
                    f"`truncation='{strategy.value}'` cannot shorten {lengths[cut]} words by {excess}; "
                    "the other text alone is too long for `max_length`."
                )
            kept = [length - excess * (index == cut) for index, length in enumerate(lengths)]
        return tuple(
            sequence.cut(length - keep, self.truncation_side)
            for sequence, length, keep in zip(sequences, lengths, kept, strict=True)
        )

    def _add_tokens(self, new_tokens: Sequence[Any], special_tokens: bool = False) -> int:
        """Adds names of single ids, as transformers may ask; words go on being encoded by their characters."""
        unknown = [str(token) for token in new_tokens if str(token) not in self._codec.symbols]
        if unknown:
            logger.warning(f"Added tokens change nothing in an ELMo's input ids, found {', '.join(unknown)}.")
        return super()._add_tokens(new_tokens, special_tokens)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> None:
        """Refused: bytes are not learned, and a vocabulary comes with its model.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "an ELMo tokenizer is not trained: its ids are the 256 bytes, or the vocabulary of its model."
        )

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """2 boundaries, or 4 around a pair of texts."""
        return 4 if pair else 2

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
        """Pads encoded texts to one length, as data collators ask.

        Args:
            encoded_inputs: one encoded text, a batch of them, or a list of encoded texts; ids as lists, arrays or
                tensors. Keys other than those of `PADDING_VALUES` must have one length already.
            padding: True or `"longest"`, `"max_length"`, or False.
            max_length: the length for `"max_length"`, in words.
            pad_to_multiple_of: round the length up to a multiple of this.
            padding_side: `"right"` or `"left"`; None: the tokenizer's own.
            return_attention_mask: whether to add a mask where there is none; None: yes.
            return_tensors: `"pt"`, `"np"`, or None for what came in.
            verbose: whether transformers may warn.

        Raises:
            ValueError: if there are no `input_ids`, or keys have different batch sizes.
        """
        is_list_of_texts = isinstance(encoded_inputs, (list, tuple))
        if is_list_of_texts and not encoded_inputs:
            raise ValueError("`pad` needs at least one encoded text, found an empty list.")
        if is_list_of_texts:
            encoded_inputs = {key: [example[key] for example in encoded_inputs] for key in encoded_inputs[0]}
        if "input_ids" not in encoded_inputs:
            raise ValueError(f"`pad` needs `input_ids`, found only {sorted(encoded_inputs)}.")
        data: dict[str, Any] = dict(encoded_inputs)
        if return_tensors is None:
            return_tensors = tensor_type_of(data["input_ids"])
        is_batched = is_list_of_texts or self._is_batch_of_ids(data["input_ids"])
        if not is_batched:
            data = {key: [value] for key, value in data.items()}
        if len({len(value) for value in data.values()}) > 1:
            raise ValueError(f"keys have different batch sizes: { {key: len(value) for key, value in data.items()} }.")
        strategy, _, max_length, _ = self._get_padding_truncation_strategies(
            padding=padding, max_length=max_length, verbose=verbose
        )
        data["input_ids"] = [self._as_ids(ids) for ids in data["input_ids"]]
        lengths = np.array([len(ids) for ids in data["input_ids"]], dtype=np.int64)
        if is_wanted(return_attention_mask, "attention_mask", self.model_input_names):
            data.setdefault("attention_mask", [np.ones(length, dtype=np.int64) for length in lengths])
        padded_lengths = lengths_with_padding(lengths, strategy, max_length, pad_to_multiple_of)
        side = padding_side or self.padding_side
        for key, value in PADDING_VALUES.items():
            if key in data:
                rows = [as_integers(row) for row in data[key]]
                data[key] = [pad_one(*pair, side, value) for pair in zip(rows, padded_lengths.tolist(), strict=True)]
        if return_tensors is None:
            lists = {key: as_lists(key, value) for key, value in data.items()}
            return BatchEncoding(lists if is_batched else {key: value[0] for key, value in lists.items()})
        tensor_type = TensorType(return_tensors)
        arrays = {key: as_array(key, value, tensor_type) for key, value in data.items()}
        return BatchEncoding(arrays if is_batched else {key: value[0] for key, value in arrays.items()})

    def _as_ids(self, ids: Any) -> np.ndarray:
        """One text's ids as an array `(T, *id_shape)`, also where T is 0."""
        return as_integers(ids).reshape(-1, *self._codec.id_shape)

    def _is_batch_of_ids(self, ids: Any) -> bool:
        """Whether ids are of several texts; a word's row is never empty, so empty lists in a list are texts."""
        holds_only_empty_texts = is_sequence(ids) and len(ids) > 0 and all(is_sequence(i) and not i for i in ids)
        return holds_only_empty_texts or nesting(ids) > 1 + len(self._codec.id_shape)

    @property
    def boundaries(self) -> tuple[str, str]:
        """The words that stand around a text: `<S>` and `</S>`, or those of the model's own alphabet."""
        return self._codec.boundaries

    def word_classes(self, words: Sequence[str]) -> np.ndarray:
        """Maps N words to `(N,)` int64 classes of the softmax; a word outside its vocabulary becomes `<UNK>`.

        Class k is the k-th line, from 0, of the vocabulary; `<S>` and `</S>` have classes like any word, and stand
        there for the boundaries whatever they are called in the input.

        Raises:
            ValueError: if the tokenizer has no such vocabulary.
        """
        names = dict(zip(self.boundaries, VocabularyCodec.boundaries, strict=True))
        return self._words_codec.encode([names.get(word, word) for word in words]) - 1

    def class_words(self, classes: Sequence[int]) -> list[str]:
        """Maps classes of the softmax back to words.

        Raises:
            ValueError: if the tokenizer has no such vocabulary.
        """
        return [self._words_codec.decode(np.asarray(k + 1)) for k in classes]

    @property
    def num_word_classes(self) -> int | None:
        """Number of lines in the softmax's vocabulary, or None if the tokenizer has none."""
        return None if self._output_codec is None else max(self._output_codec.symbols.values())

    @property
    def predicted_words(self) -> list[str] | None:
        """The softmax's vocabulary in the order of its classes, or None if the tokenizer has none."""
        return None if self._output_codec is None else self._output_codec.lines

    @property
    def _words_codec(self) -> VocabularyCodec:
        if self._output_codec is None:
            raise ValueError(
                "this tokenizer has no vocabulary of predicted words: its folder lacks `words.txt`, one word a line. "
                "Load it with `words_file=...`."
            )
        return self._output_codec

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Saves as every tokenizer, and the code that opens the folder elsewhere."""
        save_code(self, save_directory)
        return super().save_pretrained(save_directory, *args, **kwargs)

    def _save_pretrained(
        self, save_directory: str, *args: Any, filename_prefix: str | None = None, **kwargs: Any
    ) -> tuple[str, ...]:
        """Saves as every tokenizer, and the predicted words as `words.txt`."""
        names = super()._save_pretrained(save_directory, *args, filename_prefix=filename_prefix, **kwargs)
        if self._output_codec is None or self._output_codec is self._codec:
            return names
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        path = os.path.join(save_directory, prefix + self.vocab_files_names["words_file"])
        write_vocabulary_file(path, self._output_codec.lines)
        return (*names, path)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """Maps words to their ids.

        A list of words becomes a list of rows (of word ids for a word-embedding ELMo). One word becomes its row,
        and the name of a special token its single id, because transformers asks for `pad_token_id` in this way.
        """
        if tokens is None:
            return None
        if isinstance(tokens, str):
            if tokens in self.all_special_tokens:
                return self._tokenizer.token_to_id(tokens)
            return self._codec.encode([tokens])[0].tolist()
        return self._codec.encode(list(tokens)).tolist()

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Maps one word's ids to the word, or one text's ids to a list of words; single ids to their names."""
        array = as_integers(ids)
        if array.ndim < len(self._codec.id_shape):
            return self._tokenizer.id_to_token(int(array))
        if array.shape == self._codec.id_shape:
            return self._codec.decode(array)
        if array.ndim == len(self._codec.id_shape) and array.size > 0:
            return [self._tokenizer.id_to_token(number) for number in array.tolist()]
        rows = self._as_ids(array)
        skipped = self._codec.is_special(rows) if skip_special_tokens else np.zeros(len(rows), dtype=bool)
        return [self._codec.decode(row) for row in rows[~skipped]]

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> Any:
        """Maps one text's ids to its words joined by blanks, or a batch of ids to a list of such texts."""
        if self._is_batch_of_ids(token_ids):
            return [self.decode(ids, skip_special_tokens) for ids in token_ids]
        words = self.convert_ids_to_tokens(token_ids, skip_special_tokens)
        return words if isinstance(words, str) else self.convert_tokens_to_string(words)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Joins words by blanks."""
        return " ".join(tokens)

    @property
    def all_special_ids(self) -> list[int]:
        """The single ids that mark boundaries and padding."""
        ids = [self._tokenizer.token_to_id(token) for token in self.all_special_tokens]
        return [token_id for token_id in ids if token_id is not None]

    def get_special_tokens_mask(
        self, token_ids_0: Any, token_ids_1: Any = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 on boundaries and padding, for ids with boundaries, or for those that boundaries will be put around."""
        if already_has_special_tokens:
            return self._codec.is_special(self._as_ids(token_ids_0)).astype(int).tolist()
        texts = [ids for ids in (token_ids_0, token_ids_1) if ids is not None]
        return [flag for ids in texts for flag in (1, *[0] * len(ids), 1)]
