"""Configuration of an ELMo biLM (Peters et al. 2018): one flat record for every checkpoint, validated in one place.

A model is a token encoder (the character CNN of Kim et al. 2016, or a word embedding), L layers of LSTMP cells (Sak et
al. 2014) in two directions that never mix, and scalar mixes on top.

Glossary of the whole package: B batch, T words of the longest sentence, C characters per word (`max_word_length`),
E character embedding (`char_embedding_size`), F filters in total, W word embedding (`word_embedding_size`),
P projection (`projection_size`), H memory cell (`cell_size`), L layers (`num_hidden_layers`).

Deliberate differences from bilm-tf's `options.json`: None (never 0) switches a clip off; a field records whether each
linear projection exists (`char_projection`, `cell_projection`), where bilm-tf infers it from sizes and AllenNLP always
assumes it; the 1.0 that TensorFlow adds to the forget gate at run time is `forget_bias`, so weights stay bit-exact.
"""

import math
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeGuard

from transformers import PreTrainedConfig

# Input ids of characters: bytes are 1 to 256.
PADDING_ID = 0
BEGIN_SENTENCE_ID = 257
END_SENTENCE_ID = 258
BEGIN_WORD_ID = 259
END_WORD_ID = 260
FILLER_ID = 261
NUM_CHARACTER_IDS = 262

TOKEN_ENCODERS = ("char_cnn", "word_embedding")
ALPHABETS = ("bytes", "code_points")
ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# What a field may be, whatever the other fields are.
CHOICES = {
    "token_encoder": TOKEN_ENCODERS,
    "alphabet": ALPHABETS,
    "char_activation": ("relu", "tanh"),
    "scalar_mix_layer_norm": ("none", "batch", "word"),
    "layer_mix": ("scalar", "linear"),
    "task_encoder": ("none", "lstm"),
    "pooling": ("mean", "max", "attention"),
    "softmax": ("full", "sampled", "adaptive"),
}
AT_LEAST = {
    0: ("num_input_words", "num_highway_layers"),
    1: ("vocab_size", "word_embedding_size", "char_embedding_size", "projection_size", "cell_size", "num_hidden_layers")
    + ("num_output_representations", "task_hidden_size", "num_softmax_samples"),
    3: ("max_word_length", "num_softmax_words"),
}
CLIPS = ("cell_clip", "projection_clip")
FLAGS = ("use_skip_connections", "scalar_mix_trainable", "text_pairs", "use_crf", "share_embedding_softmax")
RATES = ("representation_dropout", "classifier_dropout", "lm_dropout")

# Every class that can open a saved folder; transformers alone would record only the class that wrote it.
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "PreTraining")
AUTO_MAP = {"AutoConfig": "configuration_elmo.ElmoConfig", "AutoModel": "modeling_elmo.ElmoModel"} | {
    f"AutoModelFor{head}": f"modeling_elmo.ElmoFor{head}" for head in HEADS
}


