"""ELMo (Peters et al. 2018) as a first-class transformers model."""

from transformers import AutoConfig, AutoModel, AutoTokenizer

from .configuration_elmo import ElmoConfig
from .lstmp import BiLMState
from .modeling_elmo import ElmoModel, ElmoModelOutput, ElmoPreTrainedModel
from .tokenization_elmo import ElmoTokenizer

__all__ = ["BiLMState", "ElmoConfig", "ElmoModel", "ElmoModelOutput", "ElmoPreTrainedModel", "ElmoTokenizer"]

AutoConfig.register(ElmoConfig.model_type, ElmoConfig)
AutoModel.register(ElmoConfig, ElmoModel)
AutoTokenizer.register(ElmoConfig, fast_tokenizer_class=ElmoTokenizer)
