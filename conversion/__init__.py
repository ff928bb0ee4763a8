"""Converts checkpoints of other ELMo software, in both directions; ships in the wheel as `elmo_hf.conversion`."""
