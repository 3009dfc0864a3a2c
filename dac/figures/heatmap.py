"""Agreement of every pair of heads, on inliers and on outliers (Figs. 2b-c and 6).

python -m dac.figures.heatmap --figure fig06 --out fig06.pdf
python -m dac.figures.heatmap --run runs/digits-6-30/dac/seed1 --out heatmap.png
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dac.figures.arrays import read_scores
from dac.figures.cli import NO_RUNS, Request, ask
from dac.figures.theme import COLUMN, below, leave_empty
from dac.io.errors import UserError, exit_code_of

LOWEST = math.exp(-2)  # two one-hot predictions of different classes
KINDS = ("inliers", "outliers")


def draw(runs: Sequence[tuple[str, np.ndarray | None]]) -> Figure:
    """Mean exp(-L1) of head pairs, 2 x K x K per run: inliers left, outliers right, one scale."""
    figure, grid = plt.subplots(
        len(runs),
        3,
        figsize=(2 * COLUMN, COLUMN * len(runs)),
        width_ratios=[1, 1, 0.06],
        squeeze=False,
        layout="constrained",
    )
    several = len(runs) > 1
    names = [f"{name}, {kind}" if several else kind for name, _ in runs for kind in KINDS]
    for row, (axes, (_, agreement)) in enumerate(zip(grid, runs, strict=True)):
        for column in range(len(KINDS)):
            text = below("head", 2 * row + column, names)
            if agreement is None:
                leave_empty(axes[column], NO_RUNS)
                axes[column].set(xticks=[], box_aspect=1)
            else:
                scale = axes[2] if column else None
                panel(axes[column], agreement[column], "mean agreement of two heads", scale)
            axes[column].set(xlabel=text, ylabel="head")
        if agreement is None:
            axes[2].remove()
    return figure


def panel(axes: Axes, agreement: np.ndarray, label: str, scale: Axes | None = None) -> None:
    """One K x K matrix; heads are counted from 1. `scale` gets the colors' meaning."""
    names = range(1, len(agreement) + 1)
    sns.heatmap(
        agreement,
        ax=axes,
        vmin=LOWEST,
        vmax=1,
        square=True,
        cmap="viridis",
        xticklabels=names,
        yticklabels=names,
        cbar=scale is not None,
        cbar_ax=scale,
        cbar_kws={"label": label},
    )
    axes.tick_params(length=0, labelrotation=0)
    step = -(-len(agreement) // 12)  # more numbers than that do not fit
    for place, text in enumerate([*axes.get_xticklabels(), *axes.get_yticklabels()]):
        text.set_visible(place % len(agreement) % step == 0)


def read(run: Path, expected: dict[str, Any] | None) -> np.ndarray:
    return read_scores(run, expected).get("agreement", np.empty(0))


def checked(request: Request) -> list[tuple[str, np.ndarray | None]]:
    """The runs' matrices; a method with one head, or test images of one kind, has none."""
    runs = request.panels(read)
    for name, agreement in runs:
        if agreement is not None and not agreement.size:
            raise UserError(f"{name} has one head only; give a run of a DAC method")
        if agreement is not None and len(agreement) != len(KINDS):
            raise UserError(f"{name} has no outliers among its test images; give another task")
    return runs


def main() -> None:
    request = ask("heatmap", __doc__.split("\n")[0])
    request.save(draw(checked(request)))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
