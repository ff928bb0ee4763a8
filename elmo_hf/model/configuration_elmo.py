"""Configuration of an ELMo biLM: every architectural number of Peters et al. (2018), validated once.

One flat record describes all ELMo checkpoints: the character CNN of Kim et al. (2016) or a word embedding as
token encoder, L layers of LSTMP cells (Sak et al. 2014) in two directions that never mix, and the scalar mixes
on top. The defaults are the original model of 93.6 million parameters.

Glossary, used in every file of the package:
    B batch, T words of the longest sentence, C characters per word (`max_word_length`),
    E character embedding (`char_embedding_size`), F filters in total, W word embedding (`word_embedding_size`),
    P projection (`projection_size`), H memory cell (`cell_size`), L layers (`num_hidden_layers`).

Deliberate differences from bilm-tf's `options.json`:
    a clip that is off is `None` (never 0); presence of the two linear projections is a recorded fact
    (`char_projection`, `cell_projection`), which bilm-tf only implies by equal sizes and AllenNLP always assumes;
    the 1.0 that TensorFlow adds to the forget gate when it runs is a number here, so weights stay bit-exact.
"""

import math
import os
from collections.abc import Sequence
from importlib import import_module
from typing import Any

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
CHAR_ACTIVATIONS = ("relu", "tanh")
SCALAR_MIX_LAYER_NORMS = ("none", "batch", "word")
LAYER_MIXES = ("scalar", "linear")
TASK_ENCODERS = ("none", "lstm")
POOLINGS = ("mean", "max", "attention")
SOFTMAXES = ("full", "sampled", "adaptive")
ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# Every class a saved folder can open, whichever of them wrote it: transformers itself would record only the writer.
AUTO_MAP = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoModelForSequenceClassification": "modeling_elmo.ElmoForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_elmo.ElmoForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_elmo.ElmoForQuestionAnswering",
    "AutoModelForPreTraining": "modeling_elmo.ElmoForPreTraining",
}


