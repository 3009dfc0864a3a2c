"""Keep Snakemake's memory of prepared sets true.

Snakemake records a failed job as finished (github.com/snakemake/snakemake/issues/3808), which does
not matter where it also deletes the output. The set prepared before stays when `prepare` fails, and
would count as made with the parameters that failed. But every set says what it was made with.
"""

import json
from base64 import urlsafe_b64encode
from pathlib import Path

from dac.io.files import canonical_hash, write_text


def correct(metadata: Path, names: list[str]) -> None:
    """Let the records in `.snakemake/metadata` have the parameters of the sets that are there."""
    for name in names:
        meta = Path("data/prepared") / name / "meta.json"  # as in workflow/rules/prepare.smk
        record = metadata / urlsafe_b64encode(str(meta).encode()).decode()
        try:
            found, recipe = json.loads(record.read_text()), json.loads(meta.read_text())["recipe"]
            recorded = found["params"] if found["rule"] == "prepare" else None
            made_with = {key: recipe[key] for key in ("side", "size")}  # the rule's parameter
        except (OSError, ValueError, KeyError, TypeError):  # no set, no record, or a damaged one
            continue
        params = [repr(canonical_hash(made_with))]
        if recorded not in (None, params):
            write_text(record, json.dumps(found | {"params": params}))
