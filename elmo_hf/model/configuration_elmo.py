"""Configuration of an ELMo biLM (Peters et al. 2018): one flat record for every checkpoint, validated in one place.

A model is a token encoder (the character CNN of Kim et al. 2016, or a word embedding), L layers of LSTMP cells (Sak et
al. 2014) in two directions that never mix, and scalar mixes on top.

Glossary of the whole package: B batch, T words of the longest sentence, C characters per word (`max_word_length`),
E character embedding (`char_embedding_size`), F filters in total, W word embedding (`word_embedding_size`),
P projection (`projection_size`), H memory cell (`cell_size`), L layers (`num_hidden_layers`). Widths 2P and 2H are for
two directions; a model of one (`bidirectional`) has P and H there, and the token vector once in its first layer.

Deliberate differences from bilm-tf's `options.json`: None (never 0) switches a clip off; a field records whether each
linear projection exists (`char_projection`, `cell_projection`), where bilm-tf infers it from sizes and AllenNLP always
assumes it; the 1.0 that TensorFlow adds to the forget gate at run time is `forget_bias`, so weights stay bit-exact.
"""

import os
from collections.abc import Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

from transformers import PreTrainedConfig
from transformers.utils import logging

from .config_fields import (
    MOST_CRF_LABELS,
    MOST_FILTER_COUNT,
    MOST_FILTERS,
    MOST_SPECIAL_ID,
    TRANSFORMERS_ARGUMENTS,
    TRANSFORMERS_FIELDS,
    check_fields,
    check_transformers_fields,
    checked_mix_weights,
    is_list,
    is_number,
    is_whole,
    refuse_misspelt,
    require,
    require_whole,
    shorten,
    unknown_name,
)
from .saved_json import read_json

logger = logging.get_logger(__name__)

# What a user of a saved folder lacks, and where to get it: for errors and cards.
ELMO_HF = "the package elmo-hf (`pip install .` in a clone of its repository)"

# Input ids of characters: bytes are 1 to 256.
PADDING_ID = 0
BEGIN_SENTENCE_ID = 257
END_SENTENCE_ID = 258
BEGIN_WORD_ID = 259
END_WORD_ID = 260
FILLER_ID = 261
NUM_CHARACTER_IDS = 262

ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# Every class that can open a saved folder; transformers alone would record only the class that wrote it.
HEADS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "PreTraining")
AUTO_MAP = {"AutoConfig": "configuration_elmo.ElmoConfig", "AutoModel": "modeling_elmo.ElmoModel"} | {
    f"AutoModelFor{head}": f"heads_elmo.ElmoFor{head}" for head in HEADS
}


