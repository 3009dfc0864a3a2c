"""Stage `aggregate`: the numbers of many runs as the tables of a suite, beside the paper's values.

    python -m dac.aggregate --suite paper                # every table, runs.csv, metrics.json
    python -m dac.aggregate --table table1               # one table
    python -m dac.aggregate --suite paper --runs-only    # only runs.csv and metrics.json

Says what can be said now: a missing run is a dash, and stderr names it; one made with other
parameters than params.yaml asks for counts as missing. runs.csv has a row per finished run,
metrics.json (for `dvc metrics show`) the means of those cells whose seeds have all finished.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dac import grid
from dac.errors import UserError, exit_code_of
from dac.files import flatten, read_json, write_json, write_text
from dac.grid import Key
from dac.identity import NAMED, listed, read_metrics, staleness
from dac.logs import say
from dac.params import DEFAULT_PATH, Params, load
from dac.params_wording import hint
from dac.settings import Grid, Table
from dac.table_formats import FORMATS, csv_text, to_markdown
from dac.tables import Comparison, compare, means, published

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
    """What lies in the folder of the runs."""

    finished: dict[Key, Finished]
    stale: dict[Key, str]
    """Made with other parameters: what differs."""

    def share(self, key: Key, metric: str) -> float | None:
        found = self.finished.get(key)
        return None if found is None else found.share(metric)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.aggregate", description=__doc__.split("\n")[0]
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--suite", help="every table of it; default: the one params.yaml names")
    what.add_argument("--table", help="this table only")
    parser.add_argument("--runs-only", action="store_true", help="no tables")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/so-far"),
        help="default: a folder apart from the tables that the workflow makes",
    )
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    options = parser.parse_args()
    if options.table and options.runs_only:
        raise UserError("--runs-only is about a suite; give --suite instead of --table")

    params = load(options.params)
    tables, grids = chosen(params, options.suite, options.table)
    found = collect(params, grid.all_runs(params, grids), options.runs)
    paper = published()
    comparisons = [compare(params, name, t, found.share, paper) for name, t in tables.items()]
    if not options.table:
        write_text(options.out / "runs.csv", runs_csv(found.finished))
        write_json(options.out / "metrics.json", means(comparisons))
    if not options.runs_only:
        write_tables(comparisons, options.out)
    for line in report(params, tables, found, options.runs):
        say(line)


def chosen(
    params: Params, suite: str | None, table: str | None
) -> tuple[dict[str, Table], list[Grid]]:
    """The tables to make, and everything whose runs count (the figures of a suite, too)."""
    if table is None:
        results = grid.results(params, suite)
        return results.tables, list(results.grids().values())
    known = params.file.aggregate.tables
    if table not in known:
        raise UserError(f"table {table!r} is not in {params.path}{hint(table, known)}")
    return {table: known[table]}, [known[table]]


def write_tables(comparisons: list[Comparison], out: Path) -> None:
    for table in comparisons:
        for ending, write in FORMATS.items():
            write_text(out / f"{table.name}.{ending}", write(table))
    print("\n".join(map(to_markdown, comparisons)), end="")


# --- reading ----------------------------------------------------------------------------------


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


# --- numbers ----------------------------------------------------------------------------------


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


def report(params: Params, tables: dict[str, Table], found: Collected, runs: Path) -> list[str]:
    lines = [*_stale_lines(found.stale, runs), *_split_lines(found.finished)]
    for name, table in tables.items():
        keys = grid.runs(params, table)
        missing = [_name(key) for key in keys if key not in found.finished]
        if not keys:
            lines.append(f"{name}: empty, none of its methods is built yet")
        elif missing:
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


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