class ElmoConfig(PreTrainedConfig):
    """The numbers of one ELMo model; the defaults are the original 93.6M-parameter model.

    Args:
        token_encoder: `"char_cnn"` (ids of shape (B, T, C)) or `"word_embedding"` (ids of shape (B, T)).
        alphabet: what a character is: `"bytes"`, whose ids are the same in every model, or `"code_points"`, whose ids
            are those of the tokenizer's vocabulary (ELMoForManyLangs).
        vocab_size: number of input ids, the padding id 0 included: 262 characters, or words + 1, or both.
        num_input_words: with `"char_cnn"`, how many of the ids, the last ones, are words. Where there are any, the id
            of the word ends its row (ids of shape (B, T, C + 1)) and its vector stands before the CNN's features.
        word_embedding_size: W, width of those word vectors. With `"word_embedding"`: width of the table where a linear
            layer maps W to P; None where the table is P wide and there is no such layer (bilm-tf).
        max_word_length: C, length of a word's row of character ids, its begin and end marks included.
        char_embedding_size: E.
        char_filters: [width, count] of each convolution, in order; widths are in characters.
        char_activation: `"relu"` or `"tanh"`, applied to the convolutions only.
        num_highway_layers: highway layers between convolutions and projection, 0 or more.
        char_projection: whether a linear layer maps F (with word vectors: W + F) to P. None: exactly when the two
            differ (bilm-tf's rule).
        projection_size: P, width of a token vector, of one direction's output and of its recurrent state.
        cell_size: H, width of the memory cell.
        num_hidden_layers: L.
        cell_projection: whether a linear layer maps H to P. None: exactly when H and P differ (bilm-tf's rule).
        cell_clip: limit of the memory cell's absolute values, or None.
        projection_clip: limit of the projected output's absolute values, or None.
        use_skip_connections: from the second layer on, add a layer's input to its output.
        forget_bias: added to the forget gate at run time: 1.0 for TensorFlow weights, 0.0 where the bias is complete.
        hidden_size: 2P, the width of every output; a contradicting value is an error.
        num_output_representations: how many independent scalar mixes the model computes.
        representation_dropout: dropout on each mixed representation, in training only.
        scalar_mix_weights: L+1 true weights (they sum to 1) that every mix is set to when a model is made or loaded;
            None: those of the checkpoint, or else equal weights. Saved folders have None here.
        scalar_mix_trainable: whether mixes learn; if False their parameters have `requires_grad=False`.
        scalar_mix_layer_norm: `"none"`; `"batch"`: AllenNLP's, one mean and variance over the whole batch, which
            makes a vector depend on its batch mates; `"word"`: each word vector on its own.
        scalar_mix_l2: the paper's lambda; in training, this times the squares of the mixes' logits is added to a
            task's loss, which pulls the weights to equal ones.
        layer_mix: how a representation is made of the layers: `"scalar"`, the paper's mix, or `"linear"`, a learned
            linear layer over the L+1 layers side by side, which starts as their mean.
        freeze_bilm: of models for a task, what does not learn: True: the whole biLM; False: nothing; or a list of its
            parts, `"token_encoder"`, `"layer_1"` to `"layer_L"`.
        task_encoder: between ELMo and a task's classifier: `"none"`, or `"lstm"`, a bidirectional LSTM over [x; ELMo],
            where x is the context-free word vector; with two representations, the second is put beside its output.
        task_hidden_size: cell of each direction of the task's LSTM.
        classifier_dropout: dropout before a task's classifier, in training only.
        pooling: how `ElmoForSequenceClassification` makes one vector of a text's words: `"mean"`, `"max"` or
            `"attention"`.
        text_pairs: whether `ElmoForSequenceClassification` compares pairs of texts.
        use_crf: whether `ElmoForTokenClassification` scores label sequences by a linear-chain CRF.
        num_softmax_words: V, words of the language models' vocabulary, `<S>`, `</S>` and `<UNK>` included; None: the
            folder holds no language model.
        softmax: how training computes the loss over V words: `"full"`, `"sampled"` (words must be numbered by falling
            frequency) or `"adaptive"` (likewise). Evaluation is exact with each of them.
        num_softmax_samples: words drawn for each batch and direction where the softmax is sampled.
        softmax_cutoffs: ranks at which the clusters of the adaptive softmax begin, rising.
        share_embedding_softmax: with word input, whether the softmax's matrix is the word embedding.
        lm_dropout: dropout in language-model training, on the input of each biLM layer and on the top output.
        pad_token_id: always 0.
        bos_token_id: id that marks `<S>`; None: 257 for bytes, 1 for words; code points have no default.
        eos_token_id: id that marks `</S>`; None: 258 for bytes, 2 for words; code points have no default.

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
        """Fills what follows from other fields, then validates; `kwargs` are transformers' own fields."""
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)
        self.validate_architecture()

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Saves as every transformers config, and the code that opens the folder elsewhere."""
        save_code(self, save_directory)
        super().save_pretrained(save_directory, *args, **kwargs)

    def validate_architecture(self) -> None:
        """Resolves the fields left None and checks all of them.

        Models call it once more, because `from_pretrained(..., field=value)` sets fields after construction.

        Raises:
            ValueError: naming the field, the legal values and the value found.
        """
        self._one_of("token_encoder", TOKEN_ENCODERS)
        self._one_of("alphabet", ALPHABETS)
        self._one_of("char_activation", CHAR_ACTIVATIONS)
        self._one_of("scalar_mix_layer_norm", SCALAR_MIX_LAYER_NORMS)
        self._one_of("softmax", SOFTMAXES)
        self._whole("vocab_size", least=1)
        self._whole("max_word_length", least=3)
        self._whole("char_embedding_size", least=1)
        self._whole("num_highway_layers", least=0)
        self._whole("projection_size", least=1)
        self._whole("cell_size", least=1)
        self._whole("num_hidden_layers", least=1)
        self._whole("num_output_representations", least=1)
        self._clip("cell_clip")
        self._clip("projection_clip")
        self._flag("use_skip_connections")
        self._flag("scalar_mix_trainable")
        if not _is_number(self.forget_bias):
            raise ValueError(f"`forget_bias` must be a finite number, found {self.forget_bias!r}.")
        self._rate("representation_dropout")
        self._rate("lm_dropout")
        self._validate_filters()
        self._validate_word_vectors()
        self.char_projection = self._projection("char_projection", self.num_filters + (self.word_embedding_size or 0))
        self.cell_projection = self._projection("cell_projection", self.cell_size)
        self._validate_hidden_size()
        self._validate_special_ids()
        self._validate_scalar_mix_weights()
        self._validate_task_fields()
        self._validate_softmax()

    @property
    def num_filters(self) -> int:
        """F, the sum of the filter counts."""
        return sum(count for _, count in self.char_filters)

    @property
    def num_characters(self) -> int:
        """How many of the input ids are characters; they follow the padding id, and words follow them."""
        return self.vocab_size - 1 - self.num_input_words

    @property
    def id_shape(self) -> tuple[int, ...]:
        """Shape of one word's ids: `()`, `(C,)` or `(C + 1,)`."""
        if self.token_encoder == "word_embedding":
            return ()
        return (self.max_word_length + (self.num_input_words > 0),)

    @property
    def bilm_parts(self) -> list[str]:
        """The parts of the biLM that `freeze_bilm` can name."""
        return ["token_encoder", *(f"layer_{number}" for number in range(1, self.num_hidden_layers + 1))]

    @property
    def frozen_parts(self) -> list[str]:
        """Those of `bilm_parts` that do not learn in models for a task."""
        if isinstance(self.freeze_bilm, bool):
            return self.bilm_parts if self.freeze_bilm else []
        return list(self.freeze_bilm)

    def _one_of(self, name: str, legal: tuple[str, ...]) -> None:
        if getattr(self, name) not in legal:
            raise ValueError(f"`{name}` must be one of {', '.join(map(repr, legal))}, found {getattr(self, name)!r}.")

    def _whole(self, name: str, least: int) -> None:
        if not _is_whole(getattr(self, name), least):
            raise ValueError(f"`{name}` must be a whole number of at least {least}, found {getattr(self, name)!r}.")

    def _clip(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and not (_is_number(value) and value > 0):
            raise ValueError(f"`{name}` must be a positive number, or None to switch it off, found {value!r}.")

    def _flag(self, name: str) -> None:
        if not isinstance(getattr(self, name), bool):
            raise ValueError(f"`{name}` must be True or False, found {getattr(self, name)!r}.")

    def _rate(self, name: str) -> None:
        value = getattr(self, name)
        if not (_is_number(value) and 0 <= value < 1):
            raise ValueError(f"`{name}` must be in [0, 1), found {value!r}.")

    def _validate_filters(self) -> None:
        filters = self.char_filters
        if not isinstance(filters, Sequence) or isinstance(filters, str) or len(filters) == 0:
            raise ValueError(f"`char_filters` must be a list of [width, count] pairs, found {filters!r}.")
        for index, pair in enumerate(filters):
            pair_is_legal = isinstance(pair, Sequence) and len(pair) == 2 and all(_is_whole(n, 1) for n in pair)
            if not pair_is_legal:
                raise ValueError(f"`char_filters` must be [width, count] pairs, found {pair!r} at index {index}.")
            if pair[0] > self.max_word_length:
                raise ValueError(
                    f"`char_filters` may be at most `max_word_length` = {self.max_word_length} characters wide, "
                    f"found {pair!r} at index {index}."
                )
        self.char_filters = [list(pair) for pair in filters]

    def _validate_word_vectors(self) -> None:
        self._whole("num_input_words", least=0)
        if self.word_embedding_size is not None:
            self._whole("word_embedding_size", least=1)
        if self.token_encoder == "word_embedding" and self.num_input_words > 0:
            raise ValueError(f"`num_input_words` is for character models, found {self.num_input_words} for word input.")
        if self.token_encoder == "char_cnn" and (self.num_input_words > 0) != (self.word_embedding_size is not None):
            raise ValueError(
                "`num_input_words` and `word_embedding_size` go together in a character model, found "
                f"{self.num_input_words} and {self.word_embedding_size}."
            )
        if self.num_input_words >= self.vocab_size:
            raise ValueError(
                f"`num_input_words` must be below `vocab_size` = {self.vocab_size}, found {self.num_input_words}."
            )

    def _projection(self, name: str, input_size: int) -> bool:
        value = getattr(self, name)
        if value is None:
            return input_size != self.projection_size
        self._flag(name)
        if not value and input_size != self.projection_size:
            raise ValueError(
                f"`{name}` can be False only where its input is as wide as `projection_size` = "
                f"{self.projection_size}, found {input_size}."
            )
        return value

    def _validate_hidden_size(self) -> None:
        if self.hidden_size is None:
            self.hidden_size = 2 * self.projection_size
        if self.hidden_size != 2 * self.projection_size:
            raise ValueError(
                f"`hidden_size` is always 2 * `projection_size` = {2 * self.projection_size}, "
                f"found {self.hidden_size!r}; leave it out."
            )

    def _validate_special_ids(self) -> None:
        defaults = {"bos_token_id": (BEGIN_SENTENCE_ID, 1), "eos_token_id": (END_SENTENCE_ID, 2)}
        for name, (character_id, word_id) in defaults.items():
            if getattr(self, name) is None and self.alphabet == "code_points":
                raise ValueError(f"`{name}` depends on the vocabulary where `alphabet` is 'code_points'; give it.")
            if getattr(self, name) is None:
                setattr(self, name, character_id if self.token_encoder == "char_cnn" else word_id)
            self._whole(name, least=0)
        if self.pad_token_id != 0:
            raise ValueError(f"`pad_token_id` is always 0, found {self.pad_token_id!r}.")

    def _validate_softmax(self) -> None:
        self._flag("share_embedding_softmax")
        self._whole("num_softmax_samples", least=1)
        if self.num_softmax_words is not None:
            self._whole("num_softmax_words", least=3)
        if self.softmax == "sampled" and self.num_softmax_samples > (
            self.num_softmax_words or self.num_softmax_samples
        ):
            raise ValueError(
                f"`num_softmax_samples` may be at most `num_softmax_words` = {self.num_softmax_words}, "
                f"found {self.num_softmax_samples}."
            )
        if self.share_embedding_softmax:
            if self.token_encoder != "word_embedding" or self.softmax == "adaptive":
                raise ValueError(
                    "`share_embedding_softmax` needs `token_encoder` 'word_embedding' and a `softmax` that is not "
                    f"'adaptive', found {self.token_encoder!r} and {self.softmax!r}."
                )
            if self.word_embedding_size is not None:
                raise ValueError(
                    "`share_embedding_softmax` needs a word embedding as wide as `projection_size`, without a layer "
                    f"between them: `word_embedding_size` must be None, found {self.word_embedding_size}."
                )
            if self.num_softmax_words not in (None, self.vocab_size - 1):
                raise ValueError(
                    f"with `share_embedding_softmax`, `num_softmax_words` is `vocab_size` - 1 = {self.vocab_size - 1}, "
                    f"found {self.num_softmax_words}."
                )
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

    def _validate_scalar_mix_weights(self) -> None:
        if self.scalar_mix_weights is not None:
            self.scalar_mix_weights = checked_mix_weights(
                "scalar_mix_weights", self.scalar_mix_weights, self.num_hidden_layers + 1
            )

    def _validate_task_fields(self) -> None:
        self._one_of("layer_mix", LAYER_MIXES)
        self._one_of("task_encoder", TASK_ENCODERS)
        self._one_of("pooling", POOLINGS)
        self._whole("task_hidden_size", least=1)
        self._rate("classifier_dropout")
        self._flag("text_pairs")
        self._flag("use_crf")
        if not (_is_number(self.scalar_mix_l2) and self.scalar_mix_l2 >= 0):
            raise ValueError(f"`scalar_mix_l2` must be a number of at least 0, found {self.scalar_mix_l2!r}.")
        if self.layer_mix == "linear":
            for name in ("scalar_mix_weights", "scalar_mix_trainable", "scalar_mix_layer_norm", "scalar_mix_l2"):
                if getattr(self, name) != getattr(type(self), name):
                    raise ValueError(f"`{name}` belongs to `layer_mix='scalar'`, found it with `layer_mix='linear'`.")
        if not isinstance(self.freeze_bilm, bool):
            is_list = isinstance(self.freeze_bilm, Sequence) and not isinstance(self.freeze_bilm, str)
            if not is_list or any(part not in self.bilm_parts for part in self.freeze_bilm):
                raise ValueError(
                    f"`freeze_bilm` must be True, False or a list of {', '.join(map(repr, self.bilm_parts))}, "
                    f"found {self.freeze_bilm!r}."
                )
            self.freeze_bilm = list(self.freeze_bilm)


def save_code(saved: Any, folder: str | os.PathLike) -> None:
    """Writes this package's code into a folder in which `saved`, a config, a model or a tokenizer, is being saved.

    An object whose class was loaded from a folder has an `_auto_class`; transformers copies that folder's code itself.
    """
    if saved._auto_class is None and __name__.startswith("elmo_hf."):
        # Imported by its name, because a saved folder, where this function stands too, has no such file.
        import_module("elmo_hf.hub_code").write_code(folder)


def checked_mix_weights(name: str, weights: Sequence[float], num_layers: int) -> list[float]:
    """Returns the true weights of a scalar mix as a list.

    Raises:
        ValueError: if `weights` are not `num_layers` numbers of at least 0 that sum to 1.
    """
    if isinstance(weights, str) or not isinstance(weights, Sequence) or len(weights) != num_layers:
        raise ValueError(f"`{name}` must list `num_hidden_layers` + 1 = {num_layers} weights, found {weights!r}.")
    if not all(_is_number(weight) and weight >= 0 for weight in weights):
        raise ValueError(f"`{name}` must be numbers of at least 0, found {weights!r}.")
    if abs(sum(weights) - 1) > 1e-4:
        raise ValueError(
            f"`{name}` are true weights and must sum to 1, found a sum of {sum(weights)} in {weights!r}; "
            "AllenNLP's `scalar_mix_parameters` are the numbers before the softmax."
        )
    return [float(weight) for weight in weights]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
