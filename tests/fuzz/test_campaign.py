"""A small campaign on every change; `make fuzz CASES=5000` makes a long one."""

import os
import random
import select
import time
from pathlib import Path

import campaign
import pytest
from campaign import KINDS, counts, run
from verdicts import ACCEPTED, REFUSED

CASES = 200


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_inputs_are_refused_or_read_right(kind: str) -> None:
    results = list(run([kind], counts(list(KINDS), CASES)[kind], seed=1))
    failures = [result for result in results if result.verdict not in (ACCEPTED, REFUSED)]
    assert not failures, "\n\n".join(f"case {f.case}: {f.verdict}" for f in failures)
    expected = {ACCEPTED} if kind == "kills" else {ACCEPTED, REFUSED}
    assert {result.verdict for result in results} == expected


def test_a_case_that_hangs_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()

    class Hangs:
        def __init__(self, folder: Path) -> None:
            pass

        def case(self, draw: random.Random) -> str:
            os.fork()  # a training
            time.sleep(60)
            return ACCEPTED

    monkeypatch.setitem(KINDS, "kills", Hangs)
    monkeypatch.setattr(campaign, "SECONDS", 0.5)
    (result,) = run(["kills"], 1, seed=1)
    assert result.verdict.startswith("hangs")
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        assert select.select([pipe], [], [], 10)[0], "a process still holds the other end"
        assert pipe.read() == b""
