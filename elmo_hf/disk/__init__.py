"""Files and folders that are written whole or not at all, and their checksums."""
