"""UMAP of the embeddings of test images: known classes colored, outliers black (Fig. 5).

python -m dac.figures.umap --figure fig05 --out fig05.pdf
python -m dac.figures.umap --run runs/digits-6-30/dac/seed1 --out umap.png
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

from dac.figures.arrays import is_inlier, read_outputs
from dac.figures.cli import NO_RUNS, ask
from dac.figures.theme import below, leave_empty, side_by_side
from dac.io.errors import UserError, exit_code_of

NEIGHBORS, MIN_DIST, SEED = 15, 0.1, 0  # the paper gives none; umap-learn's defaults


@dataclass(frozen=True)
class Points:
    """Embedded images of a run, one row per test image."""

    places: np.ndarray  # n x 2
    labels: np.ndarray  # n
    is_inlier: np.ndarray  # n
    num_known: int


def project(embeddings: np.ndarray) -> np.ndarray:
    """n x D to n x 2 by cosine distance; the same embeddings give the same places."""
    if len(embeddings) <= NEIGHBORS:
        raise UserError(f"{len(embeddings)} test images are too few; UMAP needs {NEIGHBORS + 1}")
    try:
        import umap  # type: ignore[import-untyped]  # takes seconds; missing runs need not wait
    except ImportError as error:
        raise UserError(f"umap-learn cannot be loaded ({error}); install it") from error

    reducer = umap.UMAP(
        n_neighbors=NEIGHBORS,
        min_dist=MIN_DIST,
        metric="cosine",
        n_components=2,
        random_state=SEED,
        n_jobs=1,  # more threads would make the places depend on their timing
    )
    places: np.ndarray = reducer.fit_transform(embeddings)
    return places


def draw(runs: Sequence[tuple[str, Points | None]]) -> Figure:
    """A panel per run; the axes of UMAP mean nothing and carry no numbers."""
    figure, panels = side_by_side(len(runs), ratio=1.0)
    names = [name for name, _ in runs]
    for place, (axes, (_, points)) in enumerate(zip(panels, runs, strict=True)):
        if points is None:
            leave_empty(axes, NO_RUNS)
        else:
            panel(axes, points)
        axes.set(xlabel=below("", place, names), xticks=[], yticks=[], box_aspect=1)
    shown = [points for _, points in runs if points is not None]
    if shown:
        _add_legend(figure, shown[0])
    return figure


def panel(axes: Axes, points: Points) -> None:
    """Outliers below, known classes over them; pixels in vector files, which would be huge."""
    look: dict[str, Any] = {"s": 3, "linewidths": 0, "rasterized": True}
    outliers = points.places[~points.is_inlier]
    axes.scatter(outliers[:, 0], outliers[:, 1], color="black", alpha=0.6, **look)
    colors = np.array(class_colors(points.num_known))[points.labels[points.is_inlier]]
    inliers = points.places[points.is_inlier]
    axes.scatter(inliers[:, 0], inliers[:, 1], c=colors, **look)


def class_colors(num_known: int) -> list[tuple[float, float, float]]:
    """Neighboring numbers get far hues, neighboring hues different lightness; none is dark."""
    hues = sns.color_palette("husl", num_known)
    light = sns.husl_palette(num_known, l=0.8)
    stride = next(s for s in range(num_known // 3 + 1, 2 * num_known) if np.gcd(s, num_known) == 1)
    order = [(stride * c) % num_known for c in range(num_known)]
    return [light[i] if i % 2 else hues[i] for i in order]


def _add_legend(figure: Figure, points: Points) -> None:
    def dot(color: Any) -> Line2D:
        return Line2D([], [], color=color, marker="o", markersize=3, linestyle="")

    several = tuple(dot(color) for color in class_colors(points.num_known)[:4])
    handles: list[Any] = [several, dot("black")]
    figure.legend(
        handles,
        [f"{points.num_known} known classes", "outliers"],
        handler_map={tuple: HandlerTuple(ndivide=None)},
        loc="outside lower center",
        ncols=2,
        frameon=False,
    )


def points_of(arrays: dict[str, np.ndarray]) -> Points:
    return Points(
        places=project(arrays["test_embeddings"]),
        labels=arrays["test_labels"],
        is_inlier=is_inlier(arrays),
        num_known=int(arrays["num_known"]),
    )


def main() -> None:
    request = ask("umap", __doc__.split("\n")[0])
    runs = request.panels(read_outputs)
    request.save(
        draw([(name, None if found is None else points_of(found)) for name, found in runs])
    )


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
