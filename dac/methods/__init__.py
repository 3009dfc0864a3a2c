"""One file per method. To write another, read `base.py` and `fixmatch.py`."""
