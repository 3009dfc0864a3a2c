"""The picture of the rules: read by names, edges lead on, nothing overlaps."""

from itertools import pairwise

import pytest
from fake_results import DOT

from dac.errors import UserError
from dac.report import dag


def overlap(a: dag.Box, b: dag.Box) -> bool:
    beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    above = a.y + a.height <= b.y or b.y + b.height <= a.y
    return not beside and not above


GRAPHS = {
    "rules": dag.parse_dot(DOT),
    "chain": dag.chain(tuple("abcdefgh")),
    "one": dag.Graph(("a-rule-with-quite-a-long-name",), ()),
    "skips": dag.Graph(tuple("abcde"), tuple((a, b) for a in "abcde" for b in "abcde" if a < b)),
    "wide": dag.Graph(tuple("abcdefghi"), tuple(("a", b) for b in "bcdefghi")),
}


@pytest.mark.parametrize("rightwards", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_edges_lead_on_and_boxes_do_not_overlap(name: str, rightwards: bool) -> None:
    drawing = dag.layout(GRAPHS[name], rightwards)
    boxes = list(drawing.boxes.values())
    assert set(drawing.boxes) == set(GRAPHS[name].names)
    assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    for box in boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= drawing.width
        assert box.y + box.height <= drawing.height
    assert set(drawing.paths) == set(GRAPHS[name].edges)
    for path in drawing.paths.values():
        for before, after in pairwise(path):
            if rightwards:
                assert before.x + before.width < after.x
            else:
                assert before.y + before.height < after.y
        stops = path[1:-1]
        assert not any(overlap(stop, box) for stop in stops for box in boxes)


def test_dot_text_is_read_by_names() -> None:
    graph = dag.parse_dot(
        'x\n 7[label = "a \\"b\\"", color = "0.1"];\n8 [label="c"]\n\t7 -> 8\n7 -> 8'
    )
    assert graph == dag.Graph(('a "b"', "c"), (('a "b"', "c"),))
    assert ("prepare", "train") in dag.parse_dot(DOT).edges
    assert len(dag.parse_dot(DOT).names) == 11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rule"),
        ("digraph {}", "holds no rule"),
        ('0[label = "a"]\n0 -> 1', "an edge to '1'"),
        ('0[label = "a"]\n1[label = "a"]', "names a rule twice"),
    ],
)
def test_a_broken_graph_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        dag.parse_dot(text, "rules.dot")


def test_a_circle_is_refused() -> None:
    with pytest.raises(UserError, match="circle"):
        dag.layout(dag.Graph(("a", "b"), (("a", "b"), ("b", "a"))))
