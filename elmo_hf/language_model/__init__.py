"""The two language models that pretrain an ELMo, and scoring with them."""
