"""Loads a model by its name (`model_names.py`) after checking its files, which must have all weights."""

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from ..model.configuration_elmo import ElmoConfig
from ..model.language_model_elmo import ElmoForPreTraining
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from ..model.tokenization_elmo import ElmoTokenizer
from .model_names import (
    FOREIGN_SUFFIXES,
    TINY_FOLDER,
    NotConvertedError,
    UnknownNameError,
    is_published,
    lacks_softmax,
    model_folder,
)
from .saved_config import read_config
from .saved_json import naming, read_json
from .saved_tokenizer import read_tokenizer
from .weight_files import check_weights, read_headers

# Unlike in a path, each part of a Hub name begins with a letter, a digit or an underscore.
MODEL_ON_HUB = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# The files, besides weights, that are downloaded from a repository. The code is not run here, but without it the Auto
# classes could not open the model offline where the package is not installed.
DESCRIPTION = ("*.json", "*.txt", "*.jinja", "README.md", "*.py")
# Arguments of loading that are fields of the config.
FIELDS = ElmoConfig.__dataclass_fields__.keys() - {"dtype"} | {"num_labels"}
HUB_ARGUMENTS = ("revision", "token", "cache_dir", "local_files_only", "force_download")


class NoSoftmaxError(ValueError):
    """A model embeds and cannot score: it has no softmax, or no words for it."""


def open_folder(source: str | Path, weights: bool = True, **hub: Any) -> Path:
    """The folder of a model, which is downloaded if need be.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
        weights: whether weights are downloaded too.
        **hub: `HUB_ARGUMENTS` of `snapshot_download`.

    Raises:
        ValueError: if there is no such folder or repository, or no ELMo model in it.
    """
    folder = Path(model_folder(source))
    if not folder.exists() and MODEL_ON_HUB.fullmatch(str(source)):
        with naming(f"{source} cannot be loaded as an ELMo model"):
            folder = Path(snapshot_download(str(source), allow_patterns="config.json", **hub))
            check_kind(source, folder)
            patterns = list(DESCRIPTION)
            if weights:
                patterns.append("*.safetensors")
            return Path(snapshot_download(str(source), allow_patterns=patterns, ignore_patterns="*/*", **hub))
    check_kind(source, folder)
    return folder


def check_kind(source: str | Path, folder: Path) -> None:
    """Raises ValueError if there is no folder, or if it has another kind of model, or files to convert first."""
    config = folder / "config.json"
    kind = read_json(config).get("model_type") if config.exists() else None
    files = []
    if folder.is_dir():
        files = sorted(folder.iterdir())
    elif folder.is_file():
        files = [folder]
    foreign = [file.name for file in files if file.name.endswith(FOREIGN_SUFFIXES)]
    if kind not in (None, "elmo"):
        raise ValueError(f"{source} holds a model of `model_type` {kind!r:.50}; this is not an ELMo.")
    if kind is None and foreign:
        raise NotConvertedError(source, foreign)
    if not folder.is_dir():
        raise UnknownNameError(source)


# In `task_specific_params` of the config of a model that came from bilm-tf with its vocabulary: bilm-tf reads words
# between blanks, while the model's tokenizer splits raw text.
BILM_TF_SCORING = {"score": {"word_splitter": "whitespace"}}


def load_complete(source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any) -> Any:
    """Loads a biLM, or another class of model, in evaluation mode.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
        model_class: the class to load.
        **kwargs: of `from_pretrained`, such as `dtype`, or fields of the config.

    Raises:
        ValueError: if the folder does not exist or has no ELMo model; if a file is damaged; if weights are missing,
            which transformers would initialise at random; or if there are weights that an ELMo does not have.
    """
    hub = pop_arguments(kwargs, HUB_ARGUMENTS)
    fields = pop_arguments(kwargs, FIELDS)
    folder = open_folder(source, **hub)
    with naming(f"{source} cannot be loaded as an ELMo model"):
        config, unknown_fields = read_config(folder, **fields)
        check_weights(folder, model_class, config)
        model = model_class.from_pretrained(folder, config=config, **kwargs).eval()
    vars(model.config).update(unknown_fields)
    return model


