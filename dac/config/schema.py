"""The JSON schema of `params.yaml`, for editors.

    python -m dac.config.schema > workflow/schemas/params.schema.yaml

Generated from the types in dac/config/. Entries with a `base:` may leave out what the base gives;
only dac/config/checks.py knows what goes together (names that must exist, sizes that must fit).
"""

from typing import Any

import yaml

from dac.config.arguments import command
from dac.config.file import File

WITH_BASE = ("Task", "MethodEntry")
HEADER = "# Made by `python -m dac.config.schema` from dac/config/; do not edit.\n"


def schema() -> dict[str, Any]:
    found = File.model_json_schema()
    for name in WITH_BASE:
        entry = found["$defs"][name]
        entry["properties"]["base"] = {"type": "string", "title": "Base"}
        entry.pop("required", None)
    _close(found)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def _close(node: Any) -> None:
    """Forbid other names wherever names follow a pattern (tasks, methods, ...)."""
    if isinstance(node, dict):
        if "patternProperties" in node:
            node["additionalProperties"] = False
        for inner in node.values():
            _close(inner)


def text() -> str:
    return HEADER + yaml.safe_dump(schema(), sort_keys=False, width=100)


if __name__ == "__main__":
    command("schema", __doc__).parse_args()
    print(text(), end="")
