"""Pretraining and adapting an ELMo: corpora, the Trainer, resumable runs."""
