"""Loading a model by folder, Hub name or `tiny`: every weight must be in the checkpoint.

`tiny` is the small English model that comes with the package, for demonstrations, examples and tests: 2.6 million
parameters, and a softmax over 10,000 words, trained on public-domain books; see its README.md.
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from .language_model.pretraining import ElmoForPreTraining
from .model.configuration_elmo import ElmoConfig
from .model.modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .tokenizer.tokenization_elmo import ElmoTokenizer

TINY = "tiny"
TINY_FOLDER = Path(__file__).parent / "tiny_model"


def model_folder(name: str | Path) -> str | Path:
    """The folder of the model that comes with the package for `"tiny"`; any other name as it is."""
    return TINY_FOLDER if name == TINY and not Path(name).exists() else name


def load_complete(source: str | Path, model_class: type[ElmoPreTrainedModel] = ElmoModel, **kwargs: Any) -> Any:
    """Loads a biLM, or another class of model, in evaluation mode.

    Args:
        source: a folder, a Hub name, or `"tiny"`.
        model_class: the class to load.
        **kwargs: of `from_pretrained`, as `dtype`.

    Raises:
        ValueError: if there is no such folder, it is not an ELMo model, or weights are missing, which transformers
            would make up at random.
    """
    source = model_folder(source)
    if not Path(source).exists() and len(Path(source).parts) != 2:
        raise ValueError(f"there is no folder {source}, and a Hub name looks like org/name.")
    try:
        model, loading = model_class.from_pretrained(source, output_loading_info=True, **kwargs)
    except (OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise ValueError(f"{source} cannot be loaded as an ELMo model: {error}") from error
    missing = sorted(name for name in loading["missing_keys"] if "scalar_mixes." not in name)
    if missing:
        raise ValueError(f"{source} lacks {', '.join(missing)}, which would be random numbers.")
    return model.eval()


def load_for_pretraining(
    source: str | Path, vocabulary: Path | None, **fields: Any
) -> tuple[ElmoForPreTraining, ElmoTokenizer]:
    """Loads a model to train on: with its softmax, or with a new one over other words.

    Args:
        source: a folder, or a Hub name.
        vocabulary: None: the folder's own softmax and words. A file: these words, and a softmax with random weights.
        **fields: of `ElmoConfig`, in place of the folder's.

    Raises:
        ValueError: if the folder cannot be loaded, has no softmax, or reads words, whose vocabulary is given already.
    """
    source = model_folder(source)
    if vocabulary is None:
        # Training needs single precision, whatever a model was saved in.
        model = load_complete(source, ElmoForPreTraining, dtype="float32", **fields)
        return model, ElmoTokenizer.from_pretrained(source)
    encoder = load_complete(source)
    if encoder.config.token_encoder == "word_embedding":
        raise ValueError(f"{source} reads words by its own vocabulary, which is its softmax's too; give no other.")
    tokenizer = ElmoTokenizer.from_pretrained(source, words_file=str(vocabulary))
    config = ElmoConfig(**encoder.config.to_diff_dict() | {"num_softmax_words": tokenizer.num_word_classes} | fields)
    model = ElmoForPreTraining(config)
    model.elmo.load_state_dict(encoder.state_dict())
    return model, tokenizer


def tiny_model(model_class: type[ElmoPreTrainedModel] = ElmoModel) -> Any:
    """`tiny` in evaluation mode: the biLM, or with its language models as `ElmoForPreTraining`."""
    return load_complete(TINY_FOLDER, model_class)


def tiny_tokenizer() -> ElmoTokenizer:
    """The tokenizer of `tiny`, with the words of the softmax."""
    return ElmoTokenizer.from_pretrained(TINY_FOLDER)
