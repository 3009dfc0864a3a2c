"""Text tables: aligned columns, with a rule, to the right, or as Markdown."""

import pytest

from dac.io.text_table import markdown_table, text_table

ROWS = [["method", "runs"], ["dac", "3"], ["labeled-only", "12"]]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert text_table(ROWS).splitlines() == [
        "method        runs",
        "dac           3",
        "labeled-only  12",
    ]


def test_a_rule_is_drawn_below_the_header() -> None:
    assert text_table(ROWS, rule=True).splitlines()[:3] == [
        "method        runs",
        "------------  ----",
        "dac           3",
    ]


def test_numbers_are_aligned_to_the_right_and_the_first_column_is_not() -> None:
    assert text_table(ROWS, right=True).splitlines() == [
        "method        runs",
        "dac              3",
        "labeled-only    12",
    ]


def test_edges_are_before_between_and_after_the_cells() -> None:
    assert text_table(ROWS[:2], edges=("<", "|", ">")).splitlines() == [
        "<method|runs>",
        "<dac   |3   >",
    ]


def test_a_markdown_table_has_a_rule_and_closed_lines() -> None:
    assert markdown_table(ROWS).splitlines() == [
        "| method       | runs |",
        "| ------------ | ---- |",
        "| dac          | 3    |",
        "| labeled-only | 12   |",
    ]


def test_no_line_ends_in_spaces() -> None:
    assert text_table([["a", "long heading"], ["b", ""]]) == "a  long heading\nb"


def test_a_header_alone_is_a_table() -> None:
    assert text_table([["a", "b"]], rule=True) == "a  b\n-  -"


def test_rows_of_different_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        text_table([["a", "b"], ["c"]])
