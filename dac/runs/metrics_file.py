"""metrics.json, the numbers of a run, and what counts as a number."""

import sys
from pathlib import Path
from typing import Any

from dac.io.errors import UserError
from dac.io.files import flatten, read_json


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


def number(value: Any) -> float | None:
    """Return a value of a JSON file as a float; None if it is no number, or not a finite one."""
    is_finite = type(value) in (int, float) and abs(value) <= sys.float_info.max  # True is no 1
    return float(value) if is_finite else None
