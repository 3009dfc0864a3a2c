"""The page of a suite: what page.html.j2 shows, and how files and numbers become text."""

import base64
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dac.config import Params, suites
from dac.config.suites import SuiteResults
from dac.io.errors import UserError, reason, remedy
from dac.io.files import regular
from dac.io.progress import say
from dac.report.runs import UNKNOWN, Runs

STAGES = ("download", "prepare", "split", "pretrain", "train", "evaluate", "aggregate", "figures")
JOBS = {
    "download": "downloads", "prepare": "data", "split": "splits", "pretrain": "pretraining",
    "train": "models", "evaluate": "models", "table": "tables", "figure": "figures",
    "figures": "figures", "aggregate": "summary",
}  # fmt: skip
"""Rule or stage -> the targets that it makes."""
PNG = re.compile(rb"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR(....)(....)", re.DOTALL)  # width, height
SHOWN = 0.6  # CSS pixels per pixel of a figure: drawn at 200 dpi, read at 120

Files = dict[str, dict[str, bytes]]
"""Name -> ending -> content; empty where there is none."""


def built(names: Iterable[str], folder: Path, endings: tuple[str, ...]) -> Files:
    """Read the files of those results whose first file, the one to show, is there and whole."""
    found = {name: {e: _content(folder / f"{name}.{e}") for e in endings} for name in names}
    return {name: files for name, files in found.items() if files[endings[0]]}


def _content(path: Path) -> bytes:
    try:
        content = regular(path).read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        step = remedy(error, "delete it and make it again")
        raise UserError(f"{path} cannot be read ({reason(error)}); {step}") from error
    is_whole = PNG.match(content) if path.suffix == ".png" else content.strip()
    if not is_whole:
        say(f"{path} is empty or no {path.suffix[1:].upper()} file; delete it and make it again")
    return content if is_whole else b""


def states(
    results: SuiteResults, runs: Runs, built: Collection[str]
) -> list[tuple[str, int, int, str]]:
    """Return (name, runs needed, runs in, built or not) of every table and figure."""
    keys = {name: suites.runs(grid) for name, grid in results.grids().items()}
    done = {name: sum(key in runs.found.finished for key in keys[name]) for name in keys}
    return [(n, len(keys[n]), done[n], "yes" if n in built else "no") for n in keys]


def jobs(params: Params, results: SuiteResults, by_rule: bool) -> dict[str, int]:
    """Count the jobs of every rule or stage."""
    files = suites.targets(params, results)
    counts = {name: len(files[target]) for name, target in JOBS.items()}
    if not by_rule:  # the rule `aggregate` makes no tables, the stage does
        counts["aggregate"] += counts["table"]
    return counts | {"outputs": len(files["runs"]) - counts["evaluate"]}


def render(**context: Any) -> str:
    """Fill the template; equal inputs give equal bytes."""
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"duration": duration, "data": data_address, "shown_size": shown_size}
    return environment.get_template("page.html.j2").render(context) + "\n"


def duration(seconds: float) -> str:
    if math.isnan(seconds):
        return UNKNOWN
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{seconds / 3600:,.1f} h"


def data_address(content: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def shown_size(png: bytes) -> list[int]:
    header = PNG.match(png)
    assert header, "checked when it was read"
    return [round(SHOWN * int.from_bytes(number)) for number in header.groups()]
