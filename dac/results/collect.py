"""The metrics of the runs of a suite, as far as they are finished and of these parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dac.config import Params, Table, suites
from dac.config.suites import Key
from dac.io.errors import UserError
from dac.io.files import csv_text, flatten, read_json
from dac.runs.identity import NAMED, listed, staleness
from dac.runs.metrics_file import read_metrics

RUN_COLUMNS = ("training_seconds", "views_per_second", "peak_memory_bytes")


@dataclass(frozen=True)
class Finished:
    path: Path
    split_hash: str
    metrics: dict[str, Any]
    """Flat: closed.best, open.published.balanced_accuracy, ..."""

    def share(self, metric: str) -> float | None:
        """A number between 0 and 1; None where there was nothing to measure."""
        if metric not in self.metrics and metric.startswith("open.memory"):
            return None  # only methods whose training ends with a threshold have this rule
        value = self.metrics.get(metric, "")
        if value is None or (type(value) in (int, float) and 0 <= value <= 1):
            return value
        raise UserError(
            f"{self.path} has {value or 'nothing'} as metrics.{metric}, expected 0 to 1; "
            f"run `python -m dac.evaluate --run {self.path.parent}` again"
        )


@dataclass(frozen=True)
class Collected:
    """What is in the folder of the runs."""

    finished: dict[Key, Finished]
    stale: dict[Key, str]
    """Made with other parameters: what differs."""

    def share(self, key: Key, metric: str) -> float | None:
        found = self.finished.get(key)
        return None if found is None else found.share(metric)


def collect(params: Params, keys: Iterable[Key], runs: Path) -> Collected:
    """Those of the runs that have metrics; every file is read once."""
    found = Collected({}, {})
    for key in keys:
        path = runs / key.folder / "metrics.json"
        if not path.exists():
            continue
        run, metrics = read_metrics(path)
        wanted = params.expected(params.run(key.task, key.method, key.seed))
        if differing := staleness(run, wanted):
            found.stale[key] = differing
        else:
            found.finished[key] = Finished(path, str(run["split_hash"]), metrics)
    return found


def runs_csv(finished: dict[Key, Finished]) -> str:
    """A row per finished run: what it is, what it took, every number."""
    numbers = sorted({name for run in finished.values() for name in run.metrics})
    header = ["task", "method", "seed", "split_hash", "commit", *RUN_COLUMNS, *numbers]
    rows = [
        [key.task, key.method, key.seed, run.split_hash]
        + cost(run.path.with_name("run.json"))
        + [run.metrics.get(name) for name in numbers]
        for key, run in finished.items()
    ]
    return csv_text(header, rows)


def cost(path: Path) -> list[Any]:
    """Commit, time, speed and memory of a training run; empty where nobody wrote them down."""
    if not path.exists():
        return [None] * (1 + len(RUN_COLUMNS))
    record = read_json(path, "record of a run")
    record = flatten(record) if isinstance(record, dict) else {}
    return [record.get("provenance.commit"), *(record.get(name) for name in RUN_COLUMNS)]


# --- what is missing --------------------------------------------------------------------------


def missing_runs(tables: Mapping[str, Table], found: Collected, runs: Path) -> list[str]:
    """A line per table, and what is stale or on another split."""
    lines = [*_stale_lines(found.stale, runs), *_split_lines(found.finished)]
    for name, table in tables.items():
        keys = suites.runs(table)
        missing = [_name(key) for key in keys if key not in found.finished]
        if missing:
            lines.append(f"{name}: {len(missing)} of {len(keys)} runs missing: {listed(missing)}")
        else:
            lines.append(f"{name}: all {len(keys)} runs are in")
    if not found.finished:
        lines.append(
            f"none of these runs is finished below {runs} "
            "(looked for TASK/METHOD/seedN/metrics.json): "
            "nothing but dashes was written; train and evaluate first"
        )
    return lines


def _stale_lines(stale: dict[Key, str], runs: Path) -> list[str]:
    """One line per set of differences, however many runs share it."""
    lines = []
    for differing in dict.fromkeys(stale.values()):
        keys = [key for key, other in stale.items() if other == differing]
        tasks = list(dict.fromkeys(key.task for key in keys))
        target = " ".join(tasks[:NAMED]) + (" ..." if len(tasks) > NAMED else "")
        it = runs / keys[0].folder if len(keys) == 1 else f"them below {runs}"
        lines.append(
            f"stale, not counted: {listed([_name(key) for key in keys])}: made with other "
            f"parameters ({differing}); run `snakemake --cores all {target}` again or delete {it}"
        )
    return lines


def _split_lines(finished: dict[Key, Finished]) -> list[str]:
    """Methods on one task and seed must share their split, or they are not comparable."""
    splits: dict[tuple[str, int], dict[str, list[str]]] = {}
    for key, run in finished.items():
        of_task = splits.setdefault((key.task, key.seed), {})
        of_task.setdefault(run.split_hash, []).append(key.method)
    mixed = [
        f"{task} seed{seed} ("
        + "; ".join(f"{', '.join(names)} on {split[:8]}" for split, names in methods.items())
        + ")"
        for (task, seed), methods in splits.items()
        if len(methods) > 1
    ]
    advice = "not comparable; delete the runs of the older split and run them again"
    return [f"warning: run on different splits: {listed(mixed)}; {advice}"] if mixed else []


def _name(key: Key) -> str:
    return f"{key.task}/{key.method} seed{key.seed}"
