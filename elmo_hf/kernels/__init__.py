"""Faster operations for the scans of `model/scan_elmo.py`: processors, Triton, weights in eight bits, kept copies."""
