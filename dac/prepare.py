"""Stage `prepare`: official files or own pictures -> arrays in the prepared format.

python -m dac.prepare --data NAME [--root data] [--pictures FOLDER]
"""

import argparse
import sys
from pathlib import Path
from typing import get_args

from dac.config import DEFAULT_PATH, DataName, DownloadSet, load
from dac.data.prepare import prepare
from dac.io.errors import UserError, exit_code_of


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m dac.prepare", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--data", required=True, choices=get_args(DataName))
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--params", type=Path, default=DEFAULT_PATH)
    parser.add_argument("--pictures", type=Path, help="your own pictures, for --data folder")
    arguments = parser.parse_args()
    file = load(arguments.params).file
    name, pictures = arguments.data, arguments.pictures
    if pictures is not None and name != "folder":
        raise UserError(f"--pictures {pictures} is only for --data folder, not for {name}")
    spec = file.download.sets.get(name, DownloadSet())
    prepare(arguments.root, name, file.prepare[name], spec, pictures)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
