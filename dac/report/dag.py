"""The graph of the workflow as a picture: reads Snakemake's dot text, places boxes, writes SVG.

Layers by the longest path; an edge that spans several layers gets an invisible stop in each, so
that no line crosses a box. Equal graphs give equal bytes: Snakemake may number its nodes otherwise
in the next run, so nothing here depends on the numbers.
"""

import html
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from dac.errors import UserError

WIDTH, HEIGHT = 92.0, 46.0  # of a box, unless a name needs more ...
LETTER, PADDING = 8.0, 20.0  # ... at this width per letter
STOP = 10.0  # width of the slot through which a long edge passes a layer
DOWN, RIGHT = 30.0, 18.0  # between layers; eight boxes in a row fit the page
BESIDE, MARGIN = 22.0, 6.0
SWEEPS = 8  # of the barycenter rule; rule graphs have a dozen nodes and settle in two
NODE = re.compile(r'^\s*(\w+)\s*\[\s*label\s*=\s*"((?:[^"\\]|\\.)*)"', re.MULTILINE)
EDGE = re.compile(r"^\s*(\w+)\s*->\s*(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Graph:
    names: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    """(first, then), by name, sorted."""


@dataclass(frozen=True)
class Box:
    """A rule, or the invisible stop of a long edge; x and y are the upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True)
class Drawing:
    boxes: dict[str, Box]
    paths: dict[tuple[str, str], tuple[Box, ...]]
    """Edge -> what it passes, both ends included."""
    width: float
    height: float
    rightwards: bool


def parse_dot(text: str, source: str = "the rule graph") -> Graph:
    """The output of `snakemake all --rulegraph dot`."""
    labels = {number: re.sub(r"\\(.)", r"\1", label) for number, label in NODE.findall(text)}
    edges = EDGE.findall(text)
    advice = "write it again with `snakemake all --rulegraph dot`"
    if not labels:
        raise UserError(f"{source} holds no rule; {advice}")
    if unknown := sorted({end for edge in edges for end in edge} - set(labels)):
        raise UserError(f"{source} has an edge to {unknown[0]!r}, which is no rule; {advice}")
    if len(set(labels.values())) < len(labels):
        raise UserError(f"{source} names a rule twice; {advice}")
    pairs = sorted({(labels[first], labels[then]) for first, then in edges})
    return Graph(tuple(sorted(labels.values())), tuple(pairs))


def chain(names: tuple[str, ...]) -> Graph:
    return Graph(names, tuple(pairwise(names)))


# --- layout -----------------------------------------------------------------------------------


def layout(graph: Graph, rightwards: bool = False) -> Drawing:
    """Every edge leads to a later layer: downwards, or rightwards."""
    level = levels(graph)
    routes = {edge: _route(edge, level) for edge in graph.edges}
    depth = level | {stop: _place(stop) for route in routes.values() for stop in route[1:-1]}
    rows = _ordered(depth, routes.values())
    width = max(WIDTH, PADDING + LETTER * max(map(len, graph.names)))
    across, along, gap = (HEIGHT, width, RIGHT) if rightwards else (width, HEIGHT, DOWN)

    def size(name: str) -> float:
        return across if name in level else STOP

    longest = max(_length(row, size) for row in rows)
    placed: dict[str, Box] = {}
    for number, row in enumerate(rows):
        at = MARGIN + (longest - _length(row, size)) / 2
        start = MARGIN + number * (along + gap)
        for name in row:
            box = (start, at, along, size(name)) if rightwards else (at, start, size(name), along)
            placed[name] = Box(*box)
            at += size(name) + BESIDE
    whole = 2 * MARGIN + longest, 2 * MARGIN + len(rows) * (along + gap) - gap
    width, height = reversed(whole) if rightwards else whole
    paths = {edge: tuple(placed[name] for name in route) for edge, route in routes.items()}
    return Drawing({name: placed[name] for name in level}, paths, width, height, rightwards)


def levels(graph: Graph) -> dict[str, int]:
    """Layer of every node: one more than the deepest that it needs."""
    needs = {name: [first for first, then in graph.edges if then == name] for name in graph.names}
    found: dict[str, int] = {}
    while len(found) < len(needs):
        ready = [n for n in needs if n not in found and all(first in found for first in needs[n])]
        if not ready:
            raise UserError("the rule graph runs in a circle; write it again with Snakemake")
        found |= {
            name: 1 + max((found[first] for first in needs[name]), default=-1) for name in ready
        }
    return found


def _route(edge: tuple[str, str], level: dict[str, int]) -> tuple[str, ...]:
    first, then = edge
    stops = range(level[first] + 1, level[then])
    return (first, *(f"{first}\n{then}\n{number}" for number in stops), then)


def _place(stop: str) -> int:
    return int(stop.rpartition("\n")[2])


def _ordered(depth: dict[str, int], routes: Iterable[tuple[str, ...]]) -> list[list[str]]:
    """Layers, each sorted by where its neighbours stand, so that few lines cross."""
    rows = [sorted(n for n in depth if depth[n] == k) for k in range(1 + max(depth.values()))]
    steps = [pair for route in routes for pair in pairwise(route)]
    for sweep in range(SWEEPS):
        turn = rows if sweep % 2 == 0 else rows[::-1]
        for before, row in pairwise(turn):
            position = {name: at - len(before) / 2 for at, name in enumerate(before)}
            row.sort(key=_barycenter(position, row, steps))
    return rows


def _barycenter(
    position: dict[str, float], row: list[str], steps: list[tuple[str, str]]
) -> Callable[[str], float]:
    here = {name: at - len(row) / 2 for at, name in enumerate(row)}

    def mean(name: str) -> float:
        near = [position[a] for a, b in steps if b == name and a in position]
        near += [position[b] for a, b in steps if a == name and b in position]
        return sum(near) / len(near) if near else here[name]

    return mean


def _length(row: list[str], size: Callable[[str], float]) -> float:
    return sum(map(size, row)) + BESIDE * (len(row) - 1)


# --- SVG --------------------------------------------------------------------------------------


def to_svg(drawing: Drawing, notes: dict[str, str], title: str, description: str) -> str:
    """Boxes with a name and a note; colours come from the page (classes `rule` and `edge`)."""
    width, height = f"{drawing.width:g}", f"{drawing.height:g}"
    kind = "dag row" if drawing.rightwards else "dag"
    lines = [
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' role="img" aria-labelledby="dag-title dag-description">',
        f'<title id="dag-title">{html.escape(title)}</title>',
        f'<desc id="dag-description">{html.escape(description)}</desc>',
        '<defs><marker id="dag-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_svg_edge(path, drawing.rightwards) for path in drawing.paths.values()),
        *(_svg_box(name, box, notes.get(name, "")) for name, box in drawing.boxes.items()),
        "</svg>",
    ]
    return "\n".join(lines)


def _svg_edge(path: tuple[Box, ...], rightwards: bool) -> str:
    """Bends between layers, straight through the stops."""
    words: list[str] = []
    for before, box in pairwise(path):
        (x1, y1), (x2, y2) = before.middle, box.middle
        if rightwards:
            x1, x2 = before.x + before.width, box.x
            bend = f"C{(x1 + x2) / 2:g} {y1:g} {(x1 + x2) / 2:g} {y2:g} {x2:g} {y2:g}"
        else:
            y1, y2 = before.y + before.height, box.y
            bend = f"C{x1:g} {(y1 + y2) / 2:g} {x2:g} {(y1 + y2) / 2:g} {x2:g} {y2:g}"
        words += [f"{'L' if words else 'M'}{x1:g} {y1:g}", bend]
    return f'<path class="edge" d="{"".join(words)}" marker-end="url(#dag-head)"/>'


def _svg_box(name: str, box: Box, note: str) -> str:
    x, y = box.middle
    rows = [(name, "name"), (note, "note")] if note else [(name, "name")]
    first = y - 8 * (len(rows) - 1)
    words = "".join(
        f'<text class="{kind}" x="{x:g}" y="{first + 16 * at:g}">{html.escape(word)}</text>'
        for at, (word, kind) in enumerate(rows)
    )
    return (
        f'<g class="rule"><rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}"'
        f' height="{box.height:g}" rx="6"/>{words}</g>'
    )
