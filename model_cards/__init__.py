"""Model cards of ELMo checkpoints; ships inside the wheel as `elmo_hf.model_cards`."""
