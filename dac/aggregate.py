"""Stage `aggregate`: the metrics of many runs as one tidy table, and its summary over seeds.

    python -m dac.aggregate --runs runs --out results

Writes runs.csv (one row per run) and summary.csv / summary.md (mean and sample standard deviation
over seeds). A run without metrics is a dash in the summary, never a zero.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from dac.errors import UserError, exit_code_of
from dac.files import flatten, read_json, write_text

# Column of the summary -> where it stands in metrics.json
COLUMNS = {
    "closed": ("closed", "best"),
    "open": ("open", "published", "balanced_accuracy"),
    "open, inductive": ("open", "inductive", "balanced_accuracy"),
    "open, reject nothing": ("open", "reject_nothing", "balanced_accuracy"),
    "AUROC": ("auroc",),
}
DASH = "–"  # noqa: RUF001 - a dash that stands for a missing run


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.aggregate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table = collect(options.runs)
    write_text(options.out / "runs.csv", table.to_csv(index=False))
    summary = summarize(table)
    write_text(options.out / "summary.csv", summary.to_csv(index=False))
    write_text(options.out / "summary.md", markdown(summary))
    print(markdown(summary), end="")


def collect(runs: Path) -> pd.DataFrame:
    """One row per finished run below `runs`: task, method, seed and every number."""
    rows = [row(path) for path in sorted(runs.glob("*/*/seed*/metrics.json"))]
    if not rows:
        raise UserError(
            f"no metrics.json below {runs} (looked for TASK/METHOD/seedN); train and evaluate first"
        )
    return pd.DataFrame(rows)


def row(path: Path) -> dict[str, Any]:
    content = read_json(path, "metrics of a run")
    try:
        run = content["run"]
        named = {
            "task": run["task"]["name"],
            "method": run["method"]["name"],
            "seed": run["seed"],
            "split_hash": run["split_hash"],
        }
        return named | flatten(content["metrics"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} lacks {error}; run `python -m dac.evaluate` again") from None


def summarize(table: pd.DataFrame, methods: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Mean and sample standard deviation in percent per task and method, with the number of runs.

    `methods` fixes the rows and their order; one without runs has n = 0.
    """
    rows = []
    for task, of_task in table.groupby("task", sort=False):
        for method in methods or tuple(dict.fromkeys(of_task["method"])):
            chosen = of_task[of_task["method"] == method]
            summary: dict[str, Any] = {"task": task, "method": method, "n": len(chosen)}
            for column, place in COLUMNS.items():
                values = 100 * chosen.get(".".join(place), pd.Series(dtype=float))
                summary[column] = values.mean()
                summary[f"{column} std"] = values.std(ddof=1)
            rows.append(summary)
    return pd.DataFrame(rows)


def cell(mean: float, std: float) -> str:
    if pd.isna(mean):
        return DASH
    return f"{mean:.1f}" if pd.isna(std) else f"{mean:.1f} ± {std:.1f}"


def markdown(summary: pd.DataFrame) -> str:
    """The summary as a Markdown table, aligned so that it also reads well in a terminal."""
    header = ["task", "method", *COLUMNS, "n"]
    lines = [
        [
            entry["task"],
            entry["method"],
            *(cell(entry[c], entry[f"{c} std"]) for c in COLUMNS),
            str(entry["n"]),
        ]
        for entry in summary.to_dict("records")
    ]
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    return "".join(
        "| " + " | ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)) + " |\n"
        for line in [header, rule, *lines]
    )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
