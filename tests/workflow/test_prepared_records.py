"""What Snakemake remembers of a prepared set is what the set itself says."""

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from dac.io.files import canonical_hash
from dac.workflow.prepared_records import correct

SET = "data/prepared/digits/meta.json"
RECIPE = {"side": 16, "size": 16, "source": "x"}
TRUE = [repr(canonical_hash({"side": 16, "size": 16}))]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Snakemake keeps after a job with other parameters has failed."""
    monkeypatch.chdir(tmp_path)
    Path(SET).parent.mkdir(parents=True)
    Path(SET).write_text(json.dumps({"recipe": RECIPE}))
    path = Path("metadata") / urlsafe_b64encode(SET.encode()).decode()
    path.parent.mkdir()
    path.write_text(json.dumps({"rule": "prepare", "params": ["'other'"], "input": []}))
    return path


def test_the_parameters_of_a_failed_job_are_replaced(record: Path) -> None:
    correct(record.parent, ["digits", "cifar10"])
    whole = {"rule": "prepare", "params": TRUE, "input": []}
    assert json.loads(record.read_text()) == whole
    before = record.stat()
    correct(record.parent, ["digits"])
    assert record.stat() == before, "a true record is left alone"


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"recipe": {"side": 16}}'])
def test_a_damaged_set_or_record_is_left_to_the_stage(record: Path, damage: str) -> None:
    before = record.read_text()
    Path(SET).write_text(damage)
    correct(record.parent, ["digits"])
    assert record.read_text() == before
    Path(SET).write_text(json.dumps({"recipe": RECIPE}))
    record.write_text(damage)
    correct(record.parent, ["digits"])
    assert record.read_text() == damage