class ElmoConfig(PreTrainedConfig):
    """Configuration of one ELMo model; the defaults are the original model of 93.6 million parameters.

    Args:
        token_encoder: `"char_cnn"` (ids of shape (B, T, C)) or `"word_embedding"` (ids of shape (B, T)).
        alphabet: `"bytes"`, whose ids all models share, or `"code_points"`, with a vocabulary's ids (ELMoForManyLangs).
        vocab_size: number of input ids, padding id 0 included: 262 for characters, or words + 1, or both.
        num_input_words: with `"char_cnn"`, how many of the last ids are words. If above 0, a word's id follows its
            characters (ids of shape (B, T, C + 1)) and its vector precedes the CNN's features.
        word_embedding_size: W, width of those word vectors. With `"word_embedding"`, width of a table that a linear
            layer maps to P; None for a table of width P without that layer (bilm-tf).
        max_word_length: C, characters per word, including its begin and end marks.
        char_embedding_size: E.
        char_filters: [width, count] of each convolution, in order; widths in characters.
        char_activation: `"relu"` or `"tanh"`, of the convolutions only.
        num_highway_layers: highway layers between convolutions and projection, 0 or more.
        char_projection: whether a linear layer maps F (with word vectors, W + F) to P; None: if they differ (bilm-tf).
        projection_size: P, width of a token vector, of one direction's output and of its recurrent state.
        cell_size: H, width of the memory cell.
        num_hidden_layers: L.
        cell_projection: whether a linear layer maps H to P; None: if they differ (bilm-tf).
        cell_clip: limit of the memory cell's absolute values; None means unlimited.
        projection_clip: limit of the projected output's absolute values; None means unlimited.
        use_skip_connections: from the second layer on, add a layer's input to its output.
        forget_bias: added to the forget gate at run time: 1.0 for TensorFlow weights, 0.0 if the bias includes it.
        hidden_size: 2P, the width of every output; a contradicting value is an error.
        num_output_representations: how many independent scalar mixes the model computes.
        representation_dropout: dropout on each mixed representation, in training only.
        scalar_mix_weights: L+1 true weights (summing to 1) that every mix gets when a model is made or loaded. None:
            the checkpoint's weights, or else equal ones. Saved folders have None here.
        scalar_mix_trainable: whether mixes learn; if False their parameters have `requires_grad=False`.
        scalar_mix_layer_norm: `"none"`; `"batch"`: AllenNLP's, one mean and variance over the whole batch, which
            makes a vector depend on its batch mates; `"word"`: each word vector by itself.
        scalar_mix_l2: the paper's lambda, which pulls the mixes' weights towards equal ones (see `scalar_mix.py`).
        layer_mix: `"scalar"`, the paper's mix, or `"linear"`, a learned linear layer (see `scalar_mix.py`).
        freeze_bilm: what does not learn in task models: all (True), nothing (False) or a list of `bilm_parts`.
        task_encoder: before a task's classifier: `"none"`, or `"lstm"`, a bidirectional LSTM (see `task_encoder.py`).
        task_hidden_size: width of each direction of the task's LSTM.
        classifier_dropout: dropout before a task's classifier, in training only.
        pooling: how `ElmoForSequenceClassification` combines a text's words: `"mean"`, `"max"` or `"attention"`.
        text_pairs: whether `ElmoForSequenceClassification` compares pairs of texts.
        use_crf: whether `ElmoForTokenClassification` scores label sequences by a linear-chain CRF.
        num_softmax_words: V, words of the language models, with `<S>`, `</S>` and `<UNK>`; None: no language models.
        softmax: how training computes the loss over V words: `"full"`, `"sampled"` or `"adaptive"`; the last two need
            words in order of falling frequency. Evaluation is always exact.
        num_softmax_samples: words drawn for each batch and direction by the sampled softmax.
        softmax_cutoffs: rising ranks at which the clusters of the adaptive softmax begin.
        share_embedding_softmax: with word input, whether the word embedding is also the softmax's matrix.
        lm_dropout: dropout in language-model training, on the input of each biLM layer and on the top output.
        pad_token_id: always 0.
        bos_token_id: id of `<S>`; None: 257 for bytes, 1 for words; code points have no default.
        eos_token_id: id of `</S>`; None: 258 for bytes, 2 for words; code points have no default.

    Raises:
        ValueError: naming the field, the legal values and the value found.
    """

    model_type = "elmo"
    keys_to_ignore_at_inference = ["state"]

    token_encoder: str = "char_cnn"
    alphabet: str = "bytes"
    vocab_size: int = NUM_CHARACTER_IDS
    num_input_words: int = 0
    word_embedding_size: int | None = None
    max_word_length: int = 50
    char_embedding_size: int = 16
    char_filters: Sequence[Sequence[int]] = ORIGINAL_FILTERS
    char_activation: str = "relu"
    num_highway_layers: int = 2
    char_projection: bool | None = None
    projection_size: int = 512
    cell_size: int = 4096
    num_hidden_layers: int = 2
    cell_projection: bool | None = None
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    use_skip_connections: bool = True
    forget_bias: float = 1.0
    hidden_size: int | None = None
    num_output_representations: int = 1
    representation_dropout: float = 0.5
    scalar_mix_weights: Sequence[float] | None = None
    scalar_mix_trainable: bool = True
    scalar_mix_layer_norm: str = "none"
    scalar_mix_l2: float = 0.0
    layer_mix: str = "scalar"
    freeze_bilm: bool | Sequence[str] = True
    task_encoder: str = "none"
    task_hidden_size: int = 256
    classifier_dropout: float = 0.0
    pooling: str = "mean"
    text_pairs: bool = False
    use_crf: bool = False
    num_softmax_words: int | None = None
    softmax: str = "full"
    num_softmax_samples: int = 8192
    softmax_cutoffs: Sequence[int] | None = None
    share_embedding_softmax: bool = False
    lm_dropout: float = 0.1
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Resolves and validates all fields; `kwargs` are transformers' own."""
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)
        self.validate_architecture()

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Saves like every transformers config, with the code that opens the folder elsewhere."""
        save_code(self, save_directory)
        super().save_pretrained(save_directory, **({} if push_to_hub else kwargs))
        if push_to_hub:  # transformers itself would push only what is written while it saves
            self.push_to_hub(kwargs.pop("repo_id", os.path.basename(save_directory)), **kwargs)

    def validate_architecture(self) -> None:
        """Resolves the fields left None and checks all of them."""
        for name, legal in CHOICES.items():
            self._require(name, getattr(self, name) in legal, f"one of {', '.join(map(repr, legal))}")
        for least, names in AT_LEAST.items():
            for name in names:
                self._whole(name, least)
        positive = "a positive number, or None to switch it off"
        self._check(CLIPS, lambda value: value is None or (_is_number(value) and value > 0), positive)
        self._check(FLAGS, lambda value: isinstance(value, bool), "True or False")
        self._check(RATES, lambda value: _is_number(value) and 0 <= value < 1, "in [0, 1)")
        self._check(["forget_bias"], _is_number, "a finite number")
        self._validate_filters()
        self._validate_word_vectors()
        self.char_projection = self._projection("char_projection", self.num_filters + (self.word_embedding_size or 0))
        self.cell_projection = self._projection("cell_projection", self.cell_size)
        double = f"left out, or 2 * `projection_size` = {2 * self.projection_size}"
        self._require("hidden_size", self.hidden_size in (None, 2 * self.projection_size), double)
        self.hidden_size = 2 * self.projection_size
        self._validate_special_ids()
        self._validate_mixes()
        self._validate_frozen_parts()
        self._validate_softmax()

    @property
    def num_filters(self) -> int:
        """F, the sum of the filter counts."""
        return sum(count for _, count in self.char_filters)

    @property
    def num_characters(self) -> int:
        """How many of the input ids are characters: they come after padding and before words."""
        return self.vocab_size - 1 - self.num_input_words

    @property
    def id_shape(self) -> tuple[int, ...]:
        """Shape of one word's ids: `()`, `(C,)` or `(C + 1,)`."""
        return () if self.token_encoder == "word_embedding" else (self.max_word_length + (self.num_input_words > 0),)

    @property
    def bilm_parts(self) -> list[str]:
        """The parts that `freeze_bilm` can name: `"token_encoder"`, `"layer_1"` to `"layer_L"`."""
        return ["token_encoder", *(f"layer_{layer}" for layer in range(1, self.num_hidden_layers + 1))]

    @property
    def frozen_parts(self) -> list[str]:
        """The parts of the biLM that do not learn in task models."""
        return self.bilm_parts if self.freeze_bilm is True else list(self.freeze_bilm or ())

    def _require(self, name: str, is_legal: bool, legal: str) -> None:
        if not is_legal:
            raise ValueError(f"`{name}` must be {legal}, found {getattr(self, name)!r}.")

    def _whole(self, name: str, least: int) -> None:
        may_be_none = getattr(type(self), name) is None
        is_legal = (may_be_none and getattr(self, name) is None) or _is_whole(getattr(self, name), least)
        self._require(name, is_legal, f"a whole number of at least {least}")

    def _check(self, names: Sequence[str], is_legal: Callable[[Any], bool], legal: str) -> None:
        for name in names:
            self._require(name, is_legal(getattr(self, name)), legal)

    def _validate_filters(self) -> None:
        filters = self.char_filters
        self._require("char_filters", _is_list(filters) and len(filters) > 0, "a list of [width, count] pairs")
        for index, pair in enumerate(filters):
            if not (isinstance(pair, Sequence) and len(pair) == 2 and all(_is_whole(n, 1) for n in pair)):
                raise ValueError(f"`char_filters` must be [width, count] pairs, found {pair!r} at index {index}.")
            if pair[0] > self.max_word_length:
                raise ValueError(
                    f"`char_filters` may be at most `max_word_length` = {self.max_word_length} characters wide, "
                    f"found {pair!r} at index {index}."
                )
        self.char_filters = [list(pair) for pair in filters]

    def _validate_word_vectors(self) -> None:
        if self.token_encoder == "word_embedding" and self.num_input_words > 0:
            raise ValueError(f"`num_input_words` is for character models, found {self.num_input_words} for word input.")
        if self.token_encoder == "char_cnn" and (self.num_input_words > 0) != (self.word_embedding_size is not None):
            raise ValueError(
                "`num_input_words` and `word_embedding_size` go together in a character model, found "
                f"{self.num_input_words} and {self.word_embedding_size}."
            )
        legal = f"below `vocab_size` = {self.vocab_size}"
        self._require("num_input_words", self.num_input_words < self.vocab_size, legal)

    def _projection(self, name: str, input_size: int) -> bool:
        value = getattr(self, name)
        if value is None:
            return input_size != self.projection_size
        self._require(name, isinstance(value, bool), "True or False")
        if not value and input_size != self.projection_size:
            width = f"`projection_size` = {self.projection_size}"
            raise ValueError(f"`{name}` can be False only where its input is as wide as {width}, found {input_size}.")
        return value

    def _validate_special_ids(self) -> None:
        defaults = {"bos_token_id": (BEGIN_SENTENCE_ID, 1), "eos_token_id": (END_SENTENCE_ID, 2)}
        for name, (character_id, word_id) in defaults.items():
            if getattr(self, name) is None and self.alphabet == "code_points":
                raise ValueError(f"`{name}` depends on the vocabulary where `alphabet` is 'code_points'; give it.")
            if getattr(self, name) is None:
                setattr(self, name, character_id if self.token_encoder == "char_cnn" else word_id)
            self._whole(name, least=0)
        self._require("pad_token_id", self.pad_token_id == 0, "0")

    def _validate_softmax(self) -> None:
        if self.softmax == "sampled" and self.num_softmax_words is not None:
            is_legal = self.num_softmax_samples <= self.num_softmax_words
            self._require("num_softmax_samples", is_legal, f"at most `num_softmax_words` = {self.num_softmax_words}")
        if self.share_embedding_softmax:
            if self.token_encoder != "word_embedding" or self.softmax == "adaptive":
                raise ValueError(
                    "`share_embedding_softmax` needs `token_encoder` 'word_embedding' and a `softmax` that is not "
                    f"'adaptive', found {self.token_encoder!r} and {self.softmax!r}."
                )
            legal = "None with `share_embedding_softmax`, which needs a word table of width `projection_size`"
            self._require("word_embedding_size", self.word_embedding_size is None, legal)
            legal = f"`vocab_size` - 1 = {self.vocab_size - 1} with `share_embedding_softmax`"
            self._require("num_softmax_words", self.num_softmax_words in (None, self.vocab_size - 1), legal)
        if self.softmax == "adaptive":
            self._validate_cutoffs()

    def _validate_cutoffs(self) -> None:
        cutoffs = self.softmax_cutoffs if isinstance(self.softmax_cutoffs, Sequence) else []
        limits = [0, *cutoffs, self.num_softmax_words or math.inf]
        are_rising = all(_is_whole(cutoff, 1) for cutoff in limits[1:-1]) and limits == sorted(set(limits))
        if len(limits) < 3 or not are_rising:
            raise ValueError(
                "`softmax_cutoffs` of an adaptive softmax must be rising whole numbers between 0 and "
                f"`num_softmax_words` = {self.num_softmax_words}, found {self.softmax_cutoffs!r}."
            )
        if self.projection_size < 4 ** len(cutoffs):
            raise ValueError(
                f"`softmax_cutoffs` has {len(cutoffs)} ranks, which need a `projection_size` of at least "
                f"{4 ** len(cutoffs)}, because each cluster's vectors are a quarter as wide as those before it; "
                f"found {self.projection_size}."
            )
        self.softmax_cutoffs = list(cutoffs)

    def _validate_mixes(self) -> None:
        if self.scalar_mix_weights is not None:
            num_layers = self.num_hidden_layers + 1
            self.scalar_mix_weights = checked_mix_weights("scalar_mix_weights", self.scalar_mix_weights, num_layers)
        self._check(["scalar_mix_l2"], lambda value: _is_number(value) and value >= 0, "a number of at least 0")
        if self.layer_mix == "linear":
            for name in ("scalar_mix_weights", "scalar_mix_trainable", "scalar_mix_layer_norm", "scalar_mix_l2"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ValueError(f"`{name}` belongs to `layer_mix='scalar'`, found it with `layer_mix='linear'`.")

    def _validate_frozen_parts(self) -> None:
        if not isinstance(self.freeze_bilm, bool):
            is_legal = _is_list(self.freeze_bilm) and all(part in self.bilm_parts for part in self.freeze_bilm)
            self._require("freeze_bilm", is_legal, f"True, False or a list of {', '.join(map(repr, self.bilm_parts))}")
            self.freeze_bilm = list(self.freeze_bilm)


def save_code(saved: Any, folder: str | os.PathLike) -> None:
    """Writes this package's code into `folder`, where `saved`, a config, model or tokenizer, is being saved."""
    # A class loaded from a folder has an `_auto_class`; transformers itself copies that folder's code.
    if saved._auto_class is None and __name__.startswith("elmo_hf."):
        # Imported by name, because a saved folder holds this function without that module.
        import_module("elmo_hf.hub_code").write_code(folder)


def checked_mix_weights(name: str, weights: Sequence[float], num_layers: int) -> list[float]:
    """Lists a mix's true weights; a `ValueError` if they are not `num_layers` numbers of at least 0 that sum to 1."""
    if not _is_list(weights) or len(weights) != num_layers:
        raise ValueError(f"`{name}` must list `num_hidden_layers` + 1 = {num_layers} weights, found {weights!r}.")
    if not all(_is_number(weight) and weight >= 0 for weight in weights):
        raise ValueError(f"`{name}` must be numbers of at least 0, found {weights!r}.")
    if abs(sum(weights) - 1) > 1e-4:
        raise ValueError(
            f"`{name}` are true weights and must sum to 1, found a sum of {sum(weights)} in {weights!r}; "
            "AllenNLP's `scalar_mix_parameters` are logits, from before the softmax."
        )
    return [float(weight) for weight in weights]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_list(value: object) -> TypeGuard[Sequence]:
    return isinstance(value, Sequence) and not isinstance(value, str)
