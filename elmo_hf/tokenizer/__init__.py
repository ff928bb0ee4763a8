"""Text to words, words to ids."""
