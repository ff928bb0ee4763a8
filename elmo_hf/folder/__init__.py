"""Finds or downloads, checks and loads model folders from anyone; all other code trusts the loaded models."""
