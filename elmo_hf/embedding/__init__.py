"""Embedding whole files, and keeping what was computed."""
