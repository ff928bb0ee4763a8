"""Importing this module calls `register_as_allennlp`, so that installed programs import the drop-in as `allennlp`."""

from .installed_programs import register_as_allennlp

register_as_allennlp()
