"""Whose result a file holds: the parameters it was made with, against those asked for now.

A run's identity (`Run.identity`) is written into its checkpoints, metrics and outputs, together
with hashes of the files it was made from.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from dac.errors import UserError
from dac.files import flatten, portable, read_json

FROM_FILES = frozenset({"split_hash", "pretrained_hash"})  # of a run's inputs, not its parameters
NAMED = 3  # differences that a message lists before "(and 9 more)"


def differences(
    found: dict[str, Any], wanted: dict[str, Any], ignoring: Collection[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> what is there, what is asked for; in JSON's words, as files hold them."""
    there, asked = flatten(portable(found)), flatten(portable(wanted))
    return {
        key: (there.get(key), asked.get(key))
        for key in sorted(there | asked)
        if there.get(key) != asked.get(key) and key not in ignoring
    }


def staleness(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """In which parameters a result differs from those asked for, as words; empty if in none."""
    pairs = differences(found, wanted, FROM_FILES).items()
    return listed([f"{key}: {there!r} there, {asked!r} asked for" for key, (there, asked) in pairs])


def listed(items: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f", ... (and {len(items) - NAMED} more)" if len(items) > NAMED else ""
    return ", ".join(items[:NAMED]) + more


def read_metrics(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The identity and the flat numbers (closed.best, ...) of a run's metrics.json."""
    content = read_json(path, "metrics of a run")
    content = content if isinstance(content, dict) else {}
    run, metrics = content.get("run"), content.get("metrics")
    if isinstance(run, dict) and isinstance(metrics, dict) and "split_hash" in run:
        return run, flatten(metrics)
    raise UserError(
        f"{path} lacks run, run.split_hash or metrics; delete it and run "
        f"`python -m dac.evaluate --run {path.parent}` again"
    )
