"""ELMo (Peters et al. 2018) as a first-class transformers model."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .configuration_elmo import ElmoConfig
from .lstmp import BiLMState
from .modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel
from .pretraining import ElmoForPreTraining, ElmoForPreTrainingOutput
from .question_answering import ElmoForQuestionAnswering, extract_answers
from .sequence_classification import ElmoForSequenceClassification
from .tiny import tiny_model, tiny_tokenizer
from .token_classification import ElmoForTokenClassification
from .tokenization_elmo import ElmoTokenizer

__all__ = [
    "BiLMState",
    "ElmoConfig",
    "ElmoForPreTraining",
    "ElmoForPreTrainingOutput",
    "ElmoForQuestionAnswering",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoModelOutput",
    "ElmoPreTrainedModel",
    "ElmoTokenizer",
    "extract_answers",
    "tiny_model",
    "tiny_tokenizer",
]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification)
AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification)
AutoModelForQuestionAnswering.register(ElmoConfig, ElmoForQuestionAnswering)
AutoModelForPreTraining.register(ElmoConfig, ElmoForPreTraining)
AutoTokenizer.register(ElmoConfig, fast_tokenizer_class=ElmoTokenizer)
