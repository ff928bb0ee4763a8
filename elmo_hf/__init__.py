"""ELMo (Peters et al. 2018) as a first-class transformers model."""

from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer

from .configuration_elmo import ElmoConfig
from .lstmp import BiLMState
from .modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel
from .pretraining import ElmoForPreTraining, ElmoForPreTrainingOutput
from .tiny import tiny_model, tiny_tokenizer
from .tokenization_elmo import ElmoTokenizer

__all__ = [
    "BiLMState",
    "ElmoConfig",
    "ElmoForPreTraining",
    "ElmoForPreTrainingOutput",
    "ElmoModel",
    "ElmoModelOutput",
    "ElmoPreTrainedModel",
    "ElmoTokenizer",
    "tiny_model",
    "tiny_tokenizer",
]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
AutoModelForPreTraining.register(ElmoConfig, ElmoForPreTraining)
AutoTokenizer.register(ElmoConfig, fast_tokenizer_class=ElmoTokenizer)