def pop_arguments(arguments: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Takes the arguments with some names out of a dict, and returns them."""
    return {name: arguments.pop(name) for name in names if name in arguments}


def load_tokenizer(source: str | Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, a Hub name or a short name, with the arguments of `from_pretrained`."""
    hub = pop_arguments(kwargs, HUB_ARGUMENTS)
    return read_tokenizer(open_folder(source, weights=False, **hub), **kwargs)


def load(
    source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any
) -> tuple[Any, ElmoTokenizer]:
    """Loads a model in evaluation mode and its tokenizer: `model, tokenizer = elmo_hf.load("original")`.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"` (`model_names.py`).
        model_class: the class to load, such as `ElmoForPreTraining`, the language models.
        **kwargs: of the model's `from_pretrained`, such as `dtype` and `revision`, or fields of the config.

    Raises:
        ValueError: if there is no such model, or it cannot be loaded (`load_complete`).
    """
    hub = {name: kwargs[name] for name in HUB_ARGUMENTS if name in kwargs}
    return load_complete(source, model_class, **kwargs), load_tokenizer(source, **hub)


def load_shared(source: str | Path, device: str = "cpu") -> tuple[ElmoModel, ElmoTokenizer]:
    """Loads a biLM and its tokenizer, or returns them again if the last call loaded them."""
    return _loaded(str(source), device, version_of(source))


def version_of(source: str | Path) -> tuple:
    """Names, sizes and times of a folder's files, which show whether it was written again; empty for a Hub name.

    A copy may keep the time of the original's last change, but not that of its inode (`st_ctime`).
    """
    files = []
    for path in Path(model_folder(source)).glob("*"):
        status = path.stat()
        files.append((path.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return tuple(sorted(files))


@functools.lru_cache(maxsize=1)
def _loaded(source: str, device: str, version: tuple) -> tuple[ElmoModel, ElmoTokenizer]:
    return load_complete(source).to(device), load_tokenizer(source)


def load_language_models(source: str | Path, **hub: Any) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """Loads language models with their softmax, and the tokenizer with the words of the softmax.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
        **hub: `HUB_ARGUMENTS` of `snapshot_download`.

    Raises:
        NoSoftmaxError: if the folder has no softmax or no words for it; of a published model that has none, nothing
            is downloaded.
        ValueError: if the folder cannot be loaded.
    """
    has_softmax = not lacks_softmax(source) and _has_softmax(source, **hub)
    tokenizer = load_tokenizer(source, **hub) if has_softmax else None
    if tokenizer is None or tokenizer.num_word_classes is None:
        missing = "tokenizer with the words of its softmax" if has_softmax else "softmax over words"
        raise NoSoftmaxError(
            f"{source} has no {missing}, so it embeds text and cannot score it. {_models_with_both(source)} Or convert "
            "its source again with the softmax and its vocabulary if they were published, or learn a softmax over a "
            "vocabulary on a text (docs/pretraining.md)."
        )
    return load_complete(source, ElmoForPreTraining, **hub), tokenizer


def _models_with_both(source: str | Path) -> str:
    """A sentence that names the published models with a softmax and its words, such as `original-lm` for `original`."""
    namesake = f"{source}-lm"
    if is_published(namesake):
        return f"The published model {namesake} has both."
    return "The published models whose names end in -lm have both."


def _has_softmax(source: str | Path, **hub: Any) -> bool:
    """Whether a model's config describes a softmax, and its files have one."""
    config, _ = read_config(open_folder(source, weights=False, **hub))
    if config.num_softmax_words is None and not config.share_embedding_softmax:
        return False
    # A biLM that was saved without the language models keeps their config.
    folder = open_folder(source, **hub)
    with naming(f"{source} cannot be loaded as an ELMo model"):
        return any(name.startswith("softmax.") for name in read_headers(folder))


def scoring_splitter(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    """How the language models' training text was split, `"ptb"` or `"whitespace"`, for a text to score or to learn."""
    tasks = getattr(config, "task_specific_params", None) or {}
    return "whitespace" if BILM_TF_SCORING.items() <= tasks.items() else tokenizer.word_splitter


def splitter_of_training(source: str | Path) -> str:
    """The `scoring_splitter` of a folder, a Hub name or a short name, whose weights are not loaded."""
    config, _ = read_config(open_folder(source, weights=False))
    return scoring_splitter(config, load_tokenizer(source))


def load_for_pretraining(
    source: str | Path, vocabulary: Path | None, word_splitter: str | None = None, **fields: Any
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """Loads a model for further training, with its own softmax or with a new one over other words.

    Args:
        source: a folder, a Hub name, or a short name, such as `"tiny"` or `"original"`.
        vocabulary: a file of words for a new softmax with random weights; None keeps the folder's softmax and words. A
            model with word input reads the words of its own vocabulary as before.
        word_splitter: how the corpus is split, and from now on the tokenizer splits raw text; None keeps the folder's,
            for the corpus that of `scoring_splitter`.
        **fields: fields of `ElmoConfig` that replace the folder's.

    Raises:
        NoSoftmaxError: if the folder has no softmax to go on with, and no `vocabulary` is given.
        ValueError: if the folder cannot be loaded, or if `vocabulary` is no file of words.
    """
    if vocabulary is None and not _has_softmax(source):
        raise NoSoftmaxError(
            f"{source} has no softmax over words, so there is none to train further. Give `vocabulary='WORDS'`, a file "
            "with the words of a new softmax, one a line."
        )
    tokenizer_options = {}
    if word_splitter is not None:
        tokenizer_options["word_splitter"] = word_splitter
    if vocabulary is not None:
        tokenizer_options["words_file"] = str(vocabulary)
    tokenizer = load_tokenizer(source, **tokenizer_options)
    # Training needs single precision, even if the model was saved in half.
    if vocabulary is None:
        model = load_complete(source, ElmoForPreTraining, dtype="float32", **fields)
    else:
        model = load_complete(source, ElmoModel, dtype="float32")
    if word_splitter is not None:
        # The tokenizer splits the text of the further training, so from now on it splits the text to score too.
        tasks = getattr(model.config, "task_specific_params", None) or {}
        other_tasks = {name: parameters for name, parameters in tasks.items() if name not in BILM_TF_SCORING}
        model.config.task_specific_params = other_tasks or None
    if vocabulary is None:
        return model, tokenizer
    config = ElmoConfig(**model.config.to_diff_dict() | {"num_softmax_words": tokenizer.num_word_classes} | fields)
    language_models = ElmoForPreTraining(config)
    language_models.elmo.load_state_dict(model.state_dict())
    return language_models, tokenizer


def tiny_model(model_class: type[ElmoPreTrainedModel] = ElmoModel) -> Any:
    """Loads `tiny` in evaluation mode: the biLM, or with `ElmoForPreTraining` also the language models."""
    return load_complete(TINY_FOLDER, model_class)


def tiny_tokenizer() -> ElmoTokenizer:
    """Loads the tokenizer of `tiny`, with the words of the softmax."""
    return ElmoTokenizer.from_pretrained(TINY_FOLDER)
