"""What the runs of a suite record about themselves: who made them, on what, at what cost.

A run.json that cannot be read is named on the page instead of stopping it, and a number that was
not recorded is missing, not zero.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dac.config import Params, suites
from dac.config.suites import Key, SuiteResults
from dac.io.errors import UserError
from dac.io.files import flatten, read_json
from dac.results.collect import Collected, collect
from dac.runs.metrics_file import number

UNKNOWN = "unknown"
YEAR_2100 = 4.1e9
SETTING = ["commit", "python", "host", "device", "packages"]
NUMBERS = ["training_seconds", "views_per_second", "peak_memory_bytes", "finished_unix"]


class Runs(NamedTuple):
    """Everything of a suite that is in the folder of the runs."""

    found: Collected
    """What the tables count: evaluated, and with the parameters that the suite asks for."""
    records: pd.DataFrame
    """One row per trained network: stale runs, and pre-training, which has no seed, included."""
    faults: list[str]
    """Messages about files that cannot be read."""


def read(params: Params, results: SuiteResults, runs: Path, pretrained: Path) -> Runs:
    keys = suites.all_runs(results.grids().values())
    faults: list[str] = []
    rows = [_row(runs / key.folder, key.task, key.seed, faults) for key in keys]
    for file in suites.targets(params, results)["pretraining"]:
        name = Path(file).relative_to("pretrained").parent
        rows.append(_row(pretrained / name, f"pre-training {name}", None, faults))
    columns = ["task", "seed", "split", *SETTING, *NUMBERS]
    records = pd.DataFrame([row for row in rows if row], columns=columns)
    return Runs(_collect(params, keys, runs, faults), records.astype({"seed": "Int64"}), faults)


def _row(folder: Path, task: str, seed: int | None, faults: list[str]) -> dict[str, Any] | None:
    """Return what the run.json of a folder records; None where there is none."""
    path = folder / "run.json"
    try:
        content = read_json(path, "record of a run") if path.exists() else None
        if not isinstance(content, dict | None):
            raise UserError(f"{path} holds no record of a run; delete it and run its stage again")
    except UserError as error:
        faults.append(str(error))
        return None
    return None if content is None else {"task": task, "seed": seed, **_values(flatten(content))}


def _values(flat: dict[str, Any]) -> dict[str, Any]:
    start = "provenance.packages."
    packages = sorted(name.removeprefix(start) for name in flat if name.startswith(start))
    return {
        **{name: str(flat.get(f"provenance.{name}") or UNKNOWN) for name in SETTING},
        "packages": ", ".join(f"{name} {flat[start + name]}" for name in packages) or UNKNOWN,
        "split": str(flat.get("run.split_hash") or UNKNOWN),
        **{name: math.nan if (n := number(flat.get(name))) is None else n for name in NUMBERS},
    }


def _collect(params: Params, keys: Iterable[Key], runs: Path, faults: list[str]) -> Collected:
    """Collect the metrics as the tables do, but one broken file does not hide the others."""
    whole = Collected({}, {})
    for key in keys:
        try:
            one = collect(params, [key], runs)
        except UserError as error:
            faults.append(str(error))
            continue
        whole = Collected(whole.finished | one.finished, whole.stale | one.stale)
    return whole


# --- sums -------------------------------------------------------------------------------------


def costs(records: pd.DataFrame) -> pd.DataFrame:
    """Return the cost of every task and pre-training; NaN where no run records it."""
    return records.groupby("task", sort=False, as_index=False).agg(
        runs=("task", "size"),
        seconds=("training_seconds", lambda seconds: seconds.sum(min_count=1)),
        longest=("training_seconds", "max"),
        memory=("peak_memory_bytes", "max"),
        slowest=("views_per_second", "min"),
        fastest=("views_per_second", "max"),
    )


def counts(records: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return every combination of these columns with its number of runs."""
    return records.groupby(names).size().reset_index(name="runs")


def newest(records: pd.DataFrame) -> str | None:
    """Return when the last run finished, so that the same runs give the same page."""
    times = records["finished_unix"]
    last = times[times.between(0, YEAR_2100, inclusive="neither")].max()
    return None if pd.isna(last) else f"{datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M} UTC"
