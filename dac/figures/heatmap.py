"""Agreement of every pair of heads, on inliers and on outliers (Figs. 2b-c and 6).

python -m dac.figures.heatmap --run runs/digits-6-30/dac/seed1 --out heatmap.png
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from dac.errors import UserError, exit_code_of
from dac.figures.arrays import read_scores
from dac.figures.theme import COLUMN, save, use_theme

LOWEST = math.exp(-2)  # two one-hot predictions of different classes


def draw(agreement: np.ndarray) -> Figure:
    """Mean exp(-L1) of head pairs, 2 x K x K: inliers left, outliers right, one color scale."""
    figure, panels = plt.subplots(
        1, 3, figsize=(2 * COLUMN, COLUMN), width_ratios=[1, 1, 0.06], layout="constrained"
    )
    for axes, values, name in zip(panels[:2], agreement, ("inliers", "outliers"), strict=True):
        sns.heatmap(
            values,
            ax=axes,
            vmin=LOWEST,
            vmax=1,
            square=True,
            cmap="viridis",
            cbar=axes is panels[1],
            cbar_ax=panels[2] if axes is panels[1] else None,
            cbar_kws={"label": "mean agreement of two heads"},
        )
        axes.set(xlabel=f"head ({name})", ylabel="head")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dac.figures.heatmap")
    parser.add_argument("--run", type=Path, required=True, help="folder of an evaluated run")
    parser.add_argument("--out", type=Path, required=True, help="a .pdf, .svg or .png")
    options = parser.parse_args()
    arrays = read_scores(options.run)
    if "agreement" not in arrays:
        raise UserError(f"{options.run} has one head only; give a run of a DAC method")
    use_theme()
    save(draw(arrays["agreement"]), options.out)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
