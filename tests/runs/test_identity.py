"""Differences between the parameters of a result and those asked for now."""

import math

from dac.runs.identity import differences, listed, staleness

FOUND = {"task": {"name": "digits-6-30"}, "method": {"tau": 0.95, "t": "inf"}, "split_hash": "a"}


def test_equal_parameters_do_not_differ_whatever_the_file_format_made_of_them() -> None:
    wanted = {"task": {"name": "digits-6-30"}, "method": {"tau": 0.95, "t": math.inf}}
    assert differences(FOUND, wanted | {"split_hash": "a"}) == {}
    assert differences({"known": [1, 2], "x": None}, {"known": (1, 2), "x": math.nan}) == {}


def test_differences_are_named_with_both_values() -> None:
    wanted = {"task": {"name": "digits-6-30"}, "method": {"tau": 0.5, "t": 1.5, "new": 1}}
    assert differences(FOUND, wanted, ignoring={"split_hash"}) == {
        "method.new": (None, 1),
        "method.t": ("inf", 1.5),
        "method.tau": (0.95, 0.5),
    }


def test_hashes_of_input_files_are_not_parameters() -> None:
    assert staleness(FOUND, FOUND | {"split_hash": "b", "pretrained_hash": "c"}) == ""
    wanted = FOUND | {"method": {"tau": 0.5, "t": "inf"}}
    assert staleness(FOUND, wanted) == "method.tau: 0.95 there, 0.5 asked for"


def test_a_message_lists_the_first_three() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c, ... (and 2 more)"
