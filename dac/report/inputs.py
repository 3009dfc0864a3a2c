"""What a page is made of, and reading it: files that exist, however many that are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dac import grid
from dac.logs import say
from dac.params import Params
from dac.report.dag import Graph
from dac.report.runs import Runs

CAPTIONS = Path(__file__).parents[2] / "workflow" / "report"
PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
PNG_HEADER = 24  # bytes up to and including width and height

Files = Mapping[str, Mapping[str, bytes]]
"""Name -> ending -> content, as far as they exist."""


@dataclass(frozen=True)
class Page:
    params: Params
    results: grid.Results
    runs: Runs
    folder: Path
    """Of the runs, for messages."""
    date: str | None
    tables: Files
    figures: Files
    captions: Mapping[str, str]
    """`table` and `figure`: workflow/report/*.rst."""
    parameters: str
    """The text of the parameter file."""
    graph: Graph | None


def tables(results: grid.Results, folder: Path) -> Files:
    return _built(results.tables, folder, ("html", "csv", "md", "tex"))


def figures(results: grid.Results, folder: Path) -> Files:
    return _built(results.figures, folder, ("png", "pdf"))


def _built(names: Iterable[str], folder: Path, endings: tuple[str, ...]) -> Files:
    """Those whose first file, the one to show, is there and whole."""
    found = {name: _files(folder, name, endings) for name in names}
    return {name: files for name, files in found.items() if endings[0] in files}


def _files(folder: Path, name: str, endings: tuple[str, ...]) -> dict[str, bytes]:
    paths = {ending: folder / f"{name}.{ending}" for ending in endings}
    found = {ending: path.read_bytes() for ending, path in paths.items() if path.is_file()}
    for ending in [ending for ending, content in found.items() if not _is_whole(ending, content)]:
        say(f"{paths[ending]} is empty or no {ending.upper()} file; delete it and make it again")
        del found[ending]
    return found


def _is_whole(ending: str, content: bytes) -> bool:
    if ending == "png":
        return content.startswith(PNG_START) and len(content) > PNG_HEADER
    return bool(content.strip())


def captions() -> dict[str, str]:
    """Empty where the package was installed without the workflow."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(CAPTIONS.glob("*.rst"))}
