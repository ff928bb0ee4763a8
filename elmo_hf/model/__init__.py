"""The ELMo model: characters to word vectors, the biLM, the scalar mixes."""
