"""The "did you mean" part of error messages."""

import difflib
from collections.abc import Collection
from typing import Any


def hint(name: Any, valid: Collection[Any]) -> str:
    """Return the nearest valid name, or all of them, to append to a message."""
    names = [str(item) for item in valid]
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; valid: {', '.join(names)}" if names else ""
