"""What each field of an `ElmoConfig` may be, whatever the other fields are, and which names are no fields.

A saved `config.json` may come from anyone. So every size has a limit, far above any use, and the fields that
transformers adds have their types checked before transformers uses them.
"""

import difflib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeGuard

from transformers import GenerationConfig

TOKEN_ENCODERS = ("char_cnn", "word_embedding")
ALPHABETS = ("bytes", "code_points")

CHOICES = {
    "token_encoder": TOKEN_ENCODERS,
    "alphabet": ALPHABETS,
    "char_activation": ("relu", "tanh"),
    "scalar_mix_layer_norm": ("none", "batch", "word"),
    "layer_mix": ("scalar", "linear"),
    "task_encoder": ("none", "lstm"),
    "pooling": ("mean", "max", "attention"),
    "softmax": ("full", "sampled"),
}
# The least and the most of each whole number.
WHOLE = {
    "vocab_size": (1, 10**8),
    "num_input_words": (0, 10**8),
    "word_embedding_size": (1, 2**16),
    "max_word_length": (3, 4096),
    "char_embedding_size": (1, 4096),
    "num_highway_layers": (0, 256),
    "projection_size": (1, 2**16),
    "cell_size": (1, 2**18),
    "num_hidden_layers": (1, 256),
    "num_output_representations": (1, 100),
    "task_hidden_size": (1, 2**16),
    "num_softmax_words": (3, 10**8),
    "num_softmax_samples": (1, 10**7),
}
MOST_FILTERS = 100
MOST_FILTER_COUNT = 2**14
MOST_SPECIAL_ID = 10**8
MOST_LABELS = 10**5
MOST_CRF_LABELS = 1000
CLIPS = ("cell_clip", "projection_clip")
MOST_FLOAT = 3.4e38
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLAGS = "bidirectional use_skip_connections scalar_mix_trainable text_pairs use_crf share_embedding_softmax".split()
RATES = ("representation_dropout", "classifier_dropout", "lm_dropout")

# The fields that only these classes read.
_TASK = ("freeze_bilm", "task_encoder", "task_hidden_size", "word_vectors", "classifier_dropout")
READ_BY: dict[str, tuple[str, ...]] = {
    "ElmoModel": ("pooling",),
    "ElmoForSequenceClassification": (*_TASK, "pooling", "text_pairs"),
    "ElmoForTokenClassification": (*_TASK, "use_crf"),
    "ElmoForQuestionAnswering": _TASK,
    "ElmoForPreTraining": (
        "num_softmax_words",
        "softmax",
        "num_softmax_samples",
        "share_embedding_softmax",
        "lm_dropout",
    ),
}


def check_fields(config: Any) -> None:
    """Checks each field of an `ElmoConfig` by itself; raises ValueError naming it."""
    for name, legal in CHOICES.items():
        require(config, name, getattr(config, name) in legal, f"one of {', '.join(map(repr, legal))}")
    for name, (least, most) in WHOLE.items():
        require_whole(config, name, least, most)
    for name in CLIPS:
        value = getattr(config, name)
        is_legal = value is None or (is_number(value) and value > 0)
        require(config, name, is_legal, "a positive number, or None to switch it off")
    for name in FLAGS:
        require(config, name, isinstance(getattr(config, name), bool), "True or False")
    for name in RATES:
        value = getattr(config, name)
        require(config, name, is_number(value) and 0 <= value < 1, "in [0, 1)")
    require(config, "forget_bias", is_number(config.forget_bias), "a finite number")
    sizes = "None or an object of `num_words` (3 to 10^8), `size` (1 to 65536) and `trainable` (True or False)"
    require(config, "word_vectors", _are_word_vectors(config.word_vectors), sizes)


def require(config: Any, name: str, is_legal: bool, legal: str) -> None:
    """Raises ValueError with a field's legal values and its own, unless it is legal."""
    if not is_legal:
        raise ValueError(f"`{name}` must be {legal}, found {shorten(getattr(config, name))}.")


def require_whole(config: Any, name: str, least: int, most: int) -> None:
    """Requires a whole number between two others, or None where that is the default."""
    value = getattr(config, name)
    if value is not None or getattr(type(config), name) is not None:
        require(config, name, is_whole(value, least), f"a whole number of at least {least}")
        require(config, name, is_whole(value, least, most), f"at most {most}")


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a tensor can hold, in float32 too."""
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and abs(value) <= MOST_FLOAT


def is_whole(value: object, least: int, most: float = math.inf) -> bool:
    """Whether a value is a whole number between two others."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_list(value: object) -> TypeGuard[Sequence]:
    """Whether a value is a sequence other than a string."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def checked_mix_weights(name: str, weights: Sequence[float], num_layers: int) -> list[float]:
    """Lists a mix's true weights; a `ValueError` if they are not `num_layers` numbers of at least 0 that sum to 1."""
    weights = weights.tolist() if hasattr(weights, "tolist") else weights
    if not is_list(weights) or len(weights) != num_layers:
        raise ValueError(
            f"`{name}` must list `num_hidden_layers` + 1 = {num_layers} weights, found {shorten(weights)}."
        )
    if not all(is_number(weight) and weight >= 0 for weight in weights):
        raise ValueError(f"`{name}` must be numbers of at least 0, found {shorten(weights)}.")
    if abs(sum(weights) - 1) > 1e-4:
        raise ValueError(
            f"`{name}` are true weights and must sum to 1, found a sum of {sum(weights)} in {shorten(weights)}; "
            "AllenNLP's `scalar_mix_parameters` are logits, from before the softmax."
        )
    return [float(weight) for weight in weights]


