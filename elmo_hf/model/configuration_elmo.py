# elmo-hf 0.1.0: ELMo (Peters et al. 2018) as a transformers model. Apache License 2.0.
# Source: elmo_hf/model/ of the package elmo-hf; `elmo-hf info FOLDER` compares a folder's code with it.
"""Configuration of an ELMo biLM (Peters et al. 2018): one flat record for every checkpoint, validated in one place.

A model is a token encoder (the character CNN of Kim et al. 2016, or a word embedding), L layers of LSTMP cells (Sak et
al. 2014) in two directions that never mix, and scalar mixes on top.

Glossary of the whole package; a section's own glossary overrides this one: B batch, T words of the longest sentence, C
characters per word (`max_word_length`), E character embedding (`char_embedding_size`), F filters in total, W word
embedding (`word_embedding_size`), P projection (`projection_size`), H memory cell (`cell_size`), L layers
(`num_hidden_layers`). Widths 2P and 2H are for two directions; a model of one direction (`bidirectional=False`) has P
and H. Layer 0 is the token vector: twice, side by side, with two directions, and once with one.

Deliberate differences from bilm-tf's `options.json`: None (never 0) switches a clip off; fields record whether a linear
projection exists (`char_projection`, `cell_projection`), which bilm-tf infers from sizes and AllenNLP always assumes;
the 1.0 that TensorFlow adds to the forget gate at run time is `forget_bias`, so weights stay bit-exact.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from huggingface_hub.dataclasses import strict, validated_field
from transformers import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

# The files of code in a saved folder, copies of those beside this one.
CODE_FOLDER = Path(__file__).parent
CODE_FILES = (
    "configuration_elmo.py",
    "tokenization_elmo.py",
    "scan_elmo.py",
    "layers_elmo.py",
    "modeling_elmo.py",
    "heads_elmo.py",
    "language_model_elmo.py",
)
# Whether transformers runs this file as the code of a saved folder; it then saves that folder's code itself.
IS_CODE_OF_FOLDER = __name__.startswith("transformers_modules.")
# A file of the code is written within a second, so an unfinished one of this age was abandoned.
SECONDS_UNTIL_ABANDONED = 3600
# The package, which a user of a saved folder may lack: for errors and cards.
ELMO_HF = "the package elmo-hf (`pip install .` in a clone of its repository)"

# Input ids of characters: bytes are 1 to 256.
PADDING_ID = 0
BEGIN_SENTENCE_ID = 257
END_SENTENCE_ID = 258
BEGIN_WORD_ID = 259
END_WORD_ID = 260
FILLER_ID = 261
NUM_CHARACTER_IDS = 262
# Of a word's ids: its begin and end marks, and one character.
LEAST_WORD_LENGTH = 3

ORIGINAL_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

# Every class that can open a saved folder; transformers alone would record only the class that wrote it.
AUTO_MAP = {
    "AutoConfig": "configuration_elmo.ElmoConfig",
    "AutoModel": "modeling_elmo.ElmoModel",
    "AutoModelForSequenceClassification": "heads_elmo.ElmoForSequenceClassification",
    "AutoModelForTokenClassification": "heads_elmo.ElmoForTokenClassification",
    "AutoModelForQuestionAnswering": "heads_elmo.ElmoForQuestionAnswering",
    "AutoModelForPreTraining": "language_model_elmo.ElmoForPreTraining",
    "AutoModelForCausalLM": "language_model_elmo.ElmoForCausalLM",
}
# Attributes that are not fields; transformers and this package set them.
EXTRA_ATTRIBUTES = {
    "auto_map",
    "custom_pipelines",
    "quantization_config",
    "task_specific_params",
    "tie_word_embeddings",
}
# Rules that several fields share: each in words, and as a check.
RATE = ("in [0, 1)", lambda value: 0 <= value < 1)
CLIP = ("a positive number, or None to switch it off", lambda value: 0 < value < math.inf)
# The rule of the field `word_vectors` in words; `are_word_vectors` checks it.
WORD_VECTORS = "a dict of `num_words`, at least 3, `size`, at least 1, and `trainable`, True or False"


class Pipelines(dict):
    """A folder's pipelines by task; transformers looks up "ner" here before it resolves that name."""

    def __contains__(self, task: object) -> bool:
        """Whether there is a pipeline."""
        return super().__contains__("token-classification" if task == "ner" else task)

    def __missing__(self, task: str) -> Any:
        """The pipeline of "ner"; raises KeyError for others, as every dict does."""
        if task != "ner":
            raise KeyError(task)
        return self["token-classification"]


