"""Stage `download`: the official files of a data set -> `<root>/raw/<set>/`, verified.

python -m dac.download --data cifar100 [--mirror FOLDER] [--extracted FOLDER]
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from dac.config import load
from dac.config.arguments import command
from dac.data import raw
from dac.data.download import Job, download
from dac.data.sources import Sources, patience_of
from dac.io.errors import UserError, exit_code_of
from dac.io.files import read_json, write_json
from dac.io.progress import say

NOTHING_TO_DO = {
    "digits": "digits ships inside scikit-learn; nothing to download",
    "folder": "folder means your own pictures; nothing to download. "
    "Run `python -m dac.prepare --data folder --pictures FOLDER`",
}


def main() -> None:
    parser = command("download", __doc__, "--data", "--root", "--params")
    parser.add_argument("--mirror", type=Path, help="folder that holds the archives")
    parser.add_argument("--extracted", type=Path, help="folder that holds the extracted files")
    parser.add_argument(
        "--receipt", type=Path, help="also write the receipt, the origin of every file, here"
    )
    arguments = parser.parse_args()
    receipt = _download_as_asked(arguments)
    if arguments.receipt is not None:
        write_json(arguments.receipt, receipt)


def _download_as_asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the receipt of the files that are there in the end."""
    settings = load(arguments.params).file.download
    spec = settings.sets[arguments.data]
    if arguments.data in NOTHING_TO_DO:
        say(NOTHING_TO_DO[arguments.data])
        return raw.receipt(arguments.data, {"note": NOTHING_TO_DO[arguments.data]}, {})
    if not (spec.archives or spec.files or spec.counts):
        raise UserError(
            f"{arguments.params} lists no archives, files or counts of {arguments.data}; add "
            f"download.sets.{arguments.data} as in the shipped params.yaml"
        )
    mirror = arguments.mirror or (Path(m) if (m := os.environ.get("DAC_MIRROR")) else None)
    if mirror is not None and not mirror.is_dir():
        raise UserError(
            f"the mirror {mirror} is not a folder; give the one that holds the archives"
        )
    sources = Sources(arguments.root / "downloads" / arguments.data, mirror, patience_of(settings))
    job = Job(arguments.data, spec, arguments.root, sources, arguments.extracted)
    download(job)
    receipt: dict[str, Any] = read_json(job.raw / raw.RECEIPT, "receipt")
    return receipt


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
