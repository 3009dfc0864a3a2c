"""Which run a file belongs to: the parameters it was made with against those of now.

A run's identity (`Run.identity`) is written into its checkpoints, metrics and outputs, together
with hashes of the files it was made from.
"""

from collections.abc import Collection
from typing import Any

from dac.io.files import flatten, portable

FROM_FILES = frozenset({"split_hash", "pretrained_hash"})  # hashes of inputs, not parameters
NAMED = 3  # differences that a message lists before "(and 9 more)"


def differences(
    found: dict[str, Any], wanted: dict[str, Any], ignoring: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Map dotted names to (value found, value wanted), both as JSON stores them."""
    there, asked = flatten(portable(found)), flatten(portable(wanted))
    return {
        key: (there.get(key), asked.get(key))
        for key in sorted(there | asked)
        if there.get(key) != asked.get(key) and key not in ignoring
    }


def staleness(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Describe in which parameters a result differs from those wanted; empty if in none."""
    pairs = differences(found, wanted, FROM_FILES).items()
    return listed([f"{key}: {there!r} there, {asked!r} asked for" for key, (there, asked) in pairs])


def listed(items: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f", ... (and {len(items) - NAMED} more)" if len(items) > NAMED else ""
    return ", ".join(items[:NAMED]) + more
