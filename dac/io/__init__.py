"""Files, errors, progress and devices: used by every other package."""
