"""The "did you mean" part of error messages."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

MOST_NAMES = 100  # listed in a message


def hint(name: Any, valid: Collection[Any]) -> str:
    """Return the nearest valid name, or all of them, to append to a message."""
    names = [str(item) for item in valid]
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.4)
    if near:
        return f"; did you mean {near[0]!r}?"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; valid: {', '.join(names[:MOST_NAMES])}{more}" if names else ""


@dataclass(frozen=True)
class Misnamed:
    """A message with a hint. The nearest name is looked for only when the message is shown, which
    takes a while: a file may have thousands of wrong names."""

    text: str
    name: Any = field(compare=False)
    valid: Collection[Any] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text + hint(self.name, self.valid)
