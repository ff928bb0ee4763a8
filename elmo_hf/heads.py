"""The table of heads: each class of model that a folder may hold, and what the rest of the package knows about it.

A new head is a row here, and an entry of `AUTO_MAP` in `model/configuration_elmo.py`, which saved configs carry.
"""

from typing import NamedTuple

from .model.heads_elmo import ElmoForQuestionAnswering, ElmoForSequenceClassification, ElmoForTokenClassification
from .model.language_model_elmo import ElmoForCausalLM, ElmoForPreTraining
from .model.modeling_elmo import ElmoModel, ElmoPreTrainedModel

FEATURE_EXTRACTION = "feature-extraction"


class Head(NamedTuple):
    """A class of model."""

    model_class: type[ElmoPreTrainedModel]
    auto_class: str  # the Auto class of transformers that loads it
    task: str = FEATURE_EXTRACTION  # the Hub's name of its task, for cards
    use: str | None = None  # what it is for, in words; None: what its biLM and softmax are for
    has_labels: bool = False  # whether its outputs are the config's labels
    drops_softmax: bool = False  # whether it is saved without a softmax, although its config may have had one
    is_exported: bool = False  # whether a graph has the head; of other classes, the biLM is exported

    @property
    def has_pipeline(self) -> bool:
        """Whether one of its pipelines loads models by its own Auto class."""
        return any(auto_class == self.auto_class for _, auto_class in self.model_class.pipelines.values())


HEADS = (
    Head(ElmoModel, "AutoModel"),
    Head(
        ElmoForSequenceClassification,
        "AutoModelForSequenceClassification",
        task="text-classification",
        use="classify texts",
        has_labels=True,
        drops_softmax=True,
        is_exported=True,
    ),
    Head(
        ElmoForTokenClassification,
        "AutoModelForTokenClassification",
        task="token-classification",
        use="label words",
        has_labels=True,
        drops_softmax=True,
        is_exported=True,
    ),
    Head(
        ElmoForQuestionAnswering,
        "AutoModelForQuestionAnswering",
        task="question-answering",
        use="answer questions",
        drops_softmax=True,
        is_exported=True,
    ),
    Head(ElmoForPreTraining, "AutoModelForPreTraining"),
    Head(ElmoForCausalLM, "AutoModelForCausalLM"),
)
