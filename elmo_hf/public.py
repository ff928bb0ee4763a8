"""The public names of the package; importing it registers ELMo with the Auto classes of transformers."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .folder.loading import tiny_model, tiny_tokenizer
from .language_model.causal_model import ElmoForCausalLM
from .language_model.cloze import PredictedWord, predict_words
from .language_model.pretraining import ElmoForPreTraining
from .language_model.sentence_model import ElmoForPreTrainingOutput
from .model.bilm import BiLMState
from .model.configuration_elmo import ElmoConfig
from .model.modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel
from .pipelines import pipeline
from .tasks.question_answering import ElmoForQuestionAnswering, extract_answers
from .tasks.sequence_classification import ElmoForSequenceClassification
from .tasks.token_classification import ElmoForTokenClassification
from .tasks.word_vectors import WordVectors
from .tokenizer.tokenization_elmo import ElmoTokenizer

__all__ = [
    "BiLMState",
    "ElmoConfig",
    "ElmoForCausalLM",
    "ElmoForPreTraining",
    "ElmoForPreTrainingOutput",
    "ElmoForQuestionAnswering",
    "ElmoForSequenceClassification",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoModelOutput",
    "ElmoPreTrainedModel",
    "ElmoTokenizer",
    "PredictedWord",
    "WordVectors",
    "extract_answers",
    "pipeline",
    "predict_words",
    "tiny_model",
    "tiny_tokenizer",
]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
AutoModelForSequenceClassification.register(ElmoConfig, ElmoForSequenceClassification)
AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification)
AutoModelForQuestionAnswering.register(ElmoConfig, ElmoForQuestionAnswering)
AutoModelForPreTraining.register(ElmoConfig, ElmoForPreTraining)
AutoModelForCausalLM.register(ElmoConfig, ElmoForCausalLM)
# Registered by its name, without a config. So, like config and models, it is used even if `trust_remote_code=True`
# allows a folder's own code (`explicit_local_code` in transformers).
AutoTokenizer.register(ElmoTokenizer, ElmoTokenizer)