class Pipelines(dict):
    """A folder's pipelines by task; transformers asks for "ner" here before it resolves that name."""

    def __contains__(self, task: object) -> bool:
        """Whether there is a pipeline."""
        return super().__contains__("token-classification" if task == "ner" else task)

    def __missing__(self, task: str) -> Any:
        """The pipeline of "ner"."""
        return self[{"ner": "token-classification"}[task]]


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
        bidirectional: whether there is a backward direction; a model without one is a forward language model.
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
        word_vectors: a task's own word vectors beside ELMo: `num_words` with `<S>`, `</S>` and `<UNK>`, `size`, and
            whether they are `trainable`. None: the biLM's context-free vectors.
        classifier_dropout: dropout before a task's classifier, in training only.
        pooling: how one vector is made of a text's words: `"mean"`, `"max"`, or, with a classifier, `"attention"`.
        text_pairs: whether `ElmoForSequenceClassification` compares pairs of texts.
        use_crf: whether `ElmoForTokenClassification` scores label sequences by a linear-chain CRF.
        num_softmax_words: V, words of the language models, with `<S>`, `</S>` and `<UNK>`; None: no language models.
        softmax: how training computes the loss over V words: `"full"` or `"sampled"`, which needs words
            in order of falling frequency. Evaluation is always exact.
        num_softmax_samples: words drawn for each batch and direction by the sampled softmax.
        share_embedding_softmax: with word input, whether the word embedding is also the softmax's matrix.
        lm_dropout: dropout in language-model training, on the input of each biLM layer and on the top output.
        pad_token_id: always 0.
        bos_token_id: id of `<S>`; None: 257 for bytes, 1 for words; code points have no default.
        eos_token_id: id of `</S>`; None: 258 for bytes, 2 for words; code points have no default.

    Raises:
        ValueError: naming the field, the legal values and the value found.
    """

    model_type = "elmo"
    keys_to_ignore_at_inference = ["state_hidden", "state_cell"]

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
    bidirectional: bool = True
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
    word_vectors: dict[str, Any] | None = None
    classifier_dropout: float = 0.0
    pooling: str = "mean"
    text_pairs: bool = False
    use_crf: bool = False
    num_softmax_words: int | None = None
    softmax: str = "full"
    num_softmax_samples: int = 8192
    share_embedding_softmax: bool = False
    lm_dropout: float = 0.1
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Resolves and validates all fields; `kwargs` are transformers' own."""
        for name in kwargs.keys() - TRANSFORMERS_FIELDS.keys() - TRANSFORMERS_ARGUMENTS:
            if not name.startswith("_"):
                raise unknown_name("`ElmoConfig`", name, self._names())
        check_transformers_fields(kwargs)
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)
        self.validate_architecture()

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a field; transformers' own are checked here, because each version of it checks others."""
        check_transformers_fields({name: value})
        super().__setattr__(name, Pipelines(value) if name == "custom_pipelines" and value else value)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """Reads a `config.json`, as every transformers config does.

        Raises:
            OSError: if there is none.
            ValueError: naming the file and the field, if one is not legal, or if one in `kwargs` does not exist.
        """
        is_asked_for_rest = kwargs.pop("return_unused_kwargs", False)
        is_from_auto = "_from_auto" in kwargs
        try:
            config, rest = super().from_pretrained(pretrained_model_name_or_path, return_unused_kwargs=True, **kwargs)
        except ValueError as error:
            prefix = "" if "config.json" in str(error) else f"config.json of {pretrained_model_name_or_path}: "
            raise ValueError(f"{prefix}{error}") from error
        if is_asked_for_rest:
            return config, rest
        for name in () if is_from_auto else rest:
            raise unknown_name("`ElmoConfig`", name, cls._names())
        return config

    @classmethod
    def get_config_dict(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> Any:
        """Reads the fields of a `config.json`; raises OSError if there is none."""
        config, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if not config.keys() - {"_commit_hash"}:
            raise OSError(f"{pretrained_model_name_or_path} has no config.json with the fields of a model.")
        return config, kwargs

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Makes a config of saved fields; warns of those that a newer version may have added, and ignores them.

        Raises:
            ValueError: naming the field, if one is not legal.
        """
        if config_dict.get("model_type", cls.model_type) != cls.model_type:
            raise ValueError(f"`model_type` must be {cls.model_type!r}, found {shorten(config_dict['model_type'])}.")
        known = {name: config_dict[name] for name in config_dict.keys() & (cls._names() | TRANSFORMERS_FIELDS.keys())}
        ignored = sorted(config_dict.keys() - known.keys() - TRANSFORMERS_ARGUMENTS)
        refuse_misspelt("config.json", config_dict.keys(), cls._names())
        if ignored:
            logger.warning(f"A saved config has fields that this version ignores: {', '.join(ignored)}.")
        return super().from_dict(known, **kwargs)

    @classmethod
    def _dict_from_json_file(cls, json_file: str | os.PathLike) -> dict[str, Any]:
        content = read_json(json_file)
        if "configuration_files" in content:
            raise ValueError(f"{json_file}: `configuration_files` names other files, which are not read.")
        return cls._decode_special_floats(content)

    @classmethod
    def _names(cls) -> set[str]:
        """Names of all fields."""
        return {field.name for field in fields(cls)}

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Saves like every transformers config, with the code that opens the folder elsewhere."""
        save_code(self, save_directory)
        super().save_pretrained(save_directory, **({} if push_to_hub else kwargs))
        if push_to_hub:  # transformers itself would push only what is written while it saves
            self.push_to_hub(kwargs.pop("repo_id", os.path.basename(save_directory)), **kwargs)

    def validate_architecture(self) -> None:
        """Resolves the fields left None and checks all of them."""
        check_fields(self)
        self._validate_filters()
        self._validate_word_vectors()
        self.char_projection = self._projection("char_projection", self.num_filters + (self.word_embedding_size or 0))
        self.cell_projection = self._projection("cell_projection", self.cell_size)
        width = self.num_directions * self.projection_size
        legal = f"left out, or {self.num_directions} * `projection_size` = {width}"
        require(self, "hidden_size", self.hidden_size in (None, width), legal)
        self.hidden_size = width
        self._validate_special_ids()
        self._validate_mixes()
        self._validate_frozen_parts()
        self._validate_labels()
        self._validate_softmax()

    @property
    def num_directions(self) -> int:
        """1 or 2."""
        return 1 + self.bidirectional

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
        frozen = self.freeze_bilm
        return [part for part in self.bilm_parts if (frozen if isinstance(frozen, bool) else part in (frozen or ()))]

    def _validate_filters(self) -> None:
        filters = self.char_filters
        require(self, "char_filters", is_list(filters) and len(filters) > 0, "a list of [width, count] pairs")
        require(self, "char_filters", len(filters) <= MOST_FILTERS, f"at most {MOST_FILTERS} pairs")
        for index, pair in enumerate(filters):
            if not (isinstance(pair, Sequence) and len(pair) == 2 and all(is_whole(n, 1) for n in pair)):
                raise ValueError(
                    f"`char_filters` must be [width, count] pairs, found {shorten(pair)} at index {index}."
                )
            if pair[1] > MOST_FILTER_COUNT:
                raise ValueError(f"a count of `char_filters` is at most {MOST_FILTER_COUNT}, found {pair[1]}.")
            if pair[0] > self.max_word_length:
                raise ValueError(
                    f"`char_filters` may be at most `max_word_length` = {self.max_word_length} characters wide, "
                    f"found {shorten(pair)} at index {index}."
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
        require(self, "num_input_words", self.num_input_words < self.vocab_size, legal)

    def _projection(self, name: str, input_size: int) -> bool:
        value = getattr(self, name)
        if value is None:
            return input_size != self.projection_size
        require(self, name, isinstance(value, bool), "True or False")
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
            require_whole(self, name, 0, MOST_SPECIAL_ID)
        require(self, "pad_token_id", self.pad_token_id == 0, "0")

    def _validate_labels(self) -> None:
        labels = self.id2label or {}
        if sorted(labels) != [*range(len(labels))]:
            raise ValueError(f"`id2label` must name the labels 0, 1, 2 and so on, found {shorten([*labels])}.")
        if self.use_crf:
            require(self, "id2label", len(labels) <= MOST_CRF_LABELS, f"at most {MOST_CRF_LABELS} names with `use_crf`")

    def _validate_softmax(self) -> None:
        if self.softmax == "sampled" and self.num_softmax_words is not None:
            is_legal = self.num_softmax_samples <= self.num_softmax_words
            require(self, "num_softmax_samples", is_legal, f"at most `num_softmax_words` = {self.num_softmax_words}")
        if self.share_embedding_softmax:
            if self.token_encoder != "word_embedding":
                raise ValueError(
                    f"`share_embedding_softmax` needs `token_encoder` 'word_embedding', found {self.token_encoder!r}."
                )
            legal = "None with `share_embedding_softmax`, which needs a word table of width `projection_size`"
            require(self, "word_embedding_size", self.word_embedding_size is None, legal)
            legal = f"`vocab_size` - 1 = {self.vocab_size - 1} with `share_embedding_softmax`"
            require(self, "num_softmax_words", self.num_softmax_words in (None, self.vocab_size - 1), legal)

    def _validate_mixes(self) -> None:
        if self.scalar_mix_weights is not None:
            num_layers = self.num_hidden_layers + 1
            self.scalar_mix_weights = checked_mix_weights("scalar_mix_weights", self.scalar_mix_weights, num_layers)
        is_legal = is_number(self.scalar_mix_l2) and self.scalar_mix_l2 >= 0
        require(self, "scalar_mix_l2", is_legal, "a number of at least 0")
        if self.layer_mix == "linear":
            for name in ("scalar_mix_weights", "scalar_mix_trainable", "scalar_mix_layer_norm", "scalar_mix_l2"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ValueError(f"`{name}` belongs to `layer_mix='scalar'`, found it with `layer_mix='linear'`.")

    def _validate_frozen_parts(self) -> None:
        if not isinstance(self.freeze_bilm, bool):
            is_legal = is_list(self.freeze_bilm) and all(part in self.bilm_parts for part in self.freeze_bilm)
            require(self, "freeze_bilm", is_legal, f"True, False or a list of {', '.join(map(repr, self.bilm_parts))}")
            self.freeze_bilm = list(self.freeze_bilm)


def save_code(saved: Any, folder: str | os.PathLike) -> None:
    """Writes this package's code into `folder`, where `saved`, a config, model or tokenizer, is being saved."""
    # A class loaded from a folder has an `_auto_class`; transformers itself copies that folder's code.
    if saved._auto_class is None and __name__.startswith("elmo_hf."):
        # Imported by name, because a saved folder holds this function without that module.
        import_module("elmo_hf.hub_code").write_code(folder)
