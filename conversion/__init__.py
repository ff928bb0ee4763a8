"""Converts checkpoints of other ELMo software, in both directions; ships in the wheel as `elmo_hf.conversion`.

A file that is missing, damaged, hostile or not of an ELMo raises a `ConversionError` (`refusals.py`), in every function
that reads one; only further errors are in a function's docstring.
"""
