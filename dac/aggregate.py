"""Stage `aggregate`: the numbers of many runs as the tables of a suite, beside the paper's values.

    python -m dac.aggregate --suite paper                # every table, runs.csv, metrics.json
    python -m dac.aggregate --table table1               # one table
    python -m dac.aggregate --suite paper --runs-only    # only runs.csv and metrics.json

Says what can be said now: a missing run is a dash, and stderr names it; one made with other
parameters than params.yaml asks for counts as missing. runs.csv has a row per finished run,
metrics.json (for `dvc metrics show`) the means of those cells whose seeds have all finished.
"""

import sys
from pathlib import Path

from dac.config import Grid, Params, Table, load, suites
from dac.config.arguments import DEFAULT, command
from dac.io.errors import UserError, exit_code_of
from dac.io.files import write_json, write_text
from dac.io.progress import say
from dac.io.suggestions import hint
from dac.results.collect import collect, missing_runs, runs_csv
from dac.results.formats import FORMATS, to_markdown
from dac.results.tables import Comparison, compare, means, published


def main() -> None:
    parser = command("aggregate", __doc__, "--runs", "--params")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--suite", help="every table of it; default: the one params.yaml names")
    what.add_argument("--table", help="this table only")
    parser.add_argument("--runs-only", action="store_true", help="no tables")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/so-far"),
        help=f"folder, apart from the tables that the workflow makes {DEFAULT}",
    )
    options = parser.parse_args()
    if options.table and options.runs_only:
        raise UserError("--runs-only is about a suite; give --suite instead of --table")

    params = load(options.params)
    tables, grids = chosen(params, options.suite, options.table)
    found = collect(params, suites.all_runs(grids), options.runs)
    paper = published()
    comparisons = [compare(params, name, t, found.share, paper) for name, t in tables.items()]
    if not options.table:
        write_text(options.out / "runs.csv", runs_csv(found.finished))
        write_json(options.out / "metrics.json", means(comparisons))
    if not options.runs_only:
        write_tables(comparisons, options.out)
    for line in missing_runs(tables, found, options.runs):
        say(line)


def chosen(
    params: Params, suite: str | None, table: str | None
) -> tuple[dict[str, Table], list[Grid]]:
    """The tables to make, and everything whose runs count (the figures of a suite, too)."""
    if table is None:
        results = suites.results(params, suite)
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


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
