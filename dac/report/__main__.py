"""Write one self-contained HTML page with the tables, figures and provenance of a suite.

    python -m dac.report --suite demo --out results/report.html

Works offline and with unfinished results: the page says what is missing. The same inputs give the
same bytes; the date is that of the newest run unless --date gives another. `--rulegraph` takes the
output of `snakemake all --rulegraph dot`; without it the eight stages are drawn in a row.
"""

import argparse
import sys
from pathlib import Path

from dac.config import load, suites
from dac.config.arguments import DEFAULT, command
from dac.io.errors import exit_code_of
from dac.io.files import write_text
from dac.io.progress import say
from dac.report import dag, page, runs
from dac.results.collect import missing_runs


def main() -> None:
    options = parse()
    params = load(options.params)
    results = suites.results(params, options.suite)
    found = runs.read(params, results, options.runs, options.pretrained)
    tables = page.built(results.tables, options.tables, ("html", "csv", "md", "tex"))
    figures = page.built(results.figures, options.figures, ("png", "pdf"))
    graph = options.rulegraph
    html = page.render(
        results=results,
        runs=found,
        date=options.date or runs.newest(found.records),
        tables=tables,
        figures=figures,
        notes=[*found.faults, *missing_runs({}, found.found, options.runs)],
        states=page.states(results, found, {**tables, **figures}),
        jobs=page.jobs(params, results, by_rule=graph is not None),
        drawing=dag.read_dot(graph) if graph else dag.row(page.STAGES),
        parameter_file=options.params.name,
        parameters=options.params.read_text(encoding="utf-8"),
        costs=runs.costs(found.records),
        makers=runs.counts(found.records, runs.SETTING),
        splits=runs.counts(found.records, ["task", "seed", "split"]),
    )
    write_text(options.out, html)
    say(f"{options.out}: {len(tables)} of {len(results.tables)} tables, "
        f"{len(figures)} of {len(results.figures)} figures")  # fmt: skip


def parse() -> argparse.Namespace:
    parser = command("report", __doc__, "--suite", "--runs", "--pretrained", "--params")
    for name, default, what in (
        ("--out", "results/report.html", "the page"),
        ("--tables", "results/tables", "folder of the tables"),
        ("--figures", "results/figures", "folder of the figures"),
    ):
        parser.add_argument(name, type=Path, default=Path(default), help=f"{what} {DEFAULT}")
    parser.add_argument("--rulegraph", type=Path, help="a dot file, or /dev/stdin")
    parser.add_argument("--date", help="shown instead of the time of the newest run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
