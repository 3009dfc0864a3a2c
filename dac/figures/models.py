"""Several independent models as if they were heads: their consensus and disagreement (Fig. 2).

python -m dac.figures.models --figure fig02 --out fig02.pdf
python -m dac.figures.models --run runs/my-task/fixmatch/seed1 runs/my-task/fixmatch/seed2 \
    --out models.png
"""

# n test images, K models, C known classes

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import seaborn as sns
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from dac.consensus import consensus, pairwise_l1
from dac.figures import heatmap, histogram
from dac.figures.arrays import is_inlier, read_outputs
from dac.figures.cli import NO_RUNS, ask
from dac.figures.theme import PAGE, below, leave_empty
from dac.io.errors import UserError, exit_code_of
from dac.io.progress import say

BLOCK = 1024  # images at a time; their K x K x C differences are held in memory


@dataclass(frozen=True)
class Agreement:
    """Agreement of K models on the same test images."""

    consensus: np.ndarray  # n, Eq. (7)
    is_inlier: np.ndarray  # n
    pairs: np.ndarray  # 2 x K x K: inliers, outliers

    @property
    def num_models(self) -> int:
        return int(self.pairs.shape[1])


def agree(probabilities: Sequence[np.ndarray], is_inlier: np.ndarray) -> Agreement:
    """Eq. (7) and mean exp(-L1) of every pair, over the models' n x C probabilities."""
    stacked = torch.from_numpy(np.stack(probabilities, axis=1))  # n x K x C
    num_models = stacked.shape[1]
    scores, sums = [], torch.zeros(2, num_models, num_models, dtype=torch.float64)
    for start in range(0, len(stacked), BLOCK):
        block = stacked[start : start + BLOCK]
        scores.append(consensus(block))
        alike = torch.exp(-pairwise_l1(block)).double()
        chosen = torch.from_numpy(is_inlier[start : start + BLOCK])
        sums += torch.stack([alike[chosen].sum(dim=0), alike[~chosen].sum(dim=0)])
    counts = np.array([is_inlier.sum(), (~is_inlier).sum()])
    return Agreement(torch.cat(scores).numpy(), is_inlier, sums.numpy() / counts[:, None, None])


def draw(found: Agreement | None, bins: int) -> Figure:
    """(a) the normalized consensus, (b) and (c) the agreement of pairs, on one scale."""
    figure, panels = plt.subplots(
        1, 4, figsize=(PAGE, 0.34 * PAGE), width_ratios=[1.15, 1, 1, 0.05], layout="constrained"
    )
    names = ["", "inliers", "outliers"]
    if found is None:
        for axes in panels[:3]:
            leave_empty(axes, NO_RUNS)
            axes.set(xticks=[])
        panels[3].remove()
        label = "normalized consensus"
    else:
        histogram.panel(panels[0], histogram.Scores(found.consensus, found.is_inlier), bins)
        panels[0].legend(frameon=False, loc="best")
        meaning = "mean agreement of two models"
        heatmap.panel(panels[1], found.pairs[0], meaning)
        heatmap.panel(panels[2], found.pairs[1], meaning, panels[3])
        label = f"normalized consensus of {found.num_models} models"
    sns.despine(ax=panels[0])
    panels[0].set(xlabel=below(label, 0, names), ylabel="density")
    for place in (1, 2):
        panels[place].set(xlabel=below("model", place, names), ylabel="model")
    return figure


def compare(runs: Sequence[tuple[str, dict[str, np.ndarray]]]) -> Agreement:
    """The models of several runs, which must have seen the same test images in the same order."""
    first_name, first = runs[0]
    for name, other in runs[1:]:
        same_classes = first["num_known"] == other["num_known"]
        if not same_classes or not np.array_equal(first["test_labels"], other["test_labels"]):
            raise UserError(
                f"{name} and {first_name} were tested on different images or classes; "
                "give runs of tasks with the same test images and known classes"
            )
    inliers = is_inlier(first)
    if inliers.all() or not inliers.any():
        raise UserError(f"{first_name} has no outliers among its test images; give another task")
    return agree([arrays["test_probabilities"] for _, arrays in runs], inliers)


def main() -> None:
    request = ask("models", __doc__.split("\n")[0])
    runs = [(name, arrays) for name, arrays in request.panels(read_outputs) if arrays is not None]
    if request.figure is None and len(runs) < 2:
        raise UserError("one run was given, and agreement takes two; give --run several folders")
    if len(runs) == 1:
        say(f"{request.name}: one finished run only, and agreement takes two; drawn empty")
    found = compare(runs) if len(runs) > 1 else None
    request.save(draw(found, request.params.file.figures.histogram_bins))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
