"""Shares models: pushed folders, exported graphs, model cards."""
