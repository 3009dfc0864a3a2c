"""Launches per step outside the backbone at the paper's settings, held to launches.json.

A launch is an operation on the device that is neither a view nor an allocation. The number depends
on how many views a method draws, on mu (MixMatch's chunks) and on DAC's bank, not on the size of
pictures; a backbone that launches nothing stands in for the real one. To record new numbers:

    DAC_RECORD_LAUNCHES=1 .venv/bin/python -m pytest tests/gpu/test_launches.py
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import toy
from pretended_log import StepLog
from pretended_runs import paper_pretraining_step, paper_step

pytestmark = pytest.mark.slow

TABLE = Path(__file__).with_name("launches.json")
STEPS: dict[str, Callable[[], StepLog]] = {
    **{method: (lambda method=method: paper_step(method)) for method in toy.METHODS},
    "simsiam": paper_pretraining_step,
}


def recorded() -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = json.loads(TABLE.read_text())
    return table


@pytest.mark.parametrize("name", STEPS)
def test_a_step_launches_what_is_recorded_and_does_not_wait(name: str) -> None:
    step = STEPS[name]()
    found = {"step": step.launches, "drawing": step.drawing}
    assert not step.syncs
    if os.environ.get("DAC_RECORD_LAUNCHES") == "1":
        TABLE.write_text(json.dumps(recorded() | {name: found}, indent=2) + "\n")
    most = ", ".join(f"{op} {count}" for op, count in step.operations.most_common(5))
    assert found == recorded().get(name), (
        f"{name} launches {found}, recorded is {recorded().get(name)} (most: {most}); if that is "
        "meant, record it with DAC_RECORD_LAUNCHES=1 and say so in the commit"
    )


def test_the_table_has_no_other_entries() -> None:
    assert recorded().keys() == STEPS.keys()
