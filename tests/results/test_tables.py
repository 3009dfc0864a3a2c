"""Cells, ranks and panels by hand, and every format read back by a parser."""

import io
import re
import statistics
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dac.results.formats import FORMATS, caption, tex_text, to_csv, to_html, to_markdown, to_tex
from dac.results.tables import (
    BEST,
    COMMON,
    DASH,
    SECOND,
    Cell,
    Column,
    Comparison,
    Published,
    means,
    panels,
    ranks,
    show,
)

percents = st.floats(0, 100)


def cell(*values, expected=3, paper=None, std=None, decimals=1):
    value = None if paper is None else Published(paper, std, decimals)
    return Cell(values, expected, value)


def table(rows, tasks=("cifar-50-500",), headings=("closed", "open"), **changes):
    """Rows of cells as a table; every two tasks are a group."""
    columns = [
        Column(task, heading, group=str(i // 2))
        for i, task in enumerate(tasks)
        for heading in headings
    ]
    fields = {
        "name": "table9",
        "title": "Shares of 100% & more_or_less",
        "columns": tuple(columns),
        "rows": rows,
        "num_seeds": 3,
        "decimals": 1,
        "has_paper": True,
    }
    return Comparison(**fields | changes)


HALF = table(
    {
        "fixmatch": (cell(60, 61, 62, paper=59.8), cell(40, 44)),
        "dac": (cell(62, 63, 64, paper=65.4, std=0.8), cell(50, paper=63.3)),
        "dac-released": (cell(), cell(paper=1.0)),
    }
)


# --- cells ------------------------------------------------------------------------------------


def test_a_cell_is_the_mean_and_the_sample_deviation():
    found = cell(80, 90, 85, paper=86.0)
    assert (found.mean, found.std, found.n) == (85, 5, 3)
    assert found.difference == -1
    assert show(found, 1).ours == "85.0 ± 5.0"


def test_nothing_is_a_dash_and_one_run_has_no_deviation():
    assert show(cell(), 1) == show(cell(paper=None), 1)
    assert (show(cell(), 1).ours, show(cell(), 1).count, show(cell(), 1).paper) == (
        DASH,
        "",
        f"[{DASH}]",
    )
    one = show(cell(63.31), 1)
    assert (one.ours, one.count) == ("63.3", "(n=1)")
    assert show(cell(63.31, expected=1), 1).count == ""


def test_zero_is_a_number_and_not_a_dash():
    assert show(cell(0.0, 0.0, 0.0, paper=10.0), 1).ours == "0.0 ± 0.0"
    assert show(cell(0.0, 0.0, 0.0, paper=10.0), 1).paper == "[10.0, -10.0]"


def test_the_paper_stands_beside_a_missing_run():
    assert show(cell(paper=65.4), 1).paper == "[65.4]"


def test_a_difference_below_the_last_digit_has_no_minus():
    assert show(cell(65.39, paper=65.4), 1).paper == "[65.4, +0.0]"


def test_numbers_have_the_decimals_of_the_paper():
    shown = show(cell(17.1, 17.2, 17.3, paper=17.65, decimals=2), 2)
    assert (shown.ours, shown.paper) == ("17.20 ± 0.10", "[17.65, -0.45]")


@given(st.lists(percents, min_size=1, max_size=5), percents)
def test_the_difference_is_ours_minus_the_papers(values, paper):
    found = cell(*values, paper=paper)
    assert found.difference == found.mean - paper
    assert found.mean == pytest.approx(statistics.mean(values))


@given(st.lists(percents, min_size=2, max_size=6), st.randoms())
def test_the_order_of_the_seeds_does_not_matter(values, random):
    shuffled = random.sample(values, len(values))
    assert (cell(*values).mean, cell(*values).std) == (cell(*shuffled).mean, cell(*shuffled).std)


# --- ranks and panels -------------------------------------------------------------------------


def test_best_and_second_of_a_column():
    assert ranks([60.0, 70.0, None, 65.0], 1) == [COMMON, BEST, COMMON, SECOND]


def test_ties_go_by_the_printed_value():
    assert ranks([63.31, 63.34, 50.02, 49.98, 10.0], 1) == [BEST, BEST, SECOND, SECOND, COMMON]
    assert ranks([63.31, 63.34], 1) == [BEST, BEST]
    assert ranks([63.31, 63.34], 2) == [SECOND, BEST]


def test_a_number_that_stands_alone_has_no_rank():
    assert ranks([63.3], 1) == [COMMON]
    assert ranks([None, 63.3, None], 1) == [COMMON] * 3
    assert ranks([], 1) == []


@given(st.lists(st.none() | percents, max_size=8))
def test_ranks_go_by_the_words_that_are_printed(column):
    found = ranks(column, 1)
    ranked = [(f"{m:.1f}", r) for m, r in zip(column, found, strict=True) if m is not None]
    words = {rank: {word for word, r in ranked if r == rank} for rank in (BEST, SECOND, COMMON)}
    assert len(words[BEST]) <= 1 and len(words[SECOND]) <= 1
    present = [m for m in column if m is not None]
    if len(present) > 1:
        assert words[BEST] == {f"{max(present):.1f}"}
        assert not words[BEST] & (words[SECOND] | words[COMMON])


def test_groups_stay_together_within_a_panel():
    columns = [Column(f"t{i}", "closed", group) for i, group in enumerate("aaabbbcccdd")]
    assert panels(columns, 4) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert panels(columns, 6) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


@given(st.lists(st.sampled_from("abc"), max_size=12), st.integers(1, 5))
def test_panels_hold_every_column_once_and_in_order(groups, limit):
    packed = panels([Column(str(i), "closed", group) for i, group in enumerate(groups)], limit)
    assert [i for panel in packed for i in panel] == list(range(len(groups)))
    assert all(1 <= len(panel) <= limit for panel in packed)


def test_means_hold_only_cells_with_all_their_seeds():
    assert means([HALF]) == {
        "table9": {"cifar-50-500": {"fixmatch": {"closed": 61.0}, "dac": {"closed": 63.0}}}
    }
    assert means([table({"dac": (cell(), cell())})]) == {}


# --- formats ----------------------------------------------------------------------------------


def test_the_caption_says_what_the_numbers_are():
    assert "over 3 seeds" in caption(HALF) and "ours - paper" in caption(HALF)
    assert "paper" not in caption(table({}, has_paper=False))
    assert "over 1 seed on cifar-50-500" in caption(table({}, num_seeds=1))
    assert "closed in percent" in caption(table({}, headings=("closed",)))


def test_csv_reads_back_as_a_tidy_table():
    found = pd.read_csv(io.StringIO(to_csv(HALF))).set_index(["method", "heading"])
    assert list(found.reset_index().columns[2:]) == [
        "table", "task", "mean", "std", "n", "expected_n", "paper", "paper_std", "difference",
    ]  # fmt: skip
    assert len(found) == 6
    dac = found.loc[("dac", "closed")]
    numbers = ["mean", "std", "n", "expected_n", "paper", "paper_std", "difference"]
    assert dac[numbers].tolist() == pytest.approx([63, 1, 3, 3, 65.4, 0.8, -2.4])
    nothing = found.loc[("dac-released", "closed")]
    assert nothing["n"] == 0 and nothing[["mean", "std", "paper", "difference"]].isna().all()


def test_markdown_marks_counts_and_compares():
    lines = to_markdown(HALF).splitlines()
    rows = {
        words[1]: words[2:4] for line in lines if len(words := re.split(r"\s*\|\s*", line)) == 5
    }
    assert rows["method"] == ["closed", "open"]
    assert rows["fixmatch"] == [
        "<ins>61.0 ± 1.0</ins> [59.8, +1.2]",
        f"<ins>42.0 ± 2.8</ins> (n=2) [{DASH}]",
    ]
    assert rows["dac"] == ["**63.0 ± 1.0** [65.4, -2.4]", "**50.0** (n=1) [63.3, -13.3]"]
    assert rows["dac-released"] == [f"{DASH} [{DASH}]", f"{DASH} [1.0]"]


def test_columns_line_up_in_a_terminal():
    lines = [line for line in to_markdown(HALF).splitlines() if line.startswith("|")]
    bars = {tuple(i for i, character in enumerate(line) if character == "|") for line in lines}
    assert len(lines) == 5 and len(bars) == 1


def test_a_wide_table_stands_in_panels():
    tasks = tuple(f"task-{i}" for i in range(6))
    wide = table({"dac": (cell(1.0),) * 6}, tasks=tasks, headings=("closed",))
    headers = [line for line in to_markdown(wide).splitlines() if line.startswith("| method")]
    assert [re.findall(r"task-\d", header) for header in headers] == [
        ["task-0", "task-1", "task-2", "task-3"],
        ["task-4", "task-5"],
    ]
    assert to_tex(wide).count(r"\begin{tabular}") == 2
    assert to_html(wide).count("<table") == 1


def test_a_table_that_is_not_the_papers_has_no_brackets():
    own = table({"dac": (cell(1, 2, 3), cell())}, has_paper=False)
    for ending, write in FORMATS.items():
        assert "[" not in write(own).replace("(n=", ""), ending


class Reader(HTMLParser):
    """The words of every cell, and the tags, which must nest."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("th", "td"):
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"th", "td"} & set(self.open):
            self.cells[-1][-1] += data


def test_html_reads_back_and_nests():
    reader = Reader()
    reader.feed(to_html(HALF))
    assert reader.open == []
    names = [tag for tag, _ in reader.tags]
    assert [names.count(tag) for tag in ("table", "caption", "thead", "tbody")] == [1] * 4
    assert reader.cells[0] == ["method", "cifar-50-500"]
    assert reader.cells[1] == ["closed", "open"]
    assert reader.cells[3] == ["dac", "63.0 ± 1.0[65.4, -2.4]", "50.0 (n=1)[63.3, -13.3]"]
    assert (names.count("strong"), names.count("u")) == (2, 2)
    assert not {"src", "href", "style"} & {key for _, attrs in reader.tags for key in attrs}
    assert "&amp; more_or_less" in to_html(HALF)


def test_html_of_one_metric_has_one_header_row():
    reader = Reader()
    reader.feed(to_html(table({"dac": (cell(1), cell(2))}, ("a", "b"), ("closed",))))
    assert reader.cells[0] == ["method", "a", "b"]
    assert reader.cells[1][0] == "dac"


def check_tex(text):
    """Braces and environments nest, and every row of a tabular has as many cells as columns."""
    depth = 0
    for piece in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(piece, 0)
        assert depth >= 0
    assert depth == 0
    stack = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        assert word == "begin" or stack[-1] == name
        stack = [*stack, name] if word == "begin" else stack[:-1]
    assert stack == []
    for columns, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", text, re.DOTALL):
        for row in re.findall(r"^(.*) \\\\$", body, re.MULTILINE):
            spanned = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row))
            assert len(re.split(r"(?<!\\)&", row)) + spanned == len(columns)


def test_tex_is_balanced_escaped_and_marked():
    text = to_tex(HALF)
    check_tex(text)
    assert r"Shares of 100\% \& more\_or\_less" in text
    assert r"dac & \textbf{63.0 $\pm$ 1.0} & \textbf{50.0} (n=1) \\" in text
    assert r"fixmatch & \underline{61.0 $\pm$ 1.0} & \underline{42.0 $\pm$ 2.8} (n=2) \\" in text
    assert r"{\scriptsize [65.4, $-$2.4]}" in text and "dac-released & -- & --" in text
    assert all(rule in text for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert not re.search(r"\\(resizebox|textcolor|multirow|makecell)", text), "only booktabs"


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_any_title_is_escaped(title):
    text = to_tex(table({}, title=title))
    check_tex(text)
    assert "\n\n" not in text, "a caption must be one paragraph"
    assert not re.search(r"(?<!\\)[&%#_]", tex_text(title))
    reader = Reader()
    reader.feed(to_html(table({}, title=title)))
    assert reader.open == []


def test_a_table_without_methods_is_valid_in_every_format():
    empty = table({})
    assert len(pd.read_csv(io.StringIO(to_csv(empty)))) == 0
    check_tex(to_tex(empty))
    reader = Reader()
    reader.feed(to_html(empty))
    assert reader.open == []
    assert to_markdown(empty).startswith("**table9.**")