def field(name: str, default: Any, legal: str, is_legal: Callable[[Any], bool]) -> Any:
    """A field with a check beyond its type; the check always allows None. The name is for its error."""

    def check(value: Any) -> None:
        require(value is None or is_legal(value), name, legal, value)

    return validated_field(check, default=default)


def at_least(name: str, least: int, default: float | None) -> Any:
    """A field whose number is `least` or more."""
    return field(name, default, f"at least {least}", lambda value: least <= value < math.inf)


def are_filters(value: Sequence) -> bool:
    """Whether these are pairs of a width and a count."""
    if len(value) == 0:
        return False
    for pair in value:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            return False
        width, count = pair
        if type(width) is not int or type(count) is not int:
            return False
        if width < 1 or count < 1:
            return False
    return True


def are_word_vectors(value: dict[str, int | bool]) -> bool:
    """Whether this describes a task's own word vectors, as `WORD_VECTORS` says."""
    if value.keys() != {"num_words", "size", "trainable"}:
        return False
    num_words, size = value["num_words"], value["size"]
    if type(num_words) is not int or type(size) is not int:
        return False
    return num_words >= 3 and size >= 1 and isinstance(value["trainable"], bool)


def require(is_legal: bool, name: str, legal: str, found: object) -> None:
    """Raises ValueError with the name, the legal values and the value found, unless the value is legal."""
    if not is_legal:
        raise ValueError(f"`{name}` must be {legal}, found {found!r:.200}.")


def check_mix_weights(name: str, weights: Sequence[float], num_layers: int) -> None:
    """Raises ValueError unless a mix's true weights are `num_layers` numbers of at least 0 that sum to 1."""
    are_numbers = len(weights) == num_layers and all(isinstance(each, (int, float)) for each in weights)
    is_legal = are_numbers and min(weights) >= 0 and abs(sum(weights) - 1) <= 1e-4
    legal = f"{num_layers} true weights of at least 0 that sum to 1 (AllenNLP's `scalar_mix_parameters` are logits)"
    require(is_legal, name, legal, weights)