def _are_word_vectors(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"num_words", "size", "trainable"}:
        return value is None
    sizes_are_legal = is_whole(value["num_words"], 3, 10**8) and is_whole(value["size"], 1, 2**16)
    return sizes_are_legal and isinstance(value["trainable"], bool)


def _is_labels(value: object) -> bool:
    return isinstance(value, dict) and all(
        str(key).isdecimal() and len(str(key)) < 9 and isinstance(label, str) for key, label in value.items()
    )


_TEXT = ("text", lambda value: not isinstance(value, (bool, int, float, list, dict)))
FLAG = ("true or false", lambda value: isinstance(value, bool))
_MAP = ("an object of names", lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value))
NAMES = ("a list of names", lambda value: is_list(value) and all(isinstance(name, str) for name in value))
_DTYPE = (f"one of {', '.join(FLOATS)}", lambda value: str(value).removeprefix("torch.") in FLOATS)
_PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
# Fields of transformers that a saved config may have, and what they may be; all but `num_labels` may be null.
TRANSFORMERS_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("transformers_version", "model_type", "name_or_path", "tokenizer_class"), _TEXT),
    **dict.fromkeys(("output_hidden_states", "return_dict", "is_encoder_decoder", "output_attentions"), FLAG),
    **dict.fromkeys(("_name_or_path", "_commit_hash"), _TEXT),
    "tie_word_embeddings": FLAG,
    "architectures": NAMES,
    "dtype": _DTYPE,
    "torch_dtype": _DTYPE,
    "chunk_size_feed_forward": ("a whole number", lambda value: is_whole(value, 0, MOST_LABELS)),
    "num_labels": (f"a whole number from 0 to {MOST_LABELS}", lambda value: is_whole(value, 0, MOST_LABELS)),
    "id2label": ("an object with a name for each whole number", _is_labels),
    "label2id": ("an object of numbers", lambda value: isinstance(value, dict)),
    "problem_type": (f"one of {', '.join(_PROBLEMS)}", lambda value: value in _PROBLEMS),
    "auto_map": _MAP,
    "custom_pipelines": _MAP,
    "task_specific_params": _MAP,
    "quantization_config": ("an object", lambda value: not isinstance(value, (bool, int, float, str, list))),
}
# Further names that transformers' own constructor takes.
TRANSFORMERS_ARGUMENTS = {"attn_implementation", "experts_implementation"} | vars(GenerationConfig()).keys()


def check_transformers_fields(fields: dict[str, Any]) -> None:
    """Checks those among `fields` that are transformers' own; raises ValueError naming the field."""
    for name, (legal, is_legal) in TRANSFORMERS_FIELDS.items():
        is_left_out = name not in fields or (fields[name] is None and name != "num_labels")
        if not is_left_out and not is_legal(fields[name]):
            raise ValueError(f"`{name}` must be {legal}, found {shorten(fields[name])}.")
    for name in ("id2label", "label2id"):
        if len(fields.get(name) or ()) > MOST_LABELS:
            raise ValueError(f"`{name}` may have at most {MOST_LABELS} labels, found {len(fields[name])}.")


def unknown_name(owner: str, name: str, names: Collection[str]) -> ValueError:
    """The error for a name that is none of `names`."""
    nearest = [f"; the nearest name that exists is `{each}`" for each in difflib.get_close_matches(name, names, n=1)]
    return ValueError(f"{owner} has no `{name}`{''.join(nearest)}.")


def refuse_misspelt(owner: str, found: Collection[str], names: Collection[str]) -> None:
    """Raises ValueError if one of the names in a file is nearly one that is missing: damage, not a newer version."""
    missing = sorted(set(names) - set(found))
    for name in sorted(set(found) - set(names)):
        for nearest in difflib.get_close_matches(name, missing, n=1, cutoff=0.85):
            shown = name.encode("unicode_escape").decode()
            raise ValueError(f"{owner}: `{shown}` is probably meant to be `{nearest}`.")


def check_effect(class_name: str, fields: dict[str, Any]) -> None:
    """Raises ValueError if a model of this package does not read a field that others do, or not with this value."""
    for name in fields:
        readers = [reader for reader, names in READ_BY.items() if name in names]
        if readers and class_name in READ_BY and class_name not in readers:
            raise ValueError(f"`{name}` has no effect on {class_name}; it is for {', '.join(readers)}.")
    if class_name == "ElmoModel" and fields.get("pooling") == "attention":
        raise ValueError(
            "`pooling` must be 'mean' or 'max' for ElmoModel, found 'attention', which a classifier learns."
        )


def shorten(value: object) -> str:
    """How an error shows a value, however long."""
    return cut(repr(value))


def cut(text: str, most: int = 200) -> str:
    """A text's first characters, if it has more than `most`."""
    return text if len(text) <= most else f"{text[:most]} ..."
