"""The sections `evaluate`, `aggregate`, `figures` and `suites`: what is made from runs."""

from typing import Annotated, Literal

from pydantic import Field

from dac.config.base import Count, Few, Line, Name, Section, Seed

STAGE_TARGETS = frozenset(
    {"downloads", "data", "splits", "pretraining", "models", "runs", "tables", "figures", "summary"}
)
"""Targets of the workflow that are named after a stage; rules have the singular."""
RULES = "published|transductive|inductive|memory|memory_upper|reject_nothing|reject_everything"
RATES = "balanced_accuracy|(pool_)?(inlier_recall|outlier_rejection)"
Metric = Annotated[
    str,
    Field(
        pattern=rf"^(closed\.(best|last|median_of_last|top5)|(pool_)?auroc|open\.({RULES})\.({RATES})"
        r"|kept\.pool_(inlier_recall|outlier_rejection))$"
    ),
]
"""A path in metrics.json; all metrics are fractions, shown in percent."""
Axis = Annotated[str, Field(pattern=r"^(task|method|objective)\.[a-z_]+(\.[a-z_]+)?$")]
"""A setting of the task, the method or DAC's objective, such as method.num_heads."""


class Evaluate(Section):
    last_evaluations: Count
    """Number of last evaluations whose median is reported beside best and last."""


class Grid(Section):
    """Every task with every method and every seed: the runs of a table or a figure."""

    title: Line
    tasks: tuple[Name, ...]
    methods: tuple[Name, ...]
    """Rows or lines, in this order."""
    seeds: tuple[Seed, ...]


class Table(Grid):
    """One row per method, one column per task and metric."""

    metrics: dict[Line, Metric]
    """Heading -> metric; published values (dac/results/paper_values.csv) are found by heading."""


class Figure(Grid):
    kind: Literal["curves", "histogram", "heatmap", "models", "umap"]
    """The module in dac/figures that draws it."""
    x: tuple[Axis, ...] = ()
    """Used by `curves`: settings on the horizontal axis, one row of panels each."""
    metrics: dict[Line, Metric] = {}
    """Used by `curves`: one panel each."""


class Aggregate(Section):
    tables: dict[Name, Table]


class Figures(Section):
    histogram_bins: Few
    drawn: dict[Name, Figure]


class Suite(Section):
    """What `all` builds: these tables and figures, and every run that they need."""

    tables: tuple[Name, ...]
    figures: tuple[Name, ...]