@strict
class ElmoConfig(PreTrainedConfig):
    """Configuration of one ELMo model; the defaults are the original model of 93.6 million parameters.

    An unknown name is kept and saved, with a warning.

    Args:
        token_encoder: `"char_cnn"` (ids of shape (B, T, C)) or `"word_embedding"` (ids of shape (B, T)).
        alphabet: `"bytes"`, the same ids in all models, or `"code_points"`, ids from a vocabulary (ELMoForManyLangs).
        vocab_size: number of input ids, padding id 0 included: characters + words + 1; 262 for bytes alone.
        num_input_words: with `"char_cnn"`, how many of the last ids are words. If above 0, a word's id follows its
            characters (ids of shape (B, T, C + 1)) and its vector precedes the CNN's features.
        word_embedding_size: W, width of those word vectors. With `"word_embedding"`, width of a table that a linear
            layer maps to P; None for a table of width P without that layer (bilm-tf).
        max_word_length: C, characters per word, including its begin and end marks; at least the widest filter's width.
        char_embedding_size: E.
        char_filters: [width, count] of each convolution, in order; widths in characters.
        char_activation: `"relu"` or `"tanh"`, of the convolutions only.
        num_highway_layers: highway layers between convolutions and projection, 0 or more.
        char_projection: whether a linear layer maps F (with word vectors, W + F) to P; None: if sizes differ (bilm-tf).
        projection_size: P, width of a token vector, of one direction's output and of its recurrent state.
        cell_size: H, width of the memory cell.
        num_hidden_layers: L.
        bidirectional: whether there is a backward direction; a model without one is a forward language model.
        cell_projection: whether a linear layer maps H to P; None: if sizes differ (bilm-tf).
        cell_clip: limit of the memory cell's absolute values; None means unlimited.
        projection_clip: limit of the projected output's absolute values; None means unlimited.
        use_skip_connections: from the second layer on, add a layer's input to its output.
        forget_bias: added to the forget gate at run time: 1.0 for TensorFlow weights, 0.0 if the bias includes it.
        aligned_layers: layers (0: token vectors) that a matrix of the checkpoint maps into the space of another
            language's model (see `BiLM`); None: none. Not for language models.
        hidden_size: width of the ELMo vectors, 2P (P with one direction); another value is an error.
        num_output_representations: how many independent scalar mixes the model computes.
        representation_dropout: dropout on each mixed representation, in training only.
        scalar_mix_weights: L+1 true weights (summing to 1) that every scalar mix gets, with a scale of 1, when a model
            is made or loaded. None: the checkpoint's weights, or else equal ones. Saved folders have None here.
        scalar_mix_trainable: whether mixes learn; if False their parameters have `requires_grad=False`.
        scalar_mix_layer_norm: `"none"`; `"batch"`, as in AllenNLP: one mean and variance for the whole batch, so a
            vector depends on the other texts of its batch; `"word"`: each word vector by itself.
        scalar_mix_l2: the paper's lambda, which pulls the mixes' weights towards equal ones (see `layers_elmo.py`).
        layer_mix: `"scalar"`, the paper's mix, or `"linear"`, a learned linear layer (see `layers_elmo.py`).
        freeze_bilm: parts of the biLM that do not learn in task models: all (True), none (False) or some `bilm_parts`.
        task_encoder: `"none"`, or `"lstm"`: a bidirectional LSTM before a task's classifier (see `heads_elmo.py`).
        task_hidden_size: width of each direction of the task's LSTM.
        word_vectors: a task's own word vectors beside ELMo: `num_words` with `<S>`, `</S>` and `<UNK>`, `size`, and
            whether they are `trainable`. None: those of layer 0 (see `heads_elmo.py`).
        mark_size: each word may have a mark, 0 or 1 (`marks`; 1 for example on a sentence's predicate); this is the
            width of the learned vector for each mark, which the task's encoder reads. None: no marks.
        classifier_dropout: dropout before a task's classifier, in training only.
        pooling: how the vectors of a text's words become one: `"mean"`, `"max"`, or, with a classifier, `"attention"`.
        text_pairs: whether `ElmoForSequenceClassification` compares pairs of texts.
        use_crf: whether `ElmoForTokenClassification` scores label sequences by a linear-chain CRF.
        num_softmax_words: V, words that the softmax predicts, with `<S>`, `</S>` and `<UNK>`; None: no language models.
        softmax: how training computes the loss over V words: `"full"` or `"sampled"`; `"sampled"` needs the words in
            order of falling frequency. Evaluation is always exact.
        num_softmax_samples: words drawn for each batch and direction by the sampled softmax.
        share_embedding_softmax: with word input, whether the word embedding is also the softmax's matrix.
        lm_dropout: dropout in language-model training, on the input of each biLM layer and on the top output.
        pad_token_id: always 0.
        bos_token_id: id of `<S>`; None: 257 for bytes, 1 for words; code points have no default.
        eos_token_id: id of `</S>`; None: 258 for bytes, 2 for words; code points have no default.

    Raises:
        StrictDataclassError: if a field is illegal when a config is made or saved, or is set to a wrong type or range;
            the message has the field, the legal values and the value found.
    """

    model_type = "elmo"
    keys_to_ignore_at_inference = ["state_hidden", "state_cell"]

    token_encoder: Literal["char_cnn", "word_embedding"] = "char_cnn"
    alphabet: Literal["bytes", "code_points"] = "bytes"
    vocab_size: int = at_least("vocab_size", 2, NUM_CHARACTER_IDS)
    num_input_words: int = at_least("num_input_words", 0, 0)
    word_embedding_size: int | None = at_least("word_embedding_size", 1, None)
    max_word_length: int = at_least("max_word_length", LEAST_WORD_LENGTH, 50)
    char_embedding_size: int = at_least("char_embedding_size", 1, 16)
    char_filters: Sequence = field("char_filters", ORIGINAL_FILTERS, "[width, count] pairs of at least 1", are_filters)
    char_activation: Literal["relu", "tanh"] = "relu"
    num_highway_layers: int = at_least("num_highway_layers", 0, 2)
    char_projection: bool | None = None
    projection_size: int = at_least("projection_size", 1, 512)
    cell_size: int = at_least("cell_size", 1, 4096)
    num_hidden_layers: int = at_least("num_hidden_layers", 1, 2)
    bidirectional: bool = True
    cell_projection: bool | None = None
    cell_clip: int | float | None = field("cell_clip", 3.0, *CLIP)
    projection_clip: int | float | None = field("projection_clip", 3.0, *CLIP)
    use_skip_connections: bool = True
    forget_bias: int | float = field("forget_bias", 1.0, "finite", lambda value: abs(value) < math.inf)
    aligned_layers: Sequence[int] | None = None
    hidden_size: int | None = None
    num_output_representations: int = at_least("num_output_representations", 1, 1)
    representation_dropout: int | float = field("representation_dropout", 0.5, *RATE)
    scalar_mix_weights: Sequence | None = None
    scalar_mix_trainable: bool = True
    scalar_mix_layer_norm: Literal["none", "batch", "word"] = "none"
    scalar_mix_l2: int | float = at_least("scalar_mix_l2", 0, 0.0)
    layer_mix: Literal["scalar", "linear"] = "scalar"
    freeze_bilm: bool | Sequence[str] = True
    task_encoder: Literal["none", "lstm"] = "none"
    task_hidden_size: int = at_least("task_hidden_size", 1, 256)
    word_vectors: dict[str, int | bool] | None = None
    mark_size: int | None = at_least("mark_size", 1, None)
    classifier_dropout: int | float = field("classifier_dropout", 0.0, *RATE)
    pooling: Literal["mean", "max", "attention"] = "mean"
    text_pairs: bool = False
    use_crf: bool = False
    num_softmax_words: int | None = at_least("num_softmax_words", 3, None)
    softmax: Literal["full", "sampled"] = "full"
    num_softmax_samples: int = at_least("num_softmax_samples", 1, 8192)
    share_embedding_softmax: bool = False
    lm_dropout: int | float = field("lm_dropout", 0.1, *RATE)
    pad_token_id: Literal[0] = 0
    bos_token_id: int | None = at_least("bos_token_id", 0, None)
    eos_token_id: int | None = at_least("eos_token_id", 0, None)

    def __post_init__(self, **kwargs: Any) -> None:
        """Fills fields that are None; `kwargs` are transformers' own fields and unknown names."""
        super().__post_init__(**kwargs)
        unknown = []
        for name in kwargs:
            is_known = name in EXTRA_ATTRIBUTES or hasattr(type(self), name) or name.startswith("_")
            if name in vars(self) and not is_known:
                unknown.append(name)
        if unknown:
            logger.warning(f"ElmoConfig keeps {', '.join(unknown)}, which nothing reads: it has no such field.")
        self.auto_map = dict(AUTO_MAP)
        if kwargs.get("custom_pipelines"):
            self.custom_pipelines = Pipelines(kwargs["custom_pipelines"])
        self.char_filters = [list(pair) for pair in self.char_filters]
        resolved = {
            "char_projection": self.num_features != self.projection_size,
            "cell_projection": self.cell_size != self.projection_size,
            "hidden_size": self.num_directions * self.projection_size,
        }
        if self.alphabet == "bytes":
            is_characters = self.token_encoder == "char_cnn"
            resolved["bos_token_id"] = BEGIN_SENTENCE_ID if is_characters else 1
            resolved["eos_token_id"] = END_SENTENCE_ID if is_characters else 2
        for name, value in resolved.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def save_pretrained(self, save_directory: str | os.PathLike, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Saves like every transformers config, with the code that opens the folder elsewhere."""
        save_code(save_directory)
        if not push_to_hub:
            super().save_pretrained(save_directory, **kwargs)
            return
        # Saved first, pushed second: `super().save_pretrained(push_to_hub=True)` would push only what it writes itself,
        # without the code that `save_code` wrote above.
        super().save_pretrained(save_directory)
        repo_id = kwargs.pop("repo_id", os.path.basename(save_directory))
        self.push_to_hub(repo_id, **kwargs)

    def validate_architecture(self) -> None:
        """Checks sizes of the biLM against each other."""
        width = self.num_directions * self.projection_size
        legal = f"{self.num_directions} * `projection_size` = {width}"
        require(self.hidden_size == width, "hidden_size", legal, self.hidden_size)
        input_sizes = {"cell_projection": self.cell_size}
        if self.token_encoder == "char_cnn":
            input_sizes["char_projection"] = self.num_features
        for name, size in input_sizes.items():
            has_projection = getattr(self, name)
            legal = f"True, because its input is {size} wide and `projection_size` is {self.projection_size}"
            require(has_projection is True or size == self.projection_size, name, legal, has_projection)
        if self.aligned_layers:
            self._validate_aligned_layers(self.aligned_layers)

    def _validate_aligned_layers(self, aligned: Sequence[int]) -> None:
        are_different = len(set(aligned)) == len(aligned)
        are_layers = set(aligned) <= set(range(self.num_hidden_layers + 1))
        legal = f"different layers from 0 to {self.num_hidden_layers}"
        require(are_different and are_layers, "aligned_layers", legal, aligned)
        legal = "None with `num_softmax_words`: a softmax reads layers as trained"
        require(self.num_softmax_words is None, "aligned_layers", legal, aligned)

    def validate_token_encoder(self) -> None:
        """Checks words as input beside characters, the room for filters, and ids of boundaries."""
        num_words, size = self.num_input_words, self.word_embedding_size
        if self.token_encoder == "char_cnn":
            legal = "given if and only if `num_input_words` is above 0"
            require((num_words > 0) == (size is not None), "word_embedding_size", legal, size)
            if num_words > 0:
                most = self.vocab_size - 2
                legal = f"at most `vocab_size` - 2 = {most}, because padding and characters have ids too"
                require(num_words <= most, "num_input_words", legal, num_words)
            widest = max(width for width, _ in self.char_filters)
            legal = f"at least {widest}, the width of the widest of `char_filters`"
            require(self.max_word_length >= widest, "max_word_length", legal, self.max_word_length)
        else:
            require(num_words == 0, "num_input_words", "0 where `token_encoder` is 'word_embedding'", num_words)
        for name in ("bos_token_id", "eos_token_id"):
            legal = "an integer; None is filled in only when a config with the alphabet 'bytes' is made"
            require(getattr(self, name) is not None, name, legal, None)

    def validate_tasks(self) -> None:
        """Checks the fields of mixes, task models and language models."""
        if self.scalar_mix_weights is not None:
            check_mix_weights("scalar_mix_weights", self.scalar_mix_weights, self.num_hidden_layers + 1)
        if self.word_vectors is not None:
            require(are_word_vectors(self.word_vectors), "word_vectors", WORD_VECTORS, self.word_vectors)
        labels = set(self.id2label or ())
        require(labels == set(range(len(labels))), "id2label", "a name for each number from 0 on", self.id2label)
        if not isinstance(self.freeze_bilm, bool):
            legal = f"True, False or a list of {', '.join(map(repr, self.bilm_parts))}"
            require(set(self.freeze_bilm) <= set(self.bilm_parts), "freeze_bilm", legal, self.freeze_bilm)
        if self.softmax == "sampled" and self.num_softmax_words is not None:
            num_samples, most = self.num_softmax_samples, self.num_softmax_words
            require(num_samples <= most, "num_softmax_samples", f"at most `num_softmax_words` = {most}", num_samples)
        if self.share_embedding_softmax:
            is_table = self.token_encoder == "word_embedding" and self.word_embedding_size is None
            legal = f"False, unless words are read from a table of `num_softmax_words` + 1 = {self.vocab_size} rows"
            is_legal = is_table and self.num_softmax_words in (None, self.vocab_size - 1)
            require(is_legal, "share_embedding_softmax", legal, True)

    @property
    def num_directions(self) -> int:
        """1 or 2."""
        return 2 if self.bidirectional else 1

    @property
    def num_filters(self) -> int:
        """F, the sum of the filter counts."""
        return sum(count for _, count in self.char_filters)

    @property
    def num_features(self) -> int:
        """Width of a word's features before `char_projection`: W + F, or F."""
        return self.num_filters + (self.word_embedding_size or 0)

    @property
    def num_characters(self) -> int:
        """How many of the input ids are characters: they come after padding and before words."""
        return self.vocab_size - 1 - self.num_input_words

    @property
    def id_shape(self) -> tuple[int, ...]:
        """Shape of one word's ids: `()`, `(C,)` or `(C + 1,)`."""
        if self.token_encoder == "word_embedding":
            return ()
        if self.num_input_words > 0:
            return (self.max_word_length + 1,)
        return (self.max_word_length,)

    @property
    def bilm_parts(self) -> list[str]:
        """The parts that `freeze_bilm` can name: `"token_encoder"`, `"layer_1"` to `"layer_L"`."""
        return ["token_encoder", *(f"layer_{layer}" for layer in range(1, self.num_hidden_layers + 1))]

    @property
    def frozen_parts(self) -> list[str]:
        """The parts of the biLM that do not learn in task models."""
        if self.freeze_bilm is True:
            return self.bilm_parts
        if self.freeze_bilm is False:
            return []
        return [part for part in self.bilm_parts if part in self.freeze_bilm]


def save_code(folder: str | os.PathLike) -> None:
    """Copies the code beside this file into `folder`, in which a config, model or tokenizer is being saved.

    Checksums of files that were in the folder before would be wrong afterwards, so their list is removed. If this file
    is a folder's own code, transformers copies that code, and nothing else is done here.
    """
    folder = Path(folder)
    with contextlib.suppress(FileNotFoundError):
        (folder / "SHA256SUMS").unlink()
    if IS_CODE_OF_FOLDER:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in CODE_FILES:
        write_whole(folder / name, (CODE_FOLDER / name).read_bytes())


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; one that has this content already stays as it is.

    A process that is killed meanwhile leaves `.NAME.PID.partial`, which a later process removes. Only the file's age
    can show that it was abandoned: its process may run on another machine, where the PID says nothing here.
    """
    for partial in path.parent.glob(f".{path.name}.*.partial"):
        with contextlib.suppress(FileNotFoundError):  # its own process has completed or removed it since
            if time.time() - partial.stat().st_mtime > SECONDS_UNTIL_ABANDONED:
                partial.unlink()
    if path.is_file() and path.read_bytes() == content:
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
