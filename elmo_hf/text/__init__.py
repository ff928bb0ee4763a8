"""Reads sentences and corpora, and escapes text for printing."""
