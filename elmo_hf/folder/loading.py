"""Loads a model by folder, Hub name or `tiny`: checked before anything uses it, and every weight in the checkpoint.

`tiny` is the small English model in the package, for demonstrations, examples and tests; see its README.md.
"""

import functools
import re
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HTTPError
from safetensors import SafetensorError

from ..language_model.pretraining import ElmoForPreTraining
from ..model.configuration_elmo import ElmoConfig
from ..model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from ..tokenizer.tokenization_elmo import ElmoTokenizer
from .one_line import one_line
from .saved_config import read_config
from .saved_json import read_json
from .saved_tokenizer import read_tokenizer
from .weight_files import check_weights, find_weights, without_memory

TINY = "tiny"
TINY_FOLDER = Path(__file__).parents[1] / "tiny_model"
# Suffixes of what `elmo-hf convert` reads: files of AllenNLP, bilm-tf and ELMoForManyLangs, and archives of them.
FOREIGN_SUFFIXES = (".hdf5", ".h5", ".index", ".th", ".pkl", ".pb", ".zip", ".gz", ".bz2")
# A Hub's name is no path: each part begins with a letter, a digit or an underscore.
HUB_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
# The files of a repository that are downloaded, and arguments that say which.
DESCRIPTION = ("*.json", "*.txt", "*.jinja", "README.md")
# What transformers and safetensors raise for a damaged folder.
UNREADABLE = (AttributeError, ImportError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError)
# Arguments of loading that are fields of the config.
FIELDS = ElmoConfig.__dataclass_fields__.keys() - {"dtype"} | {"num_labels"}
HUB_ARGUMENTS = ("revision", "token", "cache_dir", "local_files_only", "force_download")


def model_folder(name: str | Path) -> str | Path:
    """The folder in this package for `"tiny"`; any other name unchanged."""
    return TINY_FOLDER if str(name) == TINY and not Path(name).exists() else name


def check_name(name: str | Path) -> None:
    """Checks the name of a model, and of a folder that it is an ELMo's.

    Raises:
        ValueError: if it is neither a folder that exists, nor `"tiny"`, nor a possible Hub name; if a folder holds
            another kind of model, or files that are still to be converted.
    """
    path = Path(model_folder(name))
    if refuse_other_kinds(name, path):
        return
    files = [path] if path.is_file() else sorted(path.iterdir()) if path.is_dir() else []
    foreign = [file.name for file in files if file.name.endswith(FOREIGN_SUFFIXES)]
    if foreign:
        raise ValueError(
            f"{name} is not converted yet: it holds {', '.join(foreign[:3])}. Run `elmo-hf convert {name} NEW` first "
            "and give the folder NEW."
        )
    if path.is_file() or not (path.exists() or HUB_NAME.fullmatch(str(name))):
        raise ValueError(f"there is no folder {name}, and a Hub name looks like org/name.")


def refuse_other_kinds(name: str | Path, folder: Path) -> bool:
    """Whether a folder's config.json says that it is an ELMo; raises ValueError if it is another kind of model."""
    try:
        kind = read_json(folder / "config.json").get("model_type")
    except (OSError, ValueError):  # read_config says what is wrong with it
        return False
    if kind != "elmo" and kind is not None:
        raise ValueError(f"{name} holds a model of `model_type` {kind!r:.50}; this is not an ELMo.")
    return kind is not None


def open_folder(source: str | Path, weights: bool = True, **hub: Any) -> Path:
    """The folder of a model, which is downloaded if need be.

    Args:
        source: a folder, a Hub name, or `"tiny"`.
        weights: whether weights are downloaded too.
        **hub: `HUB_ARGUMENTS` of `snapshot_download`.

    Raises:
        ValueError: if there is no such folder or repository, or it holds no ELMo model.
    """
    check_name(source)
    folder = Path(model_folder(source))
    if not folder.exists():
        try:
            patterns = [*DESCRIPTION, "*.safetensors"] if weights else [*DESCRIPTION]
            folder = Path(snapshot_download(str(source), allow_patterns="config.json", **hub))
            refuse_other_kinds(source, folder)
            folder = Path(snapshot_download(str(source), allow_patterns=patterns, ignore_patterns="*/*", **hub))
        except (HTTPError, OSError) as error:
            raise ValueError(f"{source} cannot be loaded as an ELMo model: {one_line(error)}") from error
    return folder


# In `task_specific_params` of the config of a model that came from bilm-tf with its vocabulary: bilm-tf reads words
# between blanks, while the model's tokenizer splits raw text.
BILM_TF_SCORING = {"score": {"word_splitter": "whitespace"}}


def load_complete(source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any) -> Any:
    """Loads a biLM, or another class of model, in evaluation mode.

    Args:
        source: a folder, a Hub name, or `"tiny"`.
        model_class: the class to load.
        **kwargs: of `from_pretrained`, such as `dtype`, or fields of the config.

    Raises:
        ValueError: if the folder does not exist or holds no ELMo model; naming the file, if one is damaged; if weights
            are missing, which transformers would initialise at random, or there are some that no part of an ELMo has.
    """
    folder = open_folder(source, **{name: kwargs.pop(name) for name in HUB_ARGUMENTS if name in kwargs})
    try:
        config, others = read_config(folder, **{name: kwargs.pop(name) for name in kwargs.keys() & FIELDS})
        check_weights(without_memory(model_class, config), find_weights(folder))
        model = model_class.from_pretrained(folder, config=config, **kwargs).eval()
    except UNREADABLE as error:
        raise ValueError(f"{source} cannot be loaded as an ELMo model: {one_line(error)}") from error
    vars(model.config).update(others)
    return model


