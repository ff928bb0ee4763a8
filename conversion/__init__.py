"""Checkpoints of other ELMo software in and out; ships inside the wheel as `elmo_hf.conversion`."""
