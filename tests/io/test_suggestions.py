"""The "did you mean" of messages: the nearest name, or all of them."""

from dac.io.suggestions import Misnamed, hint


def test_a_slip_gets_the_nearest_name() -> None:
    assert hint("fixmach", ["mixmatch", "fixmatch", "dac"]) == "; did you mean 'fixmatch'?"


def test_a_name_unlike_any_other_lists_them_all() -> None:
    assert hint("zzz", ["dac", "osp"]) == "; valid: dac, osp"


def test_without_valid_names_nothing_is_suggested() -> None:
    assert hint("dac", []) == ""


def test_names_of_any_type_are_compared_as_text() -> None:
    assert hint(12, {123: "a", 900: "b"}) == "; did you mean '123'?"
    assert hint(None, {"a": 1}) == "; valid: a"


def test_a_long_list_of_names_is_cut() -> None:
    found = hint("zzz", range(1000))
    assert found.startswith("; valid: 0, 1, ") and found.endswith(", 99 and 900 more")


def test_a_message_looks_for_the_name_when_it_is_shown() -> None:
    names: list[str] = []
    message = Misnamed("'dca' does not exist", "dca", names)
    names.append("dac")
    assert str(message) == "'dca' does not exist; did you mean 'dac'?"
    assert message == Misnamed("'dca' does not exist", "dca", ())
