"""Data sets on disk: getting the official files, reading them, the prepared format."""
