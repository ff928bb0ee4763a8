"""A reader for each checkpoint format, and the tables of their layouts."""
