"""What a table says: a mean and sample deviation per cell, the paper's value, who is best.

Pure functions over numbers that were already read; formats.py writes the result.
"""

import csv
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dac.config import Params, Table
from dac.config.suites import Key

DASH = "–"  # noqa: RUF001 - a missing run, or a value that the paper does not print
PAPER_VALUES = Path(__file__).with_name("paper_values.csv")
Place = tuple[str, str, str, str]
"""Table, task, method, heading: the key of a published value."""
Share = Callable[[Key, str], float | None]
"""A run and a place in its metrics -> the number between 0 and 1; None: no finished run has it."""
COMMON, BEST, SECOND = 0, 1, 2


@dataclass(frozen=True)
class Published:
    """A number of the paper, in percent."""

    mean: float
    std: float | None
    decimals: int
    """As many as the paper prints; ours are printed alike."""


@dataclass(frozen=True)
class Cell:
    """One method on one task by one metric."""

    values: tuple[float, ...]
    """In percent, one per finished seed."""
    expected: int
    """Seeds that the table asks for."""
    paper: Published | None = None

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def is_finished(self) -> bool:
        return self.n == self.expected

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation; one run has none."""
        return statistics.stdev(self.values) if self.n > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours - paper."""
        if self.mean is None or self.paper is None:
            return None
        return self.mean - self.paper.mean


@dataclass(frozen=True)
class Shown:
    """The words of a cell, the same in every format."""

    ours: str
    """`63.3 ± 1.3`, or a dash."""
    count: str
    """`(n=2)` where that is not the expected number of seeds."""
    paper: str
    """`[65.4, -2.1]`: the published value and ours - paper; empty in tables that are not the
    paper's."""
    rank: int = COMMON


@dataclass(frozen=True)
class Column:
    task: str
    heading: str
    group: str
    """Columns of one group (a data set with its known classes) stay together in narrow formats."""


@dataclass(frozen=True)
class Comparison:
    """A table with its numbers: methods down, every task with every metric across."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: dict[str, tuple[Cell, ...]]
    num_seeds: int
    decimals: int
    has_paper: bool

    def tasks(self) -> list[str]:
        return list(dict.fromkeys(column.task for column in self.columns))

    def headings(self) -> list[str]:
        return list(dict.fromkeys(column.heading for column in self.columns))

    def shown(self) -> dict[str, list[Shown]]:
        """The words of every row, ranked within their columns."""
        columns = [
            ranks([row[i].mean for row in self.rows.values()], self.decimals)
            for i in range(len(self.columns))
        ]
        return {
            method: [
                show(cell, self.decimals, column[at], self.has_paper)
                for cell, column in zip(cells, columns, strict=True)
            ]
            for at, (method, cells) in enumerate(self.rows.items())
        }


def published(path: Path = PAPER_VALUES) -> dict[Place, Published]:
    """Every number of the paper's Tables 1 to 6."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["table"], row["task"], row["method"], row["heading"]): Published(
                mean=float(row["mean"]),
                std=float(row["std"]) if row["std"] else None,
                decimals=len(row["mean"].partition(".")[2]),
            )
            for row in csv.DictReader(file)
        }


def compare(
    params: Params, name: str, table: Table, share: Share, paper: dict[Place, Published]
) -> Comparison:
    """The table `name` from the runs that `share` knows, beside the paper's values."""
    columns = _columns(params, table)

    def cell(column: Column, method: str) -> Cell:
        metric = table.metrics[column.heading]
        shares = [share(Key(column.task, method, seed), metric) for seed in table.seeds]
        return Cell(
            values=tuple(100 * value for value in shares if value is not None),
            expected=len(table.seeds),
            paper=paper.get((name, column.task, method, column.heading)),
        )

    of_table = [value.decimals for place, value in paper.items() if place[0] == name]
    return Comparison(
        name=name,
        title=table.title,
        columns=columns,
        rows={
            method: tuple(cell(column, method) for column in columns) for method in table.methods
        },
        num_seeds=len(table.seeds),
        decimals=max(of_table, default=1),
        has_paper=bool(of_table),
    )


def _columns(params: Params, table: Table) -> tuple[Column, ...]:
    found = []
    for name in table.tasks:
        task = params.task(name)
        group = f"{task.data}, {task.num_known} known"
        found += [Column(name, heading, group) for heading in table.metrics]
    return tuple(found)


def ranks(means: Sequence[float | None], decimals: int) -> list[int]:
    """BEST and SECOND of a column by the printed value, ties included.

    A single number is compared with nothing and has neither.
    """
    printed = [None if mean is None else round(mean, decimals) for mean in means]
    present = [value for value in printed if value is not None]
    if len(present) < 2:
        return [COMMON] * len(printed)
    places = dict(zip(sorted(set(present), reverse=True), (BEST, SECOND), strict=False))
    return [COMMON if value is None else places.get(value, COMMON) for value in printed]


def show(cell: Cell, decimals: int, rank: int = COMMON, has_paper: bool = True) -> Shown:
    mean, std = cell.mean, cell.std
    if mean is None:
        ours = DASH
    else:
        ours = f"{mean:.{decimals}f}" + ("" if std is None else f" ± {std:.{decimals}f}")
    return Shown(
        ours=ours,
        count=f"(n={cell.n})" if cell.n and not cell.is_finished else "",
        paper=_paper(cell, decimals) if has_paper else "",
        rank=rank,
    )


def _paper(cell: Cell, decimals: int) -> str:
    if cell.paper is None:
        return f"[{DASH}]"
    value = f"{cell.paper.mean:.{decimals}f}"
    if cell.difference is None:
        return f"[{value}]"
    return f"[{value}, {round(cell.difference, decimals) + 0.0:+.{decimals}f}]"  # + 0.0: no -0.0


def panels(columns: Sequence[Column], limit: int) -> list[list[int]]:
    """Indices of columns, at most `limit` side by side; a group is cut only if it is wider."""
    groups = [list(g) for _, g in groupby(range(len(columns)), lambda i: columns[i].group)]
    pieces = [g[start : start + limit] for g in groups for start in range(0, len(g), limit)]
    packed: list[list[int]] = []
    for piece in pieces:
        if packed and len(packed[-1]) + len(piece) <= limit:
            packed[-1] += piece
        else:
            packed.append(piece)
    return packed


def means(comparisons: list[Comparison]) -> dict[str, Any]:
    """{table: {task: {method: {heading: mean}}}} in percent, of cells with all their seeds."""
    tree: dict[str, Any] = {}
    for table in comparisons:
        for method, cells in table.rows.items():
            for column, cell in zip(table.columns, cells, strict=True):
                if cell.is_finished and cell.mean is not None:
                    of_task = tree.setdefault(table.name, {}).setdefault(column.task, {})
                    of_task.setdefault(method, {})[column.heading] = round(cell.mean, 2)
    return tree
