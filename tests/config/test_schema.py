"""The exported schema: the one in the workflow, true of params.yaml, and strict."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dac.config.schema import schema, text

TOP = Path(__file__).parents[2]
RAW = yaml.load((TOP / "params.yaml").read_text(), yaml.CSafeLoader)


VALIDATOR = jsonschema.Draft202012Validator(schema())


def check(raw: Any) -> None:
    VALIDATOR.validate(raw)


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(VALIDATOR.schema)


def test_the_schema_of_the_workflow_is_the_exported_one() -> None:
    written = (TOP / "workflow/schemas/params.schema.yaml").read_text()
    assert written == text(), "run `python -m dac.config.schema` into that file"


def test_the_shipped_parameters_obey_it() -> None:
    check(RAW)


@pytest.mark.parametrize(
    "wrong",
    [
        RAW | {"suit": "demo"},
        RAW | {"tasks": {"T": RAW["tasks"]["folder"]}},
        RAW | {"tasks": {"t": {"base": "folder", "labels": 3}}},
        RAW | {"methods": {"m": {"method": 3}}},
        RAW | {"methods": {"m": {"base": "dac", "setings": {}}}},
        RAW | {"suites": {"demo": {"tables": "digits", "figures": []}}},
        RAW | {"plan": RAW["plan"] | {"teraflops": 0}},
    ],
)
def test_it_refuses_what_is_wrong(wrong: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check(wrong)


def test_entries_with_a_base_may_leave_out_what_the_base_gives() -> None:
    check(RAW | {"tasks": RAW["tasks"] | {"t": {"base": "folder"}}})