def is_quantised(config: ElmoConfig) -> bool:
    """Whether the weights of a folder are saved in a quantised format, such as torchao's."""
    return getattr(config, "quantization_config", None) is not None


def refuse_quantised(config: ElmoConfig, source: str | Path, verb: str) -> None:
    """Raises ValueError if the weights are quantised: they have no gradient, and torch exports no scan of them."""
    if is_quantised(config):
        raise ValueError(f"the weights of {source} are quantised; {verb} the float32 folder instead.")


def load_tokenizer(source: str | Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, a Hub name or `"tiny"`, with the arguments of `from_pretrained`."""
    hub = {name: kwargs.pop(name) for name in HUB_ARGUMENTS if name in kwargs}
    return read_tokenizer(open_folder(source, weights=False, **hub), **kwargs)


def load_shared(source: str | Path, device: str = "cpu") -> tuple[ElmoModel, ElmoTokenizer]:
    """Loads a biLM and its tokenizer once a process, as long as they are the last ones that were asked for."""
    return _loaded(str(source), device, version_of(source))


def version_of(source: str | Path) -> tuple:
    """Names and times of a folder's files: one that was written again is another model; empty for a Hub name."""
    folder = Path(model_folder(source))
    return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in folder.glob("*")))


@functools.lru_cache(maxsize=1)
def _loaded(source: str, device: str, version: tuple) -> tuple[ElmoModel, ElmoTokenizer]:
    return load_complete(source).to(device), load_tokenizer(source)


def load_language_models(source: str | Path) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """Loads language models with their softmax, and the tokenizer that knows the words of the softmax.

    Raises:
        ValueError: if the folder cannot be loaded, or if the softmax or its words are missing; says how to get them.
    """
    config, _ = read_config(open_folder(source, weights=False))
    has_softmax = config.num_softmax_words is not None or config.share_embedding_softmax
    tokenizer = load_tokenizer(source)
    if not has_softmax or tokenizer.num_word_classes is None:
        raise ValueError(
            f"{source} has no {'words.txt for its softmax' if has_softmax else 'softmax over words'}, so it embeds "
            "text and cannot score it. Convert its source again with `--softmax FILE --vocabulary FILE` if a softmax "
            "was published, or learn one on a text: "
            f"`elmo-hf pretrain CORPUS -o OUT --model {source} --vocabulary WORDS --frozen-steps 1000`."
        )
    return load_complete(source, ElmoForPreTraining), tokenizer


def scoring_splitter(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    """How a text is split that language models score, `"ptb"` or `"whitespace"`: as their training text was."""
    tasks = getattr(config, "task_specific_params", None) or {}
    return "whitespace" if BILM_TF_SCORING.items() <= tasks.items() else tokenizer.word_splitter


def load_for_pretraining(
    source: str | Path, vocabulary: Path | None, word_splitter: str | None = None, **fields: Any
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """Loads a model for further training, with its own softmax or with a new one over other words.

    Args:
        source: a folder, a Hub name, or `"tiny"`.
        vocabulary: a file of words for a new softmax with random weights; None keeps the folder's softmax and words.
        word_splitter: how the tokenizer splits raw text, as the corpus is split; None keeps the folder's.
        **fields: of `ElmoConfig`, replacing the folder's.

    Raises:
        ValueError: if the folder cannot be loaded, is quantised or has no softmax, or if `vocabulary` is given for a
            model with word input, whose own vocabulary is fixed.
    """
    splitting = {} if word_splitter is None else {"word_splitter": word_splitter}
    if vocabulary is None:
        # Training needs single precision, even if the model was saved in half.
        model = load_complete(source, ElmoForPreTraining, dtype="float32", **fields)
        refuse_quantised(model.config, source, "adapt")
        _forget_scoring(model.config)
        return model, load_tokenizer(source, **splitting)
    encoder = load_complete(source)
    refuse_quantised(encoder.config, source, "adapt")
    _forget_scoring(encoder.config)
    if encoder.config.token_encoder == "word_embedding":
        raise ValueError(f"{source} reads words by its own vocabulary, which its softmax shares; give no other.")
    tokenizer = load_tokenizer(source, words_file=str(vocabulary), **splitting)
    config = ElmoConfig(**encoder.config.to_diff_dict() | {"num_softmax_words": tokenizer.num_word_classes} | fields)
    model = ElmoForPreTraining(config)
    model.elmo.load_state_dict(encoder.state_dict())
    return model, tokenizer


def _forget_scoring(config: ElmoConfig) -> None:
    """Lets the tokenizer's splitter count in scoring, because it splits the text of the further training."""
    tasks = getattr(config, "task_specific_params", None) or {}
    config.task_specific_params = {name: each for name, each in tasks.items() if name not in BILM_TF_SCORING} or None


def tiny_model(model_class: type[ElmoPreTrainedModel] = ElmoModel) -> Any:
    """Loads `tiny` in evaluation mode: the biLM, or its language models too with `ElmoForPreTraining`."""
    return load_complete(TINY_FOLDER, model_class)


def tiny_tokenizer() -> ElmoTokenizer:
    """Loads the tokenizer of `tiny`, with the words of the softmax."""
    return ElmoTokenizer.from_pretrained(TINY_FOLDER)
