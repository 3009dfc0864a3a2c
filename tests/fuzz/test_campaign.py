"""A small campaign on every change; `make fuzz CASES=5000` makes a long one."""

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
