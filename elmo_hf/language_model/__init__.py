"""ELMo as the two language models that it is pretrained as."""
