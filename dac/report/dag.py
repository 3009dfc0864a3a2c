"""The rule graph: reads Snakemake's dot text and places a box for every rule.

pydot reads, grandalf lays out (Sugiyama: layers by the longest path, and a narrow stop in every
layer that a long edge passes, so that no line crosses a box), page.html.j2 draws. Snakemake may
number the rules differently in the next run, so everything here goes by their names.
"""

import io
import re
from contextlib import redirect_stdout
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pydot
from grandalf.graphs import Edge, Vertex, graph_core
from grandalf.layouts import SugiyamaLayout, VertexViewer

from dac.io.errors import UserError

WIDTH, HEIGHT = 92.0, 46.0  # of a box, unless a name needs more ...
LETTER, PADDING = 8.0, 20.0  # ... at this width per letter
STOP = 10.0  # width of the slot through which a long edge passes a layer
DOWN, RIGHT = 30.0, 18.0  # between layers; eight boxes in a row fit the page
BESIDE, MARGIN = 22.0, 6.0
QUOTING = re.compile(r'^"|"$|\\(?=.)')  # around and inside a label

Graph = dict[str, list[str]]
"""Rule -> the rules that it needs, both sorted by name."""


class Box(NamedTuple):
    """A rule, the invisible stop of a long edge, or the whole; x and y: the upper left corner."""

    x: float
    y: float
    width: float
    height: float


class Drawing(NamedTuple):
    boxes: dict[str, Box]
    paths: dict[tuple[str, str], list[Box]]
    """(first, then) -> the boxes that the edge passes, both ends included."""
    frame: Box
    rightwards: bool


def read_dot(path: Path) -> Drawing:
    """Lay out the graph that `snakemake all --rulegraph dot` has written."""
    try:
        return layout(parse_dot(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:  # CycleError is a ValueError
        raise UserError(
            f"rule graph {path} cannot be read ({error}); "
            "write it again with `snakemake all --rulegraph dot`"
        ) from error


def parse_dot(text: str) -> Graph:
    with redirect_stdout(io.StringIO()) as complaint:  # pydot prints its errors
        parsed = pydot.graph_from_dot_data(text)
    if parsed is None:
        raise ValueError(f"no dot text: {complaint.getvalue().strip().splitlines()[-1]}")
    nodes = [node for node in parsed[0].get_nodes() if node.get("label") is not None]
    rules = {node.get_name(): QUOTING.sub("", node.get("label")) for node in nodes}
    edges = {(str(e.get_source()), str(e.get_destination())) for e in parsed[0].get_edges()}
    if not rules:
        raise ValueError("it holds no rule")
    if unknown := sorted({end for edge in edges for end in edge} - set(rules)):
        raise ValueError(f"it has an edge to {unknown[0]!r}, which is no rule")
    if len(set(rules.values())) < len(nodes):
        raise ValueError("it names a rule twice")
    needs = sorted((rules[then], rules[first]) for first, then in edges)
    return {name: [n for then, n in needs if then == name] for name in sorted(rules.values())}


def row(names: tuple[str, ...]) -> Drawing:
    """Draw a chain from left to right."""
    return layout({names[0]: []} | {then: [first] for first, then in pairwise(names)}, True)


def layout(graph: Graph, rightwards: bool = False) -> Drawing:
    """Place the boxes so that every edge leads to a later layer: downwards, or rightwards."""
    TopologicalSorter(graph).prepare()  # refuses circles; grandalf would turn an edge around
    length = max(WIDTH, PADDING + LETTER * max(map(len, graph)))
    vertices = {name: Vertex(name) for name in graph}
    for vertex in vertices.values():
        vertex.view = VertexViewer(HEIGHT, length) if rightwards else VertexViewer(length, HEIGHT)
    pairs = sorted((first, then) for then, needed in graph.items() for first in needed)
    edges = {pair: Edge(*(vertices[name] for name in pair)) for pair in pairs}
    placed = SugiyamaLayout(graph_core(list(vertices.values()), list(edges.values())))
    placed.xspace, placed.yspace, placed.dw = BESIDE, RIGHT if rightwards else DOWN, STOP
    placed.init_all()
    placed.draw()

    def box(vertex: Vertex) -> Box:
        (x, y), width, height = vertex.view.xy, vertex.view.w, vertex.view.h
        across, along = (x - width / 2, width), (y - height / 2, height)
        (x, width), (y, height) = (along, across) if rightwards else (across, along)
        return Box(x, y, width, height)

    routes = {pair: placed.ctrls.get(edge, dict(enumerate(edge.v))) for pair, edge in edges.items()}
    paths = {pair: [box(v) for _, v in sorted(route.items())] for pair, route in routes.items()}
    boxes = {name: box(vertex) for name, vertex in vertices.items()}
    return Drawing(boxes, paths, _frame([box(vertex) for vertex in placed.grx]), rightwards)


def _frame(boxes: list[Box]) -> Box:
    x, y = min(box.x for box in boxes) - MARGIN, min(box.y for box in boxes) - MARGIN
    right, lower = max(box.x + box.width for box in boxes), max(b.y + b.height for b in boxes)
    return Box(x, y, right + MARGIN - x, lower + MARGIN - y)
