"""Text: sentences and corpora, and names that are shown."""
