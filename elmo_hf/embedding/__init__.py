"""Embedding whole files, and keeping what was computed."""

from .embedder import Embedder

__all__ = ["Embedder"]
