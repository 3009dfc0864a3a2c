"""Metrics along a setting: labels, outliers, heads, weights (Figs. 1, 8, 9, 10, 11).

python -m dac.figures.curves --figure fig08 --out fig08.pdf fig08.png
"""

import math
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dac.config.suites import Key
from dac.figures.arrays import read_numbers
from dac.figures.cli import NO_RUNS, Request, ask
from dac.figures.points import Line, Measure, Panel, Point, panels
from dac.figures.theme import COLUMN, PAGE, Style, below, leave_empty, style
from dac.io.errors import exit_code_of
from dac.io.progress import say
from dac.runs.metrics_file import number

LABELS = {
    "task.labels_per_class": "labels per known class",
    "task.pool.outlier_share": "outliers in the pool (%)",
    "method.num_heads": "number of heads $K$",
    "method.rejection_temperature": "temperature $t_w$ of soft rejection",
    "objective.lambda_u": r"weight $\lambda_u$",
    "method.lambda_mi": r"weight $\lambda_\mathrm{mi}$",
    "method.lambda_kd": r"weight $\lambda_\mathrm{kd}$",
}
IN_PERCENT = ("task.pool.outlier_share",)
TASK_MARKERS = "os^vDPX"
EVEN_ENOUGH = 4.0  # widest gap over narrowest gap of a scale whose numbers can be read


def draw(shown: Sequence[Panel], styles: Mapping[str, Style]) -> Figure:
    """A row of panels per axis and a column per metric; with one metric all axes are in a row."""
    metrics = list(dict.fromkeys(panel.metric for panel in shown))
    columns = len(metrics) if len(metrics) > 1 else min(len(shown), 4)
    rows = -(-len(shown) // columns)
    width = min(COLUMN, PAGE / columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(columns * width, rows * (0.75 * width + 0.35) + 0.55),
        sharey="col" if len(metrics) > 1 else "all",  # a metric has one scale
        squeeze=False,
        layout="constrained",
    )
    names = [""] * len(shown)
    for place, (axes, panel) in enumerate(zip(grid.flat, shown, strict=False)):
        _panel(axes, panel, styles)
        label = LABELS.get(panel.axis, panel.axis.split(".")[-1].replace("_", " "))
        axes.set_xlabel(below(label, place, names))
        if len(metrics) > 1 or place % columns == 0:
            axes.set_ylabel(_in_lines(f"{panel.metric} (%)"))
    for unused in list(grid.flat)[len(shown) :]:
        unused.remove()
    _add_legend(figure, shown, styles)
    sns.despine(figure)
    return figure


def _panel(axes: Axes, panel: Panel, styles: Mapping[str, Style]) -> None:
    scale = positions(panel.grid)
    for line in sorted(panel.lines, key=lambda line: styles[line.name].rank):
        if line.points:
            look = styles[line.name].line()
            axes.errorbar(
                [scale[point.x] for point in line.points],
                [100 * point.mean for point in line.points],
                yerr=[100 * point.std for point in line.points],
                capsize=1.5,
                capthick=0.8,
                elinewidth=0.8,
                label=styles[line.name].name,
                **look,
            )
    if not any(line.points for line in panel.lines):
        leave_empty(axes, NO_RUNS)
    factor = 100 if panel.axis in IN_PERCENT else 1
    axes.set_xticks(list(scale.values()), [tick(factor * x) for x in scale])
    pad = 0.06 * max(np.ptp(list(scale.values())), 1) if scale else 0
    if scale:
        axes.set_xlim(min(scale.values()) - pad, max(scale.values()) + pad)


def _in_lines(text: str) -> str:
    """One line, or two of like length where one would be longer than its panel."""
    return text if len(text) <= 25 else textwrap.fill(text, len(text) // 2 + 4)


def tick(x: float) -> str:
    return "∞" if math.isinf(x) else f"{x:.6g}"


def positions(grid: Sequence[float]) -> dict[float, float]:
    """Place the values of an axis: by value, else by logarithm, else evenly.

    The first of these that leaves room for every number. Infinity follows the last finite value.
    """
    finite = [x for x in grid if math.isfinite(x)]
    scales = [finite, np.log10(finite).tolist() if finite and min(finite) > 0 else None]
    even = [float(i) for i in range(len(finite))]
    places = next((s for s in scales if s is not None and _is_even_enough(s)), even)
    found = dict(zip(finite, places, strict=True))
    if math.inf in grid:
        gap = max(np.diff(places), default=1.0)
        found[math.inf] = float(places[-1] + gap if places else 0.0)
    return found


def _is_even_enough(places: Sequence[float]) -> bool:
    gaps = np.diff(places)
    return len(gaps) == 0 or bool(gaps.max() <= EVEN_ENOUGH * gaps.min())


def _add_legend(figure: Figure, shown: Sequence[Panel], styles: Mapping[str, Style]) -> None:
    """Every line with a point, in the listed order, and what the bars are."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    order = dict.fromkeys(styles[line.name].name for panel in shown for line in panel.lines)
    labels = [label for label in order if label in handles]
    if labels:
        figure.legend(
            [handles[label] for label in labels],
            labels,
            title=bars(point for panel in shown for line in panel.lines for point in line.points),
            loc="outside lower center",
            ncols=min(len(labels), 5),
            frameon=False,
        )


def bars(points: Iterable[Point]) -> str:
    """What a point and its bar are, in words."""
    counts = sorted({point.num_seeds for point in points})
    if counts == [1]:
        return "one seed"
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and sample standard deviation over {seeds} seeds"


def styles_of(request: Request, lines: Iterable[Line]) -> dict[str, Style]:
    """A look per line: its method's; the lines of several tasks differ by their markers."""
    entries, styles = request.params.file.methods, dict[str, Style]()
    for line in lines:
        if line.name not in styles:
            look = style(line.method, entries[line.method].method)
            is_task = line.name != line.method
            marker = TASK_MARKERS[len(styles) % len(TASK_MARKERS)]
            styles[line.name] = replace(look, name=line.name, marker=marker) if is_task else look
    return styles


def measured(request: Request) -> Measure:
    """Numbers of the figure's runs; every run is read, and missed, once."""
    read: dict[Key, dict[str, Any] | None] = {}

    def measure(key: Key, metric: str) -> float | None:
        if key not in read:
            read[key] = request.find(key, read_numbers)
        metrics = read[key]
        if metrics is None:
            return None
        value = number(metrics.get(metric))
        if value is None:
            say(f"{request.name}: left out: {request.runs / key.folder} has no {metric}")
        return value

    return measure


def main() -> None:
    request = ask("curves", __doc__.split("\n")[0], own_runs=False)
    assert request.figure is not None, "no runs of one's own, so a figure was named"
    shown = panels(request.params, request.figure, measured(request))
    lines = [line for panel in shown for line in panel.lines]
    if not any(line.points for line in lines):
        say(f"{request.name}: {NO_RUNS}; drawn empty")
    request.save(draw(shown, styles_of(request, lines)))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
