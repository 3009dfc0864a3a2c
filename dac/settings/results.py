"""The sections `evaluate`, `aggregate`, `figures`, `suites` and `plan`: what becomes of runs."""

from typing import Annotated, Literal

from pydantic import Field

from dac.settings.base import Backbone, Count, DataName, Name, NonNegative, Positive, Section, Seed

STAGE_TARGETS = frozenset(
    {"downloads", "data", "splits", "pretraining", "models", "runs", "tables", "figures", "summary"}
)
"""What may be asked of the workflow by the name of a stage; rules carry the singular."""
RULES = "published|transductive|inductive|memory|memory_upper|reject_nothing|reject_everything"
RATES = "balanced_accuracy|(pool_)?(inlier_recall|outlier_rejection)"
Metric = Annotated[
    str,
    Field(
        pattern=rf"^(closed\.(best|last|median_of_last|top5)|(pool_)?auroc|open\.({RULES})\.({RATES})"
        r"|kept\.pool_(inlier_recall|outlier_rejection))$"
    ),
]
"""A place in metrics.json; all of them are shares, shown in percent."""
Axis = Annotated[str, Field(pattern=r"^(task|method|objective)\.[a-z_]+(\.[a-z_]+)?$")]
"""A setting of the task, the method or what DAC stands on, such as method.num_heads."""


class Evaluate(Section):
    last_evaluations: Count
    """The median over this many last evaluations is reported beside best and last."""


class Grid(Section):
    """Every task with every method and every seed: the runs of a table or a figure."""

    title: str
    tasks: tuple[Name, ...]
    methods: tuple[Name, ...]
    """Rows or lines, in this order; names of `planned_methods` are left out until they exist."""
    seeds: tuple[Seed, ...]


class Table(Grid):
    """Methods down, every task with every metric across."""

    metrics: dict[str, Metric]
    """Heading -> number; the published values (dac/paper_values.csv) go by the headings."""


class Figure(Grid):
    kind: Literal["curves", "histogram", "heatmap", "models", "umap"]
    """The module of dac/figures that draws it."""
    x: tuple[Axis, ...] = ()
    """Of `curves`: what lies on the horizontal axis, one row of panels each."""
    metrics: dict[str, Metric] = {}
    """Of `curves`: one panel each."""


class Aggregate(Section):
    tables: dict[Name, Table]


class Figures(Section):
    histogram_bins: Count
    drawn: dict[Name, Figure]


class Suite(Section):
    """What `all` builds: these tables and figures, and every run that they need."""

    tables: tuple[Name, ...]
    figures: tuple[Name, ...]


class Plan(Section):
    """The cost model behind `python -m dac.plan` and the queue's time limits."""

    gpu: str
    teraflops: Positive
    """What that GPU is taken to sustain in fp32 training."""
    gigaflops_per_view: dict[Backbone, Positive]
    """One forward pass of one image with the next side; training takes three."""
    side_of_view: dict[Backbone, Count]
    """Cost grows with the square of the side."""
    step_over_floor: dict[str, Positive]
    """Method -> its step over the forward and backward passes in it, from `python -m dac.bench`."""
    train_images: dict[DataName, Count]
    """Images that pre-training sees in an epoch; about as many are in the pool."""
    test_images: dict[DataName, Count]
    """Images that every evaluation during training sees."""
    gigabytes_of_data: dict[DataName, NonNegative]
    """Raw and prepared together."""
    megabytes_per_run: dict[Backbone, Positive]
    memory_mb: dict[DataName, Count]
    """Main memory of a training job."""
    threads: dict[DataName, Count]
    """Cores of a training job."""
    safety: Positive
    """A job's time limit is its expected time times this ..."""
    longest_job_minutes: Count
    """... and at most this, which the queue must allow; a longer run stops in time and resumes."""
    shortest_job_minutes: Count
    """... and at least this, for start-up and small jobs."""
    evaluate_minutes: Count
    """Limit of a pass over pool and test images, which begins anew after a kill."""
    cpu_minutes: Count
    """Limit of jobs on CPU nodes: preparing data, tables, figures."""
    cpu_memory_mb: Count
    """Main memory of those."""
