"""Writes files and folders whole or not at all, and computes checksums."""
