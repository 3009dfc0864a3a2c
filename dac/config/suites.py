"""Which runs a suite, a table or a figure needs, and where their files are.

A run named by several tables and figures is one run. No torch in this file: the workflow reads it
in every job.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dac.config.params import Params
from dac.config.results import STAGE_TARGETS, Figure, Grid, Table
from dac.config.run import PretrainRun

OF_EVERY_MODEL = ("models", "umap")  # figures that read outputs.npz, which other runs do not need


@dataclass(frozen=True)
class Key:
    """The name of one run."""

    task: str
    method: str
    seed: int

    @property
    def folder(self) -> Path:
        return Path(self.task) / self.method / f"seed{self.seed}"


@dataclass(frozen=True)
class SuiteResults:
    """The tables and figures of one suite."""

    suite: str
    tables: dict[str, Table]
    figures: dict[str, Figure]

    def grids(self) -> dict[str, Grid]:
        return {**self.tables, **self.figures}


def results(params: Params, suite: str | None = None) -> SuiteResults:
    """Return the tables and figures of a suite; None: of the one that the file names."""
    name = suite or params.file.suite
    chosen = params.suite(name)
    return SuiteResults(
        name,
        {table: params.file.aggregate.tables[table] for table in chosen.tables},
        {figure: params.file.figures.drawn[figure] for figure in chosen.figures},
    )


def runs(grid: Grid) -> list[Key]:
    """Every task with every method and every seed."""
    return [
        Key(task, method, seed)
        for task in grid.tasks
        for method in grid.methods
        for seed in grid.seeds
    ]


def all_runs(grids: Iterable[Grid]) -> list[Key]:
    """The runs of several tables and figures, each once, in the order of first use."""
    return list(dict.fromkeys(key for grid in grids for key in runs(grid)))


def pretraining_of(params: Params, key: Key) -> PretrainRun | None:
    """The pre-training that a run starts from, if any."""
    run = params.run(key.task, key.method, key.seed)
    if run.train.initial == "random":
        return None
    return params.pretrain(run.task.data, run.train.backbone)


# --- files --------------------------------------------------------------------------------------


def of_runs(keys: Iterable[Key], name: str) -> list[str]:
    return [f"runs/{key.folder}/{name}" for key in keys]


def figure_inputs(figure: Figure) -> list[str]:
    """Small files that represent everything a figure reads from its runs."""
    name = "outputs.json" if figure.kind in OF_EVERY_MODEL else "metrics.json"
    return of_runs(runs(figure), name)


def pretrained_folder(data: str, backbone: str) -> str:
    return f"pretrained/{data}/{backbone}"


def targets(params: Params, found: SuiteResults) -> dict[str, list[str]]:
    """Target -> its files: the stages of a suite (in the plural, because rules have the singular),
    and every table, figure and task of the file."""
    keys = all_runs(found.grids().values())
    sets = sorted({params.task(key.task).data for key in keys})
    origins = {origin for key in keys if (origin := pretraining_of(params, key))}
    networks = sorted(pretrained_folder(o.data_name, o.backbone) for o in origins)
    inputs = [file for figure in found.figures.values() for file in figure_inputs(figure)]
    stages = {
        "downloads": [f"data/receipts/{name}.json" for name in sets if name != "folder"],
        "data": [f"data/prepared/{name}/meta.json" for name in sets],
        "splits": sorted({f"data/splits/{key.task}/seed{key.seed}.json" for key in keys}),
        "pretraining": [f"{folder}/run.json" for folder in networks],
        "models": of_runs(keys, "run.json"),
        "runs": list(dict.fromkeys([*of_runs(keys, "metrics.json"), *inputs])),
        "tables": [table_file(name) for name in found.tables],
        "figures": [figure_file(name) for name in found.figures],
        "summary": [f"results/summary/{found.suite}/runs.csv"],
    }
    assert set(stages) == STAGE_TARGETS
    file = params.file
    tables = {name: [table_file(name)] for name in file.aggregate.tables}
    figures = {name: [figure_file(name)] for name in file.figures.drawn}
    short = {re.sub(r"^fig0", "fig", name): files for name, files in figures.items()}  # fig8
    return short | stages | tables | figures | _tasks(params)


def table_file(name: str) -> str:
    return f"results/tables/{name}.md"


def figure_file(name: str) -> str:
    return f"results/figures/{name}.pdf"


def _tasks(params: Params) -> dict[str, list[str]]:
    """Task -> its runs in any table or figure of the file."""
    file = params.file
    grids = [*file.aggregate.tables.values(), *file.figures.drawn.values()]
    found: dict[str, list[str]] = {}
    for key in all_runs(grids):
        found.setdefault(key.task, []).extend(of_runs([key], "metrics.json"))
    return found
