"""The shipped `params.yaml` with changes, and the faults that loading it then reports."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dac import config
from dac.config.yaml_file import read_yaml
from dac.io.errors import UserError

PATH = Path(__file__).parents[2] / "params.yaml"
PARAMS = config.load(PATH)
RAW = read_yaml(PATH)
Change = Callable[[dict[str, Any]], object]


def changed(*changes: Change) -> config.Params:
    """The parameters after changes to a copy of the shipped file."""
    raw = copy.deepcopy(RAW)
    for change in changes:
        change(raw)
    return config.parse(raw, PATH)


def faults(change: Change) -> list[str]:
    """The lines of the message after a change to the shipped file; none if it still loads."""
    try:
        with patch("dac.config.params.MOST_FAULTS", 1_000_000):
            changed(change)
    except UserError as error:
        first, *lines = str(error).splitlines()
        assert first == f"{PATH} has {len(lines)} fault(s):"
        return [line.removeprefix("  - ") for line in lines]
    return []


def setting(place: str, value: Any) -> Change:
    """Set the value at a place such as `methods/dac/settings/head_tau`."""
    *path, last = place.split("/")

    def change(raw: dict[str, Any]) -> None:
        inside: Any = raw
        for step in path:
            inside = inside[int(step)] if isinstance(inside, tuple) else inside.setdefault(step, {})
        inside[last] = value

    return change
