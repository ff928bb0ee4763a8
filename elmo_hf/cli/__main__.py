"""`python -m elmo_hf.cli`, for launchers that start modules."""

from . import main

main()
