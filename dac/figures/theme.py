"""One look for every figure: column width, 8 pt text, inliers blue, outliers red."""

import io
from pathlib import Path

import matplotlib as mpl
import seaborn as sns
from matplotlib.figure import Figure

from dac.errors import UserError
from dac.files import write_bytes

INLIER, OUTLIER = "#0072B2", "#D55E00"  # Okabe and Ito 2008; they also differ in grey
COLUMN = 3.5  # inches
KINDS = ("pdf", "svg", "png")


def use_theme() -> None:
    mpl.use("Agg")
    sns.set_theme(context="paper", style="ticks", font_scale=1.0)
    mpl.rcParams.update({"font.size": 8, "axes.labelsize": 8, "legend.fontsize": 8})
    mpl.rcParams.update({"svg.hashsalt": "dac", "pdf.compression": 9})  # same data, same bytes


def save(figure: Figure, path: Path) -> None:
    """Vector (.pdf, .svg) or pixels (.png) by the name's ending, written atomically."""
    buffer = io.BytesIO()
    kind = path.suffix[1:]
    if kind not in KINDS:
        raise UserError(f"{path} ends in {path.suffix!r}, expected .{' or .'.join(KINDS)}")
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    figure.savefig(buffer, format=kind, dpi=200, bbox_inches="tight", metadata=metadata)
    write_bytes(path, buffer.getvalue())
