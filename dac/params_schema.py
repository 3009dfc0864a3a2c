"""The JSON schema of `params.yaml`, for editors and for Snakemake's `validate`.

    python -m dac.params_schema > workflow/schemas/params.schema.yaml

Made from the types in dac/settings/. Entries with a `base:` may leave out what the base gives;
what goes together (names that must exist, sizes that must fit) only dac/params_checks.py knows.
"""

from typing import Any

import yaml

from dac.settings import File

WITH_BASE = ("Task", "MethodEntry")
HEADER = "# Made by `python -m dac.params_schema` from dac/settings/; do not edit.\n"


def schema() -> dict[str, Any]:
    found = File.model_json_schema()
    for name in WITH_BASE:
        entry = found["$defs"][name]
        entry["properties"]["base"] = {"type": "string", "title": "Base"}
        entry.pop("required", None)
    _close(found)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _close(node: Any) -> None:
    """Where names follow a pattern (tasks, methods, ...) no other name is allowed."""
    if isinstance(node, dict):
        if "patternProperties" in node:
            node["additionalProperties"] = False
        for inner in node.values():
            _close(inner)


def text() -> str:
    return HEADER + yaml.safe_dump(schema(), sort_keys=False, width=100)


if __name__ == "__main__":
    print(text(), end="")
