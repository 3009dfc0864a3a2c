"""The "did you mean" of messages: the nearest name, or all of them."""

from dac.io.suggestions import hint


def test_a_slip_gets_the_nearest_name() -> None:
    assert hint("fixmach", ["mixmatch", "fixmatch", "dac"]) == "; did you mean 'fixmatch'?"


def test_a_name_unlike_any_other_lists_them_all() -> None:
    assert hint("zzz", ["dac", "osp"]) == "; valid: dac, osp"


def test_without_valid_names_nothing_is_suggested() -> None:
    assert hint("dac", []) == ""


def test_names_of_any_type_are_compared_as_text() -> None:
    assert hint(12, {123: "a", 900: "b"}) == "; did you mean '123'?"
    assert hint(None, {"a": 1}) == "; valid: a"
