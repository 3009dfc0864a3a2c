"""The picture of the rules: read by names, edges lead on, nothing overlaps."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
from fake_results import DOT

from dac.io.errors import UserError
from dac.report import dag


def overlap(a: dag.Box, b: dag.Box) -> bool:
    beside = a.x + a.width <= b.x or b.x + b.width <= a.x
    above = a.y + a.height <= b.y or b.y + b.height <= a.y
    return not beside and not above


def drawn_at_random(seed: int) -> dag.Graph:
    """Up to 14 rules, each after the first needing one or more of those before it."""
    rng = random.Random(seed)
    names = "abcdefghijklmn"[: rng.randint(2, 14)]
    return {
        name: sorted(rng.sample(names[:at], rng.randint(1, min(3, at)))) if at else []
        for at, name in enumerate(names)
    }


GRAPHS: dict[str, dag.Graph] = {
    "rules": dag.parse_dot(DOT),
    "chain": {"a": [], **{then: [first] for first, then in pairwise("abcdefgh")}},
    "one": {"a-rule-with-quite-a-long-name": []},
    "skips": {name: list("abcde"[:at]) for at, name in enumerate("abcde")},
    "wide": {"a": [], **{name: ["a"] for name in "bcdefghi"}},
    **{f"random {seed}": drawn_at_random(seed) for seed in range(30)},
}


@pytest.mark.parametrize("rightwards", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_edges_lead_on_and_boxes_do_not_overlap(name: str, rightwards: bool) -> None:
    graph = GRAPHS[name]
    drawing = dag.layout(graph, rightwards)
    boxes, frame = list(drawing.boxes.values()), drawing.frame
    assert set(drawing.boxes) == set(graph)
    assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    for box in [*boxes, *(box for path in drawing.paths.values() for box in path)]:
        assert frame.x <= box.x and box.x + box.width <= frame.x + frame.width
        assert frame.y <= box.y and box.y + box.height <= frame.y + frame.height
    assert set(drawing.paths) == {(first, then) for then in graph for first in graph[then]}
    for (first, then), path in drawing.paths.items():
        assert (path[0], path[-1]) == (drawing.boxes[first], drawing.boxes[then])
        for before, after in pairwise(path):
            if rightwards:
                assert before.x + before.width < after.x
            else:
                assert before.y + before.height < after.y
        assert not any(overlap(stop, box) for stop in path[1:-1] for box in boxes)


def test_lines_bend_only_between_layers() -> None:
    """Every layer is as high as its boxes, so that no bend meets one."""
    for name in GRAPHS:
        drawing = dag.layout(GRAPHS[name])
        boxes = [*drawing.boxes.values(), *(b for path in drawing.paths.values() for b in path)]
        assert {box.height for box in boxes} == {dag.HEIGHT}
        assert {box.y % (dag.HEIGHT + dag.DOWN) for box in boxes} == {0.0}


@pytest.mark.parametrize("name", GRAPHS)
def test_equal_graphs_are_drawn_equally(name: str) -> None:
    """grandalf keeps some of its objects in sets, whose order is that of addresses."""
    drawings = [dag.layout(GRAPHS[name]) for _ in range(5)]
    assert all(drawing == drawings[0] for drawing in drawings)


def test_dot_text_is_read_by_names() -> None:
    graph = dag.parse_dot(
        'digraph x {\n 7[label = "a \\"b\\"", color = "0.1"];\n8 [label=c]\n\t7 -> 8\n7 -> 8}'
    )
    assert graph == {'a "b"': [], "c": ['a "b"']}
    assert "prepare" in dag.parse_dot(DOT)["train"]
    assert len(dag.parse_dot(DOT)) == 11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no dot text"),
        ("Error: no rule", "no dot text: .*found 'Error'"),
        ('digraph {0[label = "a"]', "no dot text"),
        ("digraph {}", "holds no rule"),
        ('digraph {0[label = "a"]\n0 -> 1}', "an edge to '1'"),
        ('digraph {0[label = "a"]\n1[label = "a"]}', "names a rule twice"),
        ("digraph {0[label = a]\n0[label = b]}", "names a rule twice"),
        ("digraph {0[label = a]\n1[label = b]\n0 -> 1 -> 0}", "cycle"),
        ("digraph {0[label = a]\n0 -> 0}", "cycle"),
        ("digraph {0[label = a]\n1[label = b]}", "unconnected"),
    ],
)
def test_a_broken_graph_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.dot"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        dag.read_dot(path)
    assert str(refused.value).startswith(f"rule graph {path} cannot be read")
    assert str(refused.value).endswith("write it again with `snakemake all --rulegraph dot`")
    assert capsys.readouterr().out == ""
