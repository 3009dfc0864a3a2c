"""Histogram of normalized scores (for DAC the consensus), inliers and outliers (Figs. 2a, 7).

python -m dac.figures.histogram --figure fig07 --out fig07.pdf
python -m dac.figures.histogram --run runs/digits-6-30/dac/seed1 --out histogram.png
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dac.figures.arrays import is_inlier, read_scores
from dac.figures.cli import NO_RUNS, ask
from dac.figures.theme import INLIER, OUTLIER, below, leave_empty, side_by_side
from dac.io.errors import exit_code_of


@dataclass(frozen=True)
class Scores:
    """Scores of a run, one row per test image."""

    scores: np.ndarray
    is_inlier: np.ndarray
    threshold: float | None = None


def draw(runs: Sequence[tuple[str, Scores | None]], bins: int) -> Figure:
    """A panel per run; one without scores says so."""
    figure, panels = side_by_side(len(runs), ratio=0.62 if len(runs) < 3 else 0.95)
    names = [name for name, _ in runs]
    for place, (axes, (_, scores)) in enumerate(zip(panels, runs, strict=True)):
        label = "normalized inlier score"
        if scores is None:
            leave_empty(axes, NO_RUNS)
            axes.set(xlim=(0, 1))
        else:
            panel(axes, scores, bins)
        axes.set_xlabel(below(label, place, names) if len(runs) > 1 else label)
        axes.set_ylabel("density" if place == 0 else "")
    _add_legend(figure, panels)
    sns.despine(figure)
    return figure


def panel(axes: Axes, shown: Scores, bins: int) -> None:
    """Densities of the scores of Eq. (8), min-max over all images shown, and the threshold."""
    low, width = shown.scores.min(), max(float(np.ptp(shown.scores)), 1e-12)
    normalized = (shown.scores - low) / width
    for chosen, color, name in (
        (shown.is_inlier, INLIER, "inliers"),
        (~shown.is_inlier, OUTLIER, "outliers"),
    ):
        if not chosen.any():
            continue
        sns.histplot(
            x=normalized[chosen],
            bins=np.linspace(0, 1, bins + 1).tolist(),
            stat="density",
            color=color,
            alpha=0.55,
            linewidth=0,
            label=f"{name} (n = {int(chosen.sum())})",
            ax=axes,
        )
    if shown.threshold is not None:
        at = (shown.threshold - low) / width
        axes.axvline(at, color="0.2", linewidth=1, linestyle="--", label="threshold")
    axes.set(xlim=(0, 1))


def _add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Inside a single panel; below several, where it would hide bars."""
    handles = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    handles = dict(sorted(handles.items()))  # inliers, outliers, threshold
    if handles and len(panels) == 1:
        panels[0].legend(handles.values(), handles.keys(), frameon=False, loc="best")
    elif handles:
        figure.legend(
            handles.values(),
            handles.keys(),
            frameon=False,
            ncols=len(handles),
            loc="outside lower center",
        )


def read(run: Path, expected: dict[str, Any] | None) -> Scores:
    arrays = read_scores(run, expected)
    threshold = float(arrays["published_threshold"])  # NaN: the rule is none (IOMatch)
    has_line = not np.isnan(threshold)
    return Scores(arrays["test_scores"], is_inlier(arrays), threshold if has_line else None)


def main() -> None:
    request = ask("histogram", __doc__.split("\n")[0])
    request.save(draw(request.panels(read), request.params.file.figures.histogram_bins))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
