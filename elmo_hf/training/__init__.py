"""Pretraining and adapting an ELMo."""
