"""Embeds whole files, and keeps the results."""

from .embedder import Embedder

__all__ = ["Embedder"]
