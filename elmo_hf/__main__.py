"""`python -m elmo_hf`, the command line for shells that do not find `elmo-hf`."""

from .cli import main

main()
