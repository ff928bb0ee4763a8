"""Loads a model by folder, Hub name or `tiny`; every weight must be in the checkpoint.

`tiny` is the small English model in the package, for demonstrations, examples and tests; see its README.md.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError

from .language_model.pretraining import ElmoForPreTraining
from .model.configuration_elmo import AUTO_MAP, ElmoConfig
from .model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .model.weight_files import read_header
from .model_names import TINY_FOLDER, check_name, kind_of_model, model_folder, refuse_other_kinds
from .tokenizer.tokenization_elmo import ElmoTokenizer

CLASSES = {reference.split(".")[-1] for reference in AUTO_MAP.values()}
# Weights that loading may leave out: mixes that are not asked for, and the parts of other classes.
MIXES = re.compile(r"(elmo\.)?(scalar|linear)_mixes\.\d+\.\w")
PARTS = re.compile(
    rf"{MIXES.pattern}|(softmax|task_encoder|word_vectors|pooler|classifier|crf|attention|lstm|qa_outputs)\."
)

# In `task_specific_params` of the config of a model that came from bilm-tf with its vocabulary: bilm-tf reads words
# between blanks, while the model's tokenizer splits raw text.
BILM_TF_SCORING = {"score": {"word_splitter": "whitespace"}}


def load_complete(source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any) -> Any:
    """Loads a biLM, or another class of model, in evaluation mode.

    Args:
        source: a folder, a Hub name, or `"tiny"`.
        model_class: the class to load.
        **kwargs: of `from_pretrained`, such as `dtype`.

    Raises:
        ValueError: if the folder does not exist or holds no ELMo model; if weights are missing, which transformers
            would initialise at random; if it holds weights that no part of an ELMo has.
    """
    check_name(source)
    source = model_folder(source)
    try:
        model, loading = model_class.from_pretrained(source, output_loading_info=True, **kwargs)
    except SafetensorError as error:
        for file in sorted(Path(source).glob("*.safetensors")):
            read_header(str(file))  # names the damaged one
        raise ValueError(f"a .safetensors file of {source} is damaged: {error}.") from error
    except (OSError, RuntimeError, ValueError) as error:
        _refuse_other_kinds_on_the_hub(source)
        raise ValueError(f"{source} cannot be loaded as an ELMo model: {error}") from error
    missing = sorted(name for name in loading["missing_keys"] if "scalar_mixes." not in name)
    if missing:
        raise ValueError(f"{source} lacks {_list(missing)}, which would be random numbers.")
    strange = _strange(loading["unexpected_keys"], type(model).__name__, model.config.architectures or ())
    if strange:
        raise ValueError(f"{source} holds {_list(strange)}, which the model of its config.json does not have.")
    return model.eval()


def is_quantised(config: ElmoConfig) -> bool:
    """Whether the weights of a folder are saved in a quantised format, such as torchao's."""
    return getattr(config, "quantization_config", None) is not None


def refuse_quantised(config: ElmoConfig, source: str | Path, verb: str) -> None:
    """Raises ValueError if the weights are quantised: they have no gradient, and torch exports no scan of them."""
    if is_quantised(config):
        raise ValueError(f"the weights of {source} are quantised; {verb} the float32 folder instead.")


def load_tokenizer(source: str | Path, **kwargs: Any) -> ElmoTokenizer:
    """Loads the tokenizer of a folder, a Hub name or `"tiny"`, with the arguments of `from_pretrained`."""
    return ElmoTokenizer.from_pretrained(model_folder(source), **kwargs)


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
    _require_softmax(source)
    tokenizer = load_tokenizer(source)
    if tokenizer.num_word_classes is None:
        raise ValueError(
            f"{source} has a softmax, but no words.txt says which words it predicts. Convert its source again with "
            "`--vocabulary FILE`, one word a line."
        )
    return load_complete(source, ElmoForPreTraining), tokenizer


def scoring_splitter(config: ElmoConfig, tokenizer: ElmoTokenizer) -> str:
    """How a text is split that language models score, `"ptb"` or `"whitespace"`: as their training text was."""
    tasks = getattr(config, "task_specific_params", None) or {}
    return "whitespace" if BILM_TF_SCORING.items() <= tasks.items() else tokenizer.word_splitter


def _require_softmax(source: str | Path) -> None:
    check_name(source)
    try:
        config = ElmoConfig.from_pretrained(model_folder(source))
    except (OSError, ValueError) as error:
        _refuse_other_kinds_on_the_hub(source)
        raise ValueError(f"{source} cannot be loaded as an ELMo model: {error}") from error
    if config.num_softmax_words is None and not config.share_embedding_softmax:
        raise ValueError(
            f"{source} has no softmax over words, so it embeds text and cannot score it. Convert its source again with "
            "`--softmax FILE --vocabulary FILE` if a softmax was published, or learn one on a text: "
            f"`elmo-hf pretrain CORPUS -o OUT --model {source} --vocabulary WORDS --frozen-steps 1000`."
        )


def _refuse_other_kinds_on_the_hub(source: str | Path) -> None:
    """Raises ValueError if the config that was just downloaded is another model's; asks no network."""
    config = None if Path(source).exists() else try_to_load_from_cache(str(source), "config.json")
    if isinstance(config, str):
        refuse_other_kinds(source, kind_of_model(Path(config)) or "elmo")


def _list(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _strange(unexpected: Iterable[str], model_class: str, saved_classes: Sequence[str]) -> list[str]:
    """The weights of a folder that loading this class should not have left out."""
    if not {*saved_classes} <= CLASSES:
        return []  # a user's own class may have any
    kept = MIXES if model_class in saved_classes else PARTS
    return sorted(name for name in unexpected if not kept.match(name))


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
