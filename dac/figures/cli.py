"""The command line that the figures share: a figure of params.yaml, or one's own runs.

A run of a figure that is not there (or of other parameters) is named on stderr and left out, so
that half a suite can be looked at; a run given by hand must be there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from matplotlib import pyplot as plt
from matplotlib.figure import Figure as Picture

from dac.config import Figure, Params, load, suites
from dac.config.arguments import command
from dac.config.suites import Key
from dac.figures.theme import check_kind, save, use_theme, written
from dac.io.errors import UserError
from dac.io.progress import say
from dac.io.suggestions import hint

Found = TypeVar("Found")
NO_RUNS = "no finished runs"


@dataclass(frozen=True)
class Request:
    """What a command line asks for; either a figure or folders of runs."""

    params: Params
    runs: Path
    out: list[Path]
    name: str
    figure: Figure | None
    folders: list[Path]

    def panels(
        self, read: Callable[[Path, dict[str, Any] | None], Found]
    ) -> list[tuple[str, Found | None]]:
        """A name and the content of every run; None where the run of a figure is missing."""
        if self.figure is None:
            keys = [_key_of(folder) for folder in self.folders]
            return list(zip(panel_names(keys), [read(f, None) for f in self.folders], strict=True))
        keys = suites.runs(self.figure)
        found = [self.find(key, read) for key in keys]
        if all(content is None for content in found):
            say(f"{self.name}: {NO_RUNS}; drawn empty")
        return list(zip(panel_names(keys), found, strict=True)) or [("", None)]

    def find(self, key: Key, read: Callable[[Path, dict[str, Any] | None], Found]) -> Found | None:
        """What `read` finds in the folder of a figure's run."""
        expected = self.params.expected(self.params.run(key.task, key.method, key.seed))
        try:
            return read(self.runs / key.folder, expected)
        except UserError as error:
            say(f"{self.name}: left out: {error}")
            return None

    def save(self, picture: Picture) -> None:
        for path in self.out:
            save(picture, path)
            say(f"wrote {path}")
        plt.close(picture)


def ask(kind: str, about: str, *, own_runs: bool = True) -> Request:
    """Read the command line of `python -m dac.figures.<kind>`."""
    parser = command(kind, about, "--runs", "--params")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--figure", help="a name under figures: drawn: of the parameters")
    if own_runs:
        chosen.add_argument("--run", type=Path, nargs="+", default=[], help="folders of runs")
    parser.add_argument("--out", type=Path, nargs="+", required=True, help=".pdf, .svg or .png")
    options = parser.parse_args()
    for path in options.out:
        check_kind(path)
    params = load(options.params)
    figure = None if options.figure is None else _figure(params, options.figure, kind)
    use_theme()
    return Request(
        params=params,
        runs=options.runs,
        out=options.out,
        name=options.figure or kind,
        figure=figure,
        folders=options.run if own_runs else [],
    )


def _figure(params: Params, name: str, kind: str) -> Figure:
    drawn = params.file.figures.drawn
    if name not in drawn:
        raise UserError(f"figure {name!r} is not in {params.path}{hint(name, drawn)}")
    if drawn[name].kind != kind:
        right = drawn[name].kind
        raise UserError(
            f"figure {name!r} is of the kind {right!r}, not {kind!r}; "
            f"run `python -m dac.figures.{right} --figure {name}`"
        )
    return drawn[name]


def panel_names(keys: Sequence[Key]) -> list[str]:
    """The method of every run, and the task and the seed where they differ between runs."""
    tasks, seeds = {key.task for key in keys}, {key.seed for key in keys}
    return [
        ", ".join(
            part
            for part in (
                written(key.method),
                key.task if len(tasks) > 1 else "",
                f"seed {key.seed}" if len(seeds) > 1 else "",
            )
            if part
        )
        for key in keys
    ]


def _key_of(folder: Path) -> Key:
    """Name a run by its path, task/method/seed1, or any other folder by its own name."""
    parts = folder.resolve().parts
    if len(parts) >= 3 and (seed := re.fullmatch(r"seed(\d+)", parts[-1])):
        return Key(parts[-3], parts[-2], int(seed[1]))
    return Key("", parts[-1], 0)
