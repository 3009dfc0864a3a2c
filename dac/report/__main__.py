"""One self-contained HTML page of a suite: tables, figures, what is missing, provenance, workflow.

    python -m dac.report --suite demo --out results/report.html

Works offline and on half-finished results: what is not there yet is said. The same inputs give the
same bytes; the date is that of the newest run unless --date gives another. `--rulegraph` takes the
output of `snakemake all --rulegraph dot`; without it the eight stages are drawn in a row.
"""

import argparse
import sys
from pathlib import Path

from dac import grid
from dac.errors import UserError, exit_code_of
from dac.files import write_text
from dac.logs import say
from dac.params import DEFAULT_PATH, load
from dac.report import inputs, runs
from dac.report.dag import Graph, parse_dot
from dac.report.page import render


def main() -> None:
    options = parse()
    params = load(options.params)
    results = grid.results(params, options.suite)
    found = runs.read(params, results, options.runs, options.pretrained)
    page = inputs.Page(
        params=params,
        results=results,
        runs=found,
        folder=options.runs,
        date=options.date or runs.newest(found),
        tables=inputs.tables(results, options.tables),
        figures=inputs.figures(results, options.figures),
        captions=inputs.captions(),
        parameters=options.params.read_text(encoding="utf-8"),
        graph=rule_graph(options.rulegraph),
    )
    write_text(options.out, render(page))
    say(f"{options.out}: {len(page.tables)} of {len(results.tables)} tables, "
        f"{len(page.figures)} of {len(results.figures)} figures")  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dac.report", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--suite", help="default: the suite of the parameter file")
    parser.add_argument("--out", type=Path, default=Path("results/report.html"))
    parser.add_argument("--tables", type=Path, default=Path("results/tables"))
    parser.add_argument("--figures", type=Path, default=Path("results/figures"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--pretrained", type=Path, default=Path("pretrained"))
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--rulegraph", type=Path, help="a dot file, or /dev/stdin")
    parser.add_argument("--date", help="shown instead of the time of the newest run")
    return parser.parse_args()


def rule_graph(path: Path | None) -> Graph | None:
    if path is None:
        return None
    try:
        return parse_dot(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"rule graph {path} cannot be read ({error}); "
            "write it with `snakemake all --rulegraph dot`"
        ) from error


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
