"""metrics.json: identity and flat numbers, or one message."""

import math
from pathlib import Path
from typing import Any

import pytest

from dac.io.errors import UserError
from dac.io.files import write_json
from dac.runs.metrics_file import number, read_metrics

RUN = {"task": {"name": "digits-6-30"}, "split_hash": "a"}


def test_numbers_are_found_by_their_dotted_names(tmp_path: Path) -> None:
    metrics = {"closed": {"best": 0.9}, "auroc": 0.8}
    write_json(tmp_path / "metrics.json", {"run": RUN, "metrics": metrics})
    assert read_metrics(tmp_path / "metrics.json") == (RUN, {"closed.best": 0.9, "auroc": 0.8})


@pytest.mark.parametrize(
    "content", [[], {}, {"run": RUN}, {"metrics": {}}, {"run": {"task": {}}, "metrics": {}}]
)
def test_a_file_that_lacks_something_names_the_command(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "metrics.json"
    write_json(path, content)
    with pytest.raises(UserError, match=f"python -m dac.evaluate --run {tmp_path}` again"):
        read_metrics(path)


def test_a_number_is_finite_and_neither_text_nor_a_boolean() -> None:
    assert [number(value) for value in (0, 3, -0.5, 10**300)] == [0.0, 3.0, -0.5, 1e300]
    for value in (True, False, None, "1", [1], math.nan, math.inf, -math.inf, 10**400, -(10**400)):
        assert number(value) is None
