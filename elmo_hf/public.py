"""The public names, and the one place where the package plugs into `model/`, the code that saved folders have too.

Importing this module registers ELMo with the Auto classes of transformers, and gives the classes of `model/` what only
the package has: the kernels of this processor, packed weights, the card of a model that is pushed, and of language
models streams, sampled losses and scores.
"""

import transformers
from transformers import AutoConfig, AutoTokenizer

from .folder.loading import load, tiny_model, tiny_tokenizer
from .heads import HEADS
from .kernels.packing import pack
from .kernels.processor_kernels import ProcessorKernels
from .language_model.cloze import PredictedWord, predict_words
from .language_model.pretraining import PretrainingParts
from .model.configuration_elmo import ElmoConfig
from .model.heads_elmo import (
    ElmoForQuestionAnswering,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    extract_answers,
)
from .model.language_model_elmo import ElmoForCausalLM, ElmoForPreTraining, ElmoForPreTrainingOutput
from .model.layers_elmo import BiLMState
from .model.modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel
from .model.scan_elmo import Kernels
from .model.tokenization_elmo import ElmoTokenizer
from .pipelines import pipeline
from .share.model_info import complete_card
from .tasks.word_vectors import WordVectors

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
    "load",
    "pipeline",
    "predict_words",
    "tiny_model",
    "tiny_tokenizer",
]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
for head in HEADS:
    getattr(transformers, head.auto_class).register(ElmoConfig, head.model_class)
# Registered by its name, without a config. So, like config and models, it is used even if `trust_remote_code=True`
# allows a folder's own code (`explicit_local_code` in transformers).
AutoTokenizer.register(ElmoTokenizer, ElmoTokenizer)

Kernels.default = ProcessorKernels()
ElmoPreTrainedModel.keep_packed = staticmethod(pack)
ElmoPreTrainedModel.complete_card = staticmethod(complete_card)
ElmoForPreTraining.package_parts = PretrainingParts()
