"""What the runs of a suite say about themselves: who made them, on what, at what cost.

Reads run.json files. One that cannot be read is named on the page instead of stopping it, and a
number that nobody wrote down is missing, not zero.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dac import aggregate, grid
from dac.aggregate import Collected
from dac.errors import UserError
from dac.files import flatten, read_json
from dac.grid import Key
from dac.params import Params

UNKNOWN = "unknown"
YEAR_2100 = 4.1e9


@dataclass(frozen=True)
class Record:
    """A finished training run: its run.json, flat."""

    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return UNKNOWN if value is None else str(value)

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) else None

    @property
    def packages(self) -> str:
        start = "provenance.packages."
        found = {k.removeprefix(start): v for k, v in self.values.items() if k.startswith(start)}
        return ", ".join(f"{name} {found[name]}" for name in sorted(found)) or UNKNOWN


@dataclass(frozen=True)
class Runs:
    """Everything of a suite that lies in the folder of the runs."""

    needed: tuple[Key, ...]
    found: Collected
    """What the tables count: evaluated, and with the parameters that the suite asks for."""
    records: Mapping[Key, Record]
    """What was trained, stale runs included."""
    pretrained: Mapping[str, Record]
    faults: tuple[str, ...]
    """Files that cannot be read."""

    @property
    def all_records(self) -> list[Record]:
        return [*self.records.values(), *self.pretrained.values()]


def read(params: Params, results: grid.Results, runs: Path, pretrained: Path) -> Runs:
    needed = grid.all_runs(params, results.grids().values())
    faults: list[str] = []
    records = {key: _record(runs / key.folder / "run.json", faults) for key in needed}
    networks = [
        Path(file).relative_to("pretrained").parent
        for file in grid.targets(params, results)["pretraining"]
    ]
    origins = {str(name): _record(pretrained / name / "run.json", faults) for name in networks}
    return Runs(
        needed=tuple(needed),
        found=_collect(params, needed, runs, faults),
        records={key: record for key, record in records.items() if record},
        pretrained={name: record for name, record in origins.items() if record},
        faults=tuple(faults),
    )


def _record(path: Path, faults: list[str]) -> Record | None:
    try:
        content = read_json(path, "record of a run") if path.exists() else None
    except UserError as error:
        faults.append(str(error))
        return None
    if content is not None and not isinstance(content, dict):
        faults.append(f"{path} holds no record of a run; delete it and run its stage again")
        return None
    return None if content is None else Record(flatten(content))


def _collect(params: Params, keys: Iterable[Key], runs: Path, faults: list[str]) -> Collected:
    """As the tables do, but one broken file does not hide the others."""
    whole = Collected({}, {})
    for key in keys:
        try:
            one = aggregate.collect(params, [key], runs)
        except UserError as error:
            faults.append(str(error))
            continue
        whole = Collected(whole.finished | one.finished, whole.stale | one.stale)
    return whole


# --- sums -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of several runs; None where no run says it."""

    runs: int
    seconds: float | None
    longest: float | None
    peak_memory: float | None
    views_per_second: tuple[float, float] | None
    """Slowest and fastest run."""


def cost(records: Iterable[Record]) -> Cost:
    records = list(records)

    def numbers(name: str) -> list[float]:
        return [value for record in records if (value := record.number(name)) is not None]

    seconds, speeds = numbers("training_seconds"), numbers("views_per_second")
    return Cost(
        runs=len(records),
        seconds=sum(seconds) if seconds else None,
        longest=max(seconds, default=None),
        peak_memory=max(numbers("peak_memory_bytes"), default=None),
        views_per_second=(min(speeds), max(speeds)) if speeds else None,
    )


def by_task(runs: Runs) -> dict[str, Cost]:
    tasks = dict.fromkeys(key.task for key in runs.records)
    return {
        task: cost(record for key, record in runs.records.items() if key.task == task)
        for task in tasks
    }


def makers(runs: Runs) -> list[tuple[int, Record]]:
    """Every setting in which runs were made, with the number of them, most first."""

    def setting(record: Record) -> tuple[str, ...]:
        names = ("commit", "python", "host", "device")
        return (*(record.text(f"provenance.{name}") for name in names), record.packages)

    counts = Counter(map(setting, runs.all_records))
    examples = {setting(record): record for record in runs.all_records}
    return [
        (n, examples[s]) for s, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def commits(runs: Runs) -> list[str]:
    return sorted({record.text("provenance.commit") for record in runs.all_records})


def splits(runs: Runs) -> dict[tuple[str, int, str], int]:
    """(task, seed, hash) -> runs on it. Two hashes for one task and seed do not compare."""
    found = [(k.task, k.seed, record.text("run.split_hash")) for k, record in runs.records.items()]
    return dict(sorted(Counter(found).items()))


def newest(runs: Runs) -> str | None:
    """When the last run finished, so that the same runs give the same page."""
    times = [t for r in runs.all_records if 0 < (t := r.number("finished_unix") or 0) < YEAR_2100]
    if not times:
        return None
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%d %H:%M UTC")
