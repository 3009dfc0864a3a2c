"""One look for every figure: column width, 8 pt text, inliers blue, outliers red-orange.

Every method has one color and one marker wherever it is drawn. Ours is strong, the others are
muted, standard SSL is dashed; variants of a method share its color and have hollow markers.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dac.io.errors import UserError
from dac.io.files import write_bytes

INLIER, OUTLIER = "#0072B2", "#D55E00"  # Okabe and Ito 2008; they also differ in grey
COLUMN, PAGE = 3.5, 7.16  # inches
KINDS = ("pdf", "svg", "png")
OURS = "dac"
STANDARD = ("labeled-only", "mixmatch", "fixmatch", "comatch", "simmatch", "softmatch")
METHODS = {  # name: as written in figures, color, marker; muted colors after Tol 2021
    "labeled-only": ("Labeled only", "#BBBBBB", "x"),
    "mixmatch": ("MixMatch", "#999933", "p"),
    "fixmatch": ("FixMatch", "#555555", "s"),
    "comatch": ("CoMatch", "#B08D57", "h"),
    "simmatch": ("SimMatch", "#7788AA", "d"),
    "softmatch": ("SoftMatch", "#CC6677", "8"),
    "mtcf": ("MTCF", "#DDCC77", "^"),
    "openmatch": ("OpenMatch", "#117733", "v"),
    "safe-student": ("Safe-Student", "#88CCEE", "<"),
    "osp": ("OSP", "#AA4499", ">"),
    "ssb": ("SSB", "#44AA99", "D"),
    "iomatch": ("IOMatch", "#6F66A8", "P"),
    "uagreg": ("UAGreg", "#882255", "X"),
    OURS: ("DAC", "#C1121F", "o"),
}
UNLISTED = ("#777777", "*")


@dataclass(frozen=True)
class Style:
    """How a method looks."""

    name: str
    color: str
    marker: str
    is_dashed: bool = False
    is_ours: bool = False
    is_variant: bool = False

    @property
    def rank(self) -> int:
        """Drawn from low to high: baselines, our variants, ours."""
        return 0 if not self.is_ours else 1 if self.is_variant else 2

    def line(self) -> dict[str, Any]:
        """Arguments of matplotlib's line functions."""
        return {
            "color": self.color,
            "marker": self.marker,
            "markerfacecolor": "white" if self.is_variant else self.color,
            "markeredgecolor": self.color if self.is_variant or self.marker == "x" else "white",
            "markeredgewidth": 1.0 if self.is_variant or self.marker == "x" else 0.3,
            "markersize": 5.0,
            "linewidth": 1.8 if self.is_ours and not self.is_variant else 1.0,
            "linestyle": "--" if self.is_dashed else "-",
            "zorder": 3 + self.rank,
        }


def style(method: str, base: str | None = None) -> Style:
    """The look of an entry of `methods:`; `base` is the method it sets the parameters of."""
    of = next((name for name in _longest_first() if _is_variant(method, name)), base)
    if of not in METHODS:
        color, marker = UNLISTED
        return Style(method, color, marker)
    _, color, marker = METHODS[of]
    return Style(
        name=written(method),
        color=color,
        marker=marker,
        is_dashed=of in STANDARD,
        is_ours=of == OURS,
        is_variant=method != of,
    )


def written(method: str) -> str:
    """A method's name as figures show it: DAC, FixMatch (control), MixMatch + DAC."""
    if method in METHODS:
        return METHODS[method][0]
    if method.endswith(f"+{OURS}"):
        return f"{written(method.removesuffix(f'+{OURS}'))} + {written(OURS)}"
    for name in _longest_first():
        if method.startswith(f"{name}-"):
            return f"{METHODS[name][0]} ({method.removeprefix(f'{name}-')})"
    return method


def _longest_first() -> list[str]:
    return sorted(METHODS, key=len, reverse=True)


def _is_variant(method: str, name: str) -> bool:
    return method == name or method.startswith((f"{name}-", f"{name}+"))


def use_theme() -> None:
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.0)
    mpl.rcParams.update({"font.size": 8, "axes.labelsize": 8, "legend.fontsize": 8})
    mpl.rcParams.update({"xtick.labelsize": 8, "ytick.labelsize": 8, "legend.title_fontsize": 8})
    mpl.rcParams.update({"axes.linewidth": 0.8, "xtick.major.width": 0.8, "ytick.major.width": 0.8})
    mpl.rcParams.update({"svg.hashsalt": "dac", "pdf.compression": 9})  # same data, same bytes


def side_by_side(count: int, *, ratio: float, per_row: int = 4) -> tuple[Figure, list[Axes]]:
    """`count` panels in rows, none wider than a column; `ratio` is height over width."""
    columns = max(1, min(count, per_row))
    rows = max(1, -(-count // columns))
    width = min(COLUMN, PAGE / columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(columns * width, rows * (ratio * width + (0.2 if count > 1 else 0))),
        squeeze=False,
        layout="constrained",
    )
    panels: list[Axes] = list(np.ravel(grid))
    for unused in panels[count:]:
        unused.remove()
    return figure, panels[:count]


def below(label: str, place: int, names: Sequence[str]) -> str:
    """The text under a panel: what its axis shows, its letter, and its name; one has no letter."""
    letter = f"({_letter(place)}) " if len(names) > 1 else ""
    return "\n".join(text for text in (label, f"{letter}{names[place]}".strip()) if text)


def _letter(place: int) -> str:
    return chr(ord("a") + place) if place < 26 else str(place + 1)


def leave_empty(axes: Axes, words: str) -> None:
    """A panel without data that says so, in the place of one with data."""
    axes.set(yticks=[])
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color="0.4")


def check_kind(path: Path) -> str:
    kind = path.suffix[1:]
    if kind not in KINDS:
        raise UserError(f"{path} ends in {path.suffix!r}, expected .{' or .'.join(KINDS)}")
    return kind


def save(figure: Figure, path: Path) -> None:
    """Vector (.pdf, .svg) or pixels (.png) by the name's ending, written atomically."""
    buffer = io.BytesIO()
    kind = check_kind(path)
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    figure.savefig(buffer, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
    write_bytes(path, buffer.getvalue())
