"""The small English model that comes with the package: for demonstrations, examples and tests.

2.6 million parameters, and a softmax over 10,000 words, trained on public-domain books; see its README.md. Wherever a
command or `load_complete` takes a folder or a Hub name, `tiny` names it.
"""

from typing import Any

from .loading import TINY_FOLDER, load_complete
from .modeling_elmo import ElmoModel, ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer


def tiny_model(model_class: type[ElmoPreTrainedModel] = ElmoModel) -> Any:
    """The model, in evaluation mode: the biLM, or with its language models as `ElmoForPreTraining`."""
    return load_complete(TINY_FOLDER, model_class)


def tiny_tokenizer() -> ElmoTokenizer:
    """Its tokenizer, with the words of the softmax."""
    return ElmoTokenizer.from_pretrained(TINY_FOLDER)
