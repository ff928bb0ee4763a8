"""Models for a task on top of ELMo."""
