"""The points of a figure of curves: means over seeds, along a setting of the task or the method.

`task.*`  a line per method over all tasks.
`method.*`  a line per task over the reference (the first method) and those that set it otherwise.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dac.config import Figure, Params, Run
from dac.config.suites import Key
from dac.io.errors import UserError

Measure = Callable[[Key, str], float | None]


@dataclass(frozen=True)
class Point:
    x: float
    mean: float
    std: float  # sample standard deviation over seeds; NaN for one
    num_seeds: int


@dataclass(frozen=True)
class Line:
    name: str
    method: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Panel:
    axis: str
    metric: str
    grid: tuple[float, ...]
    """Every value of the axis that the figure plans, measured or not."""
    lines: tuple[Line, ...]


def panels(params: Params, figure: Figure, measure: Measure) -> list[Panel]:
    """Axis by axis, metric by metric."""
    found = []
    for axis in figure.x:
        planned = plan(params, figure, axis)
        values = {x for places in planned.values() for x in places}
        for heading, metric in figure.metrics.items():
            lines = [
                Line(name, method, _points(places, figure.seeds, metric, measure))
                for (name, method), places in planned.items()
            ]
            found.append(Panel(axis, heading, tuple(sorted(values)), tuple(lines)))
    return found


def plan(
    params: Params, figure: Figure, axis: str
) -> dict[tuple[str, str], dict[float, tuple[str, str]]]:
    """Line (its name and method) -> place on the axis -> task and method."""
    methods = figure.methods
    if axis.startswith("task."):
        return {
            (m, m): _by_value(params, axis, ((task, m) for task in figure.tasks)) for m in methods
        }
    return {
        (methods[0] if len(figure.tasks) == 1 else task, methods[0]): _by_value(
            params, axis, ((task, m) for m in swept(params, axis, task, methods))
        )
        for task in figure.tasks
        if methods
    }


def swept(params: Params, axis: str, task: str, methods: tuple[str, ...]) -> list[str]:
    """The reference and those methods whose value of the setting differs from its value."""
    own = _value(params, axis, task, methods[0])
    return [methods[0], *(m for m in methods[1:] if _value(params, axis, task, m) != own)]


def value_of(run: Run, axis: str) -> float:
    """A dotted name such as task.pool.outlier_share, looked up in a run."""
    value: Any = run
    for part in axis.split("."):
        value = getattr(value, part, None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(
            f"{axis} of {run.task_name} with {run.method_name} is {value!r}, which has no place on "
            "an axis; name a setting with numbers under x:, or leave the entry out of the figure"
        )
    return float(value)


def _value(params: Params, axis: str, task: str, method: str) -> float:
    return value_of(params.run(task, method, 0), axis)


def _by_value(
    params: Params, axis: str, pairs: Iterable[tuple[str, str]]
) -> dict[float, tuple[str, str]]:
    places: dict[float, tuple[str, str]] = {}
    for task, method in pairs:
        x = _value(params, axis, task, method)
        if x in places:
            both = " and ".join("/".join(pair) for pair in (places[x], (task, method)))
            raise UserError(f"{both} share {axis} = {x:g}; leave one out of the figure")
        places[x] = (task, method)
    return dict(sorted(places.items()))


def _points(
    places: Mapping[float, tuple[str, str]],
    seeds: tuple[int, ...],
    metric: str,
    measure: Measure,
) -> tuple[Point, ...]:
    points = []
    for x, (task, method) in places.items():
        measured = [measure(Key(task, method, seed), metric) for seed in seeds]
        values = [value for value in measured if value is not None]
        if values:
            std = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            points.append(Point(x, float(np.mean(values)), std, len(values)))
    return tuple(points)
