"""Witnesses to compare converted models with: a biLM in NumPy, and published numbers."""
