"""Histogram of normalized scores (for DAC the consensus), inliers and outliers (Figs. 2a, 7).

python -m dac.figures.histogram --run runs/digits-6-30/dac/seed1 --out histogram.png
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from dac.errors import exit_code_of
from dac.figures.arrays import read_scores
from dac.figures.theme import COLUMN, INLIER, OUTLIER, save, use_theme
from dac.params import DEFAULT_PATH, load


def draw(scores: np.ndarray, is_inlier: np.ndarray, threshold: float, bins: int) -> Figure:
    """Densities of the scores of Eq. (8), min-max over all images shown, and the threshold."""
    low, width = scores.min(), max(float(np.ptp(scores)), 1e-12)
    normalized = (scores - low) / width
    figure, axes = plt.subplots(figsize=(COLUMN, 0.62 * COLUMN))
    for chosen, color, name in ((is_inlier, INLIER, "inliers"), (~is_inlier, OUTLIER, "outliers")):
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
    axes.axvline(
        (threshold - low) / width, color="0.2", linewidth=1, linestyle="--", label="threshold"
    )
    axes.set(xlabel="normalized inlier score", ylabel="density", xlim=(0, 1))
    axes.legend(frameon=False, loc="best")
    sns.despine(figure)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.figures.histogram")
    parser.add_argument("--run", type=Path, required=True, help="folder of an evaluated run")
    parser.add_argument("--out", type=Path, required=True, help="a .pdf, .svg or .png")
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    options = parser.parse_args()
    arrays = read_scores(options.run)
    use_theme()
    figure = draw(
        arrays["test_scores"],
        (arrays["test_labels"] >= 0) & (arrays["test_labels"] < arrays["num_known"]),
        float(arrays["published_threshold"]),
        load(options.params).file.figures.histogram_bins,
    )
    save(figure, options.out)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
