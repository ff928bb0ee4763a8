"""One reader for each checkpoint format."""
