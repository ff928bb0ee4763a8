"""Commands that are killed, run twice at once, or find no room: tests, and `python -m tests.faults` for many more."""
