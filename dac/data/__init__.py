"""Data sets on disk: downloading the official files, reading them, the prepared format."""
